"""What the daemon knows of kernels: an asyncio client of the supervisor's control socket.

Everything Jupyter-like stays behind the supervisor. A cell that is run here is an ordinary ``execute_request`` for the
kernel and for every notebook that watches; only its way there is shorter than the Jupyter sockets.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rlm_contexts.store.store import SharedText
from rlm_ipc import discovery, framing, worker_requests
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.environment import SUPERVISOR, chosen
from rlm_ipc.errors import KernelError, ProtocolError, SupervisorGone
from rlm_ipc.framed_stream import Stream
from rlm_ipc.kernel_reports import (
    AskedQuery,
    BudgetUsed,
    CellNote,
    CellResult,
    ForkInfo,
    KernelInfo,
    QueryOutcome,
    RollbackInfo,
)
from rlm_ipc.messages import Json, read
from rlm_ipc.supervisor_protocol import Event, Operation, OutputSoFar, SpawnRequest
from rlm_kernel.failures import from_wire
from rlm_kernel.fork_policy import refuse_looser
from rlm_sandbox.policy.model import Policy, resolve

EventCallback = Callable[[str, Event], None]
_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")
_Blobs = tuple[bytes, ...]


class Execution:
    """A cell under way."""

    def __init__(
        self, client: SupervisorClient, kernel_id: str, run: int, future: asyncio.Future[tuple[CellResult, _Blobs]]
    ) -> None:
        self._client, self._kernel_id, self._run, self._future = client, kernel_id, run, future

    @property
    def done(self) -> bool:
        """True when `result` will not wait."""
        return self._future.done()

    async def result(self) -> CellResult:
        """Wait for the cell; raises `UnknownKernel`, `SupervisorGone` or `KernelBusy` (the queue is full).

        Cancelling the wait leaves the cell running.
        """
        result, _ = await asyncio.shield(self._future)
        return result

    async def output_so_far(self) -> tuple[str, str]:
        """What the running cell has written to stdout and stderr."""
        output = await self._client.call(protocol.OUTPUT, protocol.OfKernel(self._kernel_id))
        return output.stdout, output.stderr

    async def interrupt(self) -> None:
        """End the cell, also one that waits; if it does not give way to an interrupt, kill and recover."""
        await self._client.call(protocol.STOP, protocol.Stop(self._kernel_id, self._run))


class SupervisorClient:
    """A connection to the supervisor, made by `connect`.

    Every call raises `SupervisorGone` once the supervisor has ended.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._ids = itertools.count(1)
        self._last_id = 0
        self._calls: dict[int, tuple[Operation[Any, Any], asyncio.Future[tuple[Any, _Blobs]]]] = {}
        self._listeners: list[EventCallback] = []
        self._gone = asyncio.get_running_loop().create_future()
        self._stream = Stream(sock, self._message, self._closed, wire.MAX_CALL)
        self.pid: int | None = None

    @classmethod
    async def connect(cls, *, start: bool = True, runtime: Path | None = None) -> SupervisorClient:
        """Connect to the supervisor of this user, started if nobody serves.

        Raises `SupervisorGone` when nobody serves and ``start`` is false.
        """
        path = (runtime or discovery.runtime_dir()) / "supervisor.sock"
        for pause in (*discovery.DYING_SERVER, None):
            sock = await asyncio.to_thread(connect_socket, path, start)
            if sock is None:
                break
            client = cls(sock)
            try:
                welcome = await client.call(protocol.HANDSHAKE, protocol.Handshake(wire.PROTOCOL, events=True))
            except SupervisorGone:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                client.pid = welcome.pid
                return client
        raise SupervisorGone("no supervisor is running")

    @property
    def alive(self) -> bool:
        """False once the supervisor has gone."""
        return not self._stream.closed

    async def wait_gone(self) -> None:
        """Return when the supervisor has ended or hung up."""
        await asyncio.shield(self._gone)

    def on_event(self, callback: EventCallback) -> None:
        """Call ``callback(kernel_id, event)`` for every event (`rlm_ipc.supervisor_protocol.EVENTS`)."""
        self._listeners.append(callback)

    def close(self) -> None:
        """Hang up; kernels go on."""
        self._stream.close()

    # -- calls

    def start_call(
        self, operation: Operation[_Request, _Reply], request: _Request, descriptors: Sequence[int] = ()
    ) -> asyncio.Future[tuple[_Reply, _Blobs]]:
        """Send a call; the future gets its reply and blobs."""
        future: asyncio.Future[tuple[_Reply, _Blobs]] = asyncio.get_running_loop().create_future()
        if self._stream.closed:
            future.set_exception(SupervisorGone())
            framing.Message(b"", (), tuple(descriptors)).close()
            return future
        number = self._last_id = next(self._ids)
        self._calls[number] = operation, future
        self._stream.send(wire.CALL, (wire.call_part(number, operation, request),), descriptors)
        return future

    async def call(
        self, operation: Operation[_Request, _Reply], request: _Request, descriptors: Sequence[int] = ()
    ) -> _Reply:
        """Call and wait; raises the KernelError that the supervisor answers with."""
        reply, _ = await self.start_call(operation, request, descriptors)
        return reply

    def _message(self, message: framing.Message) -> None:
        if message.tag == wire.EVENT:
            kernel_id, event = wire.event_in(message.parts[0])
            for listener in self._listeners:
                listener(kernel_id, event)
            return
        answer = wire.answer_in(message.parts[0])
        operation, future = self._calls.pop(answer.id or 0, (None, None))
        if operation is None or future is None or future.done():
            return
        if answer.failure is not None:
            future.set_exception(from_wire(answer.failure))
            return
        try:
            future.set_result((read(operation.reply, answer.reply), message.parts[1:]))
        except ProtocolError as error:
            future.set_exception(error)

    def _closed(self) -> None:
        failure = self._stream.failure
        calls, self._calls = self._calls, {}
        for _, future in calls.values():
            if not future.done():
                future.set_exception(ProtocolError(str(failure)) if failure else SupervisorGone())
        if not self._gone.done():
            self._gone.set_result(None)

    # -- kernels

    async def spawn(
        self, request: SpawnRequest, policy: Policy, *, writable: frozenset[str] = frozenset()
    ) -> KernelInfo:
        """Start a kernel; raises `WallsMissing`, `CallerError` or `KernelDied`.

        ``policy`` may hold path variables: they are resolved against the request's workspace and the scratch folder
        that the kernel gets. ``writable`` are folders that other sessions may write: the policy's paths lead over no
        link there.
        """
        runtime = discovery.runtime_dir()
        scratch = await asyncio.to_thread(new_scratch, runtime, request.kernel_id)
        try:
            call = spawn_call(request, resolved(request, policy, scratch, writable), scratch)
            return await self._announced(request, await self.call(protocol.SPAWN, call))
        except Exception:
            shutil.rmtree(scratch, ignore_errors=True)  # in this thread: there may be no other to be had
            raise

    async def fork(
        self, kernel_id: str, request: SpawnRequest, policy: Policy, *, writable: frozenset[str] = frozenset()
    ) -> ForkInfo:
        """Start a kernel that has every variable of another; its policy must be equal or stricter.

        The two share the scratch folder and nothing else. ``query_base`` of the request is not used; ``policy`` and
        ``writable`` are as for `spawn`.

        Raises:
            PolicyLooser, WallsMissing, UnknownKernel, CallerError: it cannot be forked as asked.
            KernelBusy: a cell runs, and there is no checkpoint.
            ProcessError: the copy could not begin.
        """
        scratch = Path((await self.kernel_info(kernel_id)).scratch)
        child_policy = await asyncio.to_thread(resolved, request, policy, scratch, writable)
        parent = await self.call(protocol.POLICY, protocol.OfKernel(kernel_id))
        refuse_looser(child_policy, parent.policy, but_language=request.trusted)
        child = spawn_call(request, child_policy, scratch)
        forked = await self.call(protocol.FORK, protocol.Fork(kernel_id, child))
        await self._announced(request, forked.kernel)
        return forked

    async def _announced(self, request: SpawnRequest, info: KernelInfo) -> KernelInfo:
        """Write the connection file that was asked for; where that fails, the kernel ends again."""
        if request.connection_file:
            try:
                await asyncio.to_thread(write_connection, Path(request.connection_file), info.connection)
            except BaseException:
                with suppress(KernelError):
                    await self.shutdown(info.kernel_id)
                raise
        return info

    async def kernels(self) -> list[KernelInfo]:
        """Every kernel that the supervisor holds."""
        return list((await self.call(protocol.KERNELS, protocol.ListKernels())).kernels)

    async def detach(self, kernel_id: str, attachment: str) -> int:
        """Hang up on every front end that has the attachment open; returns how many there were."""
        return (await self.call(protocol.DETACH, protocol.Detach(kernel_id, attachment))).closed

    async def kernel_info(self, kernel_id: str) -> KernelInfo:
        """One kernel; raises `UnknownKernel`."""
        return await self.call(protocol.INFO, protocol.OfKernel(kernel_id))

    def execute(self, kernel_id: str, code: str, *, store_history: bool = True) -> Execution:
        """Queue a cell and return at once."""
        future = self.start_call(protocol.EXECUTE, protocol.Execute(kernel_id, code, store_history))
        return Execution(self, kernel_id, self._last_id, future)

    async def running(self, kernel_id: str) -> OutputSoFar:
        """The cell that runs now, whoever has asked for it, and what it has written."""
        return await self.call(protocol.OUTPUT, protocol.OfKernel(kernel_id))

    async def interrupt(self, kernel_id: str) -> bool:
        """End the running cell, whatever it does; False if none runs."""
        return (await self.call(protocol.INTERRUPT, protocol.Interrupt(kernel_id, escalate=True))).stopped

    async def restart(self, kernel_id: str) -> None:
        """Begin anew: loaded contexts stay, variables go."""
        await self.call(protocol.RESTART, protocol.OfKernel(kernel_id))

    async def rollback(self, kernel_id: str, cells: int) -> RollbackInfo:
        """Undo the last completed cells: memory, not files. The sockets stay.

        Raises `KernelBusy` while a cell runs, and CallerError when no copy is from before those cells.
        """
        return await self.call(protocol.ROLLBACK, protocol.Rollback(kernel_id, cells))

    async def shutdown(self, kernel_id: str) -> bool:
        """End the kernel and remove its sockets.

        Its scratch folder stays for the caller; True if a session that was forked from it uses that, too.
        """
        return (await self.call(protocol.SHUTDOWN, protocol.OfKernel(kernel_id))).shared

    # -- contexts and variables

    async def bind(
        self,
        kernel_id: str,
        name: str,
        shared_text: SharedText,
        type: str,
        metadata: Mapping[str, Json],
        *,
        revision: int = 0,
    ) -> None:
        """Bind a context to a global of the kernel, in place of whatever that was.

        The supervisor keeps the pin, and tells the ``revision`` (`KernelInfo`); ``shared_text`` stays the caller's.
        """
        copies = [os.dup(fd) for fd in shared_text.fds]
        call = protocol.Bind(kernel_id, name, shared_text.header, type, dict(metadata), revision)
        await self.call(protocol.BIND, call, copies)

    async def unbind(self, kernel_id: str, name: str) -> None:
        """Take a context from its global."""
        await self.call(protocol.UNBIND, protocol.Unbind(kernel_id, name))

    async def variables(self, kernel_id: str, *, wait_seconds: float | None = None) -> list[dict[str, Json]]:
        """Rows of the user's globals that are no contexts: name, type, size, preview, line_count where it has lines.

        One that ``shadows`` a context has its name.
        """
        content, _ = await self._ask(kernel_id, worker_requests.Variables(), wait_seconds)
        rows = content.get("variables")  # as the kernel says, which may say anything
        known = rows if isinstance(rows, list) else []
        return [row for row in known if isinstance(row, dict) and isinstance(row.get("name"), str)]

    async def peek_variable(
        self,
        kernel_id: str,
        name: str,
        offset: int,
        limit: int,
        max_chars: int,
        *,
        every: bool = False,
        wait_seconds: float | None = None,
    ) -> dict[str, Json]:
        """Lines of a variable: ``total_lines``, and ``lines``, each with how many characters it has.

        Without ``every`` the first whole ones that have at most ``max_chars``; with it as many as ``limit`` says, the
        longest cut. Raises `UnknownVariable`, `KernelBusy`.
        """
        request = worker_requests.Peek(name, offset, limit, max_chars, every)
        content, _ = await self._ask(kernel_id, request, wait_seconds)
        return content

    async def scan_variable(
        self,
        kernel_id: str,
        name: str,
        pattern: str,
        *,
        context_lines: int,
        max_matches: int,
        seconds: float,
        options: Mapping[str, bool | int] | None = None,
        wait_seconds: float | None = None,
    ) -> dict[str, Json]:
        """Search the lines of a variable: ``matches``, ``truncated``, ``total``, ``exact``.

        ``options`` are further arguments of `contexts.scan.scan`.
        """
        request = worker_requests.Scan(name, pattern, context_lines, max_matches, seconds, dict(options or {}))
        content, _ = await self._ask(kernel_id, request, wait_seconds)
        return content

    async def export_variable(
        self, kernel_id: str, name: str, max_bytes: int, *, wait_seconds: float | None = None
    ) -> bytes:
        """The text of a variable as UTF-8; raises TextTooLarge if it is over ``max_bytes``."""
        _, blobs = await self._ask(kernel_id, worker_requests.Export(name, max_bytes), wait_seconds)
        return blobs[0]

    async def save_variables(
        self, kernel_id: str, names: Sequence[str] | None, limit: int, room: int
    ) -> tuple[dict[str, Json], tuple[bytes, ...]]:
        """Variables as bytes, sources as text (`worker.snapshot.save`); what a kernel says of itself is hostile."""
        chosen = None if names is None else tuple(names)
        return await self._ask(kernel_id, worker_requests.Save(chosen, limit, room))

    async def restore_variables(
        self,
        kernel_id: str,
        code: Sequence[Mapping[str, Json]],
        variables: Sequence[Mapping[str, Json]],
        file: int,
        shadow: Collection[str] = (),
    ) -> dict[str, Json]:
        """Give a kernel what `save_variables` gave: ``file`` holds the bytes one after the other; it stays ours.

        ``shadow`` are the names that they take from contexts.
        """
        sources = tuple(read(worker_requests.SavedSource, dict(row)) for row in code)
        values = tuple(read(worker_requests.SavedValue, dict(row)) for row in variables)
        request = worker_requests.Restore(sources, values, tuple(sorted(shadow)))
        content, _ = await self._ask(kernel_id, request, descriptors=[os.dup(file)])
        return content

    async def _ask(
        self,
        kernel_id: str,
        request: worker_requests.Request,
        wait_seconds: float | None = None,
        descriptors: Sequence[int] = (),
    ) -> tuple[dict[str, Json], tuple[bytes, ...]]:
        call = protocol.AskWorker(kernel_id, worker_requests.request_json(request), wait_seconds)
        answer, blobs = await self.start_call(protocol.ASK, call, descriptors)
        return answer.content, blobs

    # -- queries

    async def answer(
        self,
        kernel_id: str,
        answers: Mapping[str, QueryOutcome],
        used: BudgetUsed | None = None,
        *,
        refused: bool = False,
    ) -> list[str]:
        """Inject outcomes by query id; returns the ids that the kernel waited for.

        ``used`` is what the session's queries have used; ``refused`` says that what code has assigned is not taken.
        """
        call = protocol.Resolve(kernel_id, dict(answers), used, refused)
        return list((await self.call(protocol.RESOLVE, call)).known)

    async def pending_queries(self, kernel_id: str) -> list[AskedQuery]:
        """Queries of the kernel that nobody has answered."""
        return list((await self.call(protocol.QUERIES, protocol.OfKernel(kernel_id))).queries)

    async def cells(self, kernel_id: str, after: int = 0) -> list[CellNote]:
        """The kernel's latest cells that no caller got the result of, from serial ``after`` on."""
        return list((await self.call(protocol.CELLS, protocol.CellsAfter(kernel_id, after))).cells)


def resolved(request: SpawnRequest, policy: Policy, scratch: Path, writable: frozenset[str] = frozenset()) -> Policy:
    """Return the policy of a kernel that is asked for, with real paths."""
    workspace = Path(request.workspace) if request.workspace else None
    return resolve(policy, workspace, scratch, writable)


def spawn_call(request: SpawnRequest, policy: Policy, scratch: Path) -> protocol.Spawn:
    """Return the call that starts a kernel under the policy, which has real paths."""
    protect = (str(discovery.config_dir()),)  # policies and accounts: no session reads or writes them
    return protocol.Spawn(request, policy.model_dump_json(), str(scratch), protect)


def write_connection(path: Path, connection: Mapping[str, Json]) -> None:
    """Write a Jupyter connection file, readable by its owner alone (it holds the key)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(connection, file, indent=1)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def new_scratch(runtime: Path, kernel_id: str) -> Path:
    """Make a session's own folder for files that its code writes."""
    folder = runtime / "scratch"
    folder.mkdir(mode=0o700, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{kernel_id[:12]}-", dir=folder))


def connect_socket(path: Path, start: bool) -> socket.socket | None:
    """A connected socket to the supervisor at ``path``; None if nobody serves and none is to be started."""
    if not start:
        return discovery.connect(path)
    log = discovery.state_dir() / "supervisor.log"
    argv = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "rlm_kernel.supervisor"]
    argv += ["--socket", str(path), "--log", str(log)]
    return discovery.connect_or_start(path, argv, log=log, env=chosen(SUPERVISOR))
