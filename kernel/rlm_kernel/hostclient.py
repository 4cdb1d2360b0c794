"""What the daemon knows of kernels: an asyncio client of the kernel host's control socket.

Everything Jupyter-like stays behind the host. A cell that is run here is an ordinary ``execute_request`` for the
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
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlm_kernel import rendezvous, tags, wire
from rlm_kernel.contexts.store import Attachment
from rlm_kernel.environment import HOST, chosen
from rlm_kernel.errors import HostGone, KernelError, ProtocolError, from_wire
from rlm_kernel.host.stream import Stream
from rlm_sandbox.policy_model import Policy, resolve

EventCallback = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A kernel to start.

    ``policy`` may hold path variables: they are resolved against ``workspace`` and the scratch folder that the kernel
    gets. ``connection`` is a Jupyter connection to bind (None: ipc in the runtime folder), ``connection_file`` where
    to write it. ``query_base`` is the number of the first query. ``label`` is handed back by `HostClient.kernels`.
    A ``trusted`` fork may be without its parent's language wall; it ends with the front end that opens it.
    ``writable`` are folders that other sessions may write: the policy's paths lead over no link there.
    An ``owned`` kernel is its caller's alone: it ends with the caller's connection, and when a Jupyter client asks it
    to shut down. Sessions of agents outlive both.
    """

    kernel_id: str
    policy: Policy
    workspace: str | None = None
    connection: dict[str, Any] | None = None
    connection_file: str | None = None
    query_base: int = 0
    label: dict[str, Any] = field(default_factory=dict)
    owned: bool = False
    trusted: bool = False
    writable: frozenset[str] = frozenset()

    def to_call(self, policy: Policy, scratch: Path) -> dict[str, Any]:
        """The request as the host takes it, with the resolved ``policy``."""
        plain = {name: getattr(self, name) for name in SPAWN_FIELDS}
        protect = [str(rendezvous.config_dir())]  # policies and accounts: no session reads or writes them
        return {**plain, "policy": policy.model_dump_json(), "scratch": str(scratch), "protect": protect}


SPAWN_FIELDS = ["kernel_id", "workspace", "connection", "connection_file", "query_base", "label", "owned", "trusted"]


def _resolved(request: SpawnRequest, scratch: Path) -> Policy:
    """The policy of a kernel that is asked for, with real paths."""
    workspace = Path(request.workspace) if request.workspace else None
    return resolve(request.policy, workspace, scratch, request.writable)


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A kernel that the host holds. ``undoable`` are the numbers of last cells that `HostClient.rollback` can undo.

    ``latest`` is how the code of these cells begins, the newest first. ``memory_bytes`` is what its code has taken, as
    ``limits.memory_bytes`` counts it; ``walls`` what stands around it, ``last_used`` when a client last had it run
    something (seconds since the epoch). ``contexts`` are the loaded texts by name, with the revision that each was
    attached as; of those that are ``shadowed`` the name means something else in code. ``waiting`` are the queries that
    its cell waits for, ``doors`` the doors by which front ends have it open. ``refused`` are the attempts that its
    walls have refused: ``system_calls`` as the host counted them (``latest_call`` is the last one's name), ``audit``
    and ``cells`` (those that did not compile under the policy) as the kernel says, maybe untruly.
    """

    kernel_id: str
    pid: int | None
    connection: dict[str, Any]
    connection_file: str | None
    scratch: str
    walls: dict[str, Any]
    policy: str
    state: str
    contexts: dict[str, int]
    shadowed: list[str]
    label: dict[str, Any]
    memory_bytes: int
    checkpoint: bool
    undoable: list[int]
    latest: list[str]
    last_used: float
    waiting: list[str]
    doors: list[str]
    refused: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ForkInfo:
    """A session that was forked: its ``kernel``, and where it comes from.

    ``source`` is ``live`` or, when the parent ran a cell, ``checkpoint``, which is ``cells_behind`` completed cells
    old. ``threads`` and ``tasks`` (how many) of the parent do not run in the child. ``dropped_modules`` are globals
    that its policy does not admit; ``queries`` those pending in the parent, which in the child wait for answers of
    their own.
    """

    kernel: KernelInfo
    source: str
    cells_behind: int
    threads: list[str]
    tasks: int
    dropped_modules: list[str]
    queries: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RollbackInfo:
    """What a rollback did.

    ``undone`` is the beginning of each cell's code, the oldest first. ``restored`` are names that those cells had
    bound and that have their earlier value again (objects changed in place are not listed), ``gone`` those that there
    were not before. ``queries`` were pending and are asked no more. ``possible`` are the numbers of cells that could be
    undone next.
    """

    undone: list[str]
    restored: list[str]
    gone: list[str]
    queries: list[str]
    possible: list[int]


@dataclass(frozen=True, slots=True)
class CellResult:
    """What came of a cell.

    ``stdout`` and ``stderr`` end at the policy's cap with a marker; then ``truncated`` is set and the file ``spool``
    holds the whole (the caller removes it; not ``spool_complete`` if even that was cut). ``result`` is the text of
    the last expression, ``data`` its rich forms and other displays, ``queries`` the deferred queries of the cell,
    ``defined`` the names it bound, ``shadowed`` the contexts whose names it took, ``returned`` those that have their
    names again, though it took or deleted them, ``given`` the ``answers`` that its code has assigned to ``llm_answers``
    (or the ``problem`` with them). Times are in seconds.
    """

    status: str
    stdout: str
    stderr: str
    truncated: bool
    output_bytes: int
    spool: str | None
    spool_complete: bool
    result: str | None
    data: list[dict[str, Any]]
    error: dict[str, Any] | None
    execution_count: int | None
    seconds: float
    queries: list[dict[str, Any]]
    defined: list[str]
    shadowed: list[str]
    returned: list[str]
    given: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunningCell:
    """A cell under way: its code, who wrote it (``agent`` or ``notebook``), since when (epoch seconds), its output."""

    code: str
    author: str
    since: float
    stdout: str
    stderr: str


class Execution:
    """A cell under way."""

    def __init__(self, client: HostClient, kernel_id: str, run: int, future: asyncio.Future[Any]) -> None:
        self._client, self._kernel_id, self._run, self._future = client, kernel_id, run, future

    @property
    def done(self) -> bool:
        """True when `result` will not wait."""
        return self._future.done()

    async def result(self) -> CellResult:
        """Wait for the cell; raises `UnknownKernel`, `HostGone` or `KernelBusy` (the queue is full).

        Cancelling the wait leaves the cell running.
        """
        content, _ = await asyncio.shield(self._future)
        return CellResult(**content["result"])

    async def output_so_far(self) -> tuple[str, str]:
        """What the running cell has written to stdout and stderr."""
        content, _ = await self._client.call("output", kernel_id=self._kernel_id)
        return content["stdout"], content["stderr"]

    async def interrupt(self) -> None:
        """End the cell, also one that waits; if it does not give way to an interrupt, kill and recover."""
        await self._client.call("stop", kernel_id=self._kernel_id, run=self._run)


class HostClient:
    """A connection to the kernel host, made by `connect`; every call raises `HostGone` once the host has ended."""

    def __init__(self, sock: socket.socket) -> None:
        self._ids = itertools.count(1)
        self._last_id = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._listeners: list[EventCallback] = []
        self._gone = asyncio.get_running_loop().create_future()
        self._stream = Stream(sock, self._message, self._closed, tags.MAX_CALL)
        self.pid: int | None = None

    @classmethod
    async def connect(cls, *, start: bool = True, runtime: Path | None = None) -> HostClient:
        """Connect to the host of this user, started if nobody serves (``start=False``: raises `HostGone` then)."""
        path = (runtime or rendezvous.runtime_dir()) / "host.sock"
        for pause in (*rendezvous.DYING_SERVER, None):
            sock = await asyncio.to_thread(connect_socket, path, start)
            if sock is None:
                break
            client = cls(sock)
            try:
                content, _ = await client.call("hello", protocol=tags.PROTOCOL, events=True)
            except HostGone:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                client.pid = content["pid"]
                return client
        raise HostGone("no kernel host is running")

    @property
    def alive(self) -> bool:
        """False once the host has gone."""
        return not self._stream.closed

    async def wait_gone(self) -> None:
        """Return when the host has ended or hung up."""
        await asyncio.shield(self._gone)

    def on_event(self, callback: EventCallback) -> None:
        """Call ``callback(kernel_id, event)`` for every event; `host.session` says which there are."""
        self._listeners.append(callback)

    def close(self) -> None:
        """Hang up; kernels go on."""
        self._stream.close()

    # -- calls

    def start_call(self, op: str, descriptors: Sequence[int] = (), **content: Any) -> asyncio.Future[Any]:
        """Send a call; the future gets its content and blobs."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._stream.closed:
            future.set_exception(HostGone())
            wire.Message(b"", (), tuple(descriptors)).close()
            return future
        number = self._last_id = next(self._ids)
        self._calls[number] = future
        frame = json.dumps({"id": number, "op": op, **content}).encode("utf-8", "replace")
        self._stream.send(tags.CALL, (frame,), descriptors)
        return future

    async def call(
        self, op: str, descriptors: Sequence[int] = (), **content: Any
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Call and wait; raises the KernelError that the host answers with."""
        result: tuple[dict[str, Any], tuple[bytes, ...]] = await self.start_call(op, descriptors, **content)
        return result

    def _message(self, message: wire.Message) -> None:
        content = json.loads(message.frames[0])
        if message.tag == tags.EVENT:
            for listener in self._listeners:
                listener(content["kernel_id"], content)
            return
        future = self._calls.pop(content.get("id"), None)
        if future is None or future.done():
            return
        if content["ok"]:
            future.set_result((content, message.frames[1:]))
        else:
            future.set_exception(from_wire(content))

    def _closed(self) -> None:
        failure = self._stream.failure
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(ProtocolError(str(failure)) if failure else HostGone())
        if not self._gone.done():
            self._gone.set_result(None)

    # -- kernels

    async def spawn(self, request: SpawnRequest) -> KernelInfo:
        """Start a kernel; raises `WallsMissing`, `CallerError` or `KernelDied`."""
        runtime = rendezvous.runtime_dir()
        scratch = await asyncio.to_thread(new_scratch, runtime, request.kernel_id)
        try:
            policy = _resolved(request, scratch)
            content, _ = await self.call("spawn", request=request.to_call(policy, scratch))
            return await self._announced(request, KernelInfo(**content["kernel"]))
        except Exception:
            shutil.rmtree(scratch, ignore_errors=True)  # in this thread: there may be no other to be had
            raise

    async def fork(self, kernel_id: str, request: SpawnRequest) -> ForkInfo:
        """Start a kernel that has every variable of another; its policy must be equal or stricter.

        The two share the scratch folder and nothing else. ``query_base`` of the request is not used.

        Raises:
            PolicyLooser, WallsMissing, UnknownKernel, CallerError: it cannot be forked as asked.
            KernelBusy: a cell runs, and there is no checkpoint.
            ProcessError: the copy could not begin.
        """
        scratch = Path((await self.kernel_info(kernel_id)).scratch)
        policy = await asyncio.to_thread(_resolved, request, scratch)
        content, _ = await self.call("fork", kernel_id=kernel_id, request=request.to_call(policy, scratch))
        info = await self._announced(request, KernelInfo(**content["kernel"]))
        return ForkInfo(info, **content["origin"])

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
        """Every kernel that the host holds."""
        content, _ = await self.call("kernels")
        return [KernelInfo(**kernel) for kernel in content["kernels"]]

    async def close_door(self, kernel_id: str, door: str) -> int:
        """Hang up on every front end that has the door open; returns how many there were."""
        content, _ = await self.call("close_door", kernel_id=kernel_id, door=door)
        return int(content["closed"])

    async def kernel_info(self, kernel_id: str) -> KernelInfo:
        """One kernel; raises `UnknownKernel`."""
        content, _ = await self.call("info", kernel_id=kernel_id)
        return KernelInfo(**content["kernel"])

    def execute(self, kernel_id: str, code: str, *, store_history: bool = True) -> Execution:
        """Queue a cell and return at once."""
        future = self.start_call("execute", kernel_id=kernel_id, code=code, store_history=store_history)
        return Execution(self, kernel_id, self._last_id, future)

    async def running(self, kernel_id: str) -> RunningCell | None:
        """The cell that runs now, whoever has asked for it."""
        content, _ = await self.call("output", kernel_id=kernel_id)
        cell = {name: content[name] for name in RunningCell.__dataclass_fields__}
        return None if cell["code"] is None else RunningCell(**cell)

    async def interrupt(self, kernel_id: str) -> bool:
        """End the running cell, whatever it does; False if none runs."""
        content, _ = await self.call("interrupt", kernel_id=kernel_id, escalate=True)
        return bool(content["interrupted"])

    async def restart(self, kernel_id: str) -> None:
        """Begin anew: loaded contexts stay, variables go."""
        await self.call("restart", kernel_id=kernel_id)

    async def rollback(self, kernel_id: str, cells: int) -> RollbackInfo:
        """Undo the last completed cells: memory, not files. The sockets stay.

        Raises `KernelBusy` while a cell runs, and CallerError when no copy is from before those cells.
        """
        content, _ = await self.call("rollback", kernel_id=kernel_id, cells=cells)
        return RollbackInfo(**{name: content[name] for name in RollbackInfo.__dataclass_fields__})

    async def shutdown(self, kernel_id: str) -> bool:
        """End the kernel and remove its sockets.

        Its scratch folder stays for the caller; True if a session that was forked from it uses that, too.
        """
        content, _ = await self.call("shutdown", kernel_id=kernel_id)
        return bool(content["shared"])

    # -- contexts and variables

    async def attach(
        self,
        kernel_id: str,
        name: str,
        attachment: Attachment,
        type: str,
        metadata: Mapping[str, Any],
        *,
        revision: int = 0,
    ) -> None:
        """Bind a context to a global of the kernel, in place of whatever that was.

        The host keeps the lease, and tells the ``revision`` (`KernelInfo`); ``attachment`` stays the caller's.
        """
        copies = [os.dup(fd) for fd in attachment.fds]
        notes = {"header": attachment.header, "type": type, "metadata": dict(metadata), "revision": revision}
        await self.call("attach", copies, kernel_id=kernel_id, name=name, **notes)

    async def detach(self, kernel_id: str, name: str) -> None:
        """Unbind a context."""
        await self.call("detach", kernel_id=kernel_id, name=name)

    async def variables(self, kernel_id: str, *, wait_seconds: float | None = None) -> list[dict[str, Any]]:
        """Rows of the user's globals that are no contexts: name, type, size, preview, line_count where it has lines.

        One that ``shadows`` a context has its name.
        """
        content, _ = await self._request(kernel_id, wait_seconds, op="variables")
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
    ) -> dict[str, Any]:
        """Lines of a variable: ``total_lines``, and ``lines``, each with how many characters it has.

        Without ``every`` the first whole ones that have at most ``max_chars``; with it as many as ``limit`` says, the
        longest cut. Raises `UnknownVariable`, `KernelBusy`.
        """
        request = {"op": "peek", "name": name, "offset": offset, "limit": limit, "max_chars": max_chars, "every": every}
        content, _ = await self._request(kernel_id, wait_seconds, **request)
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
    ) -> dict[str, Any]:
        """Search the lines of a variable: ``matches``, ``truncated``, ``total``, ``exact``.

        ``options`` are further arguments of `contexts.scan.scan`.
        """
        request = {"op": "scan", "name": name, "pattern": pattern, "context_lines": context_lines}
        request |= {"max_matches": max_matches, "seconds": seconds, "options": dict(options or {})}
        content, _ = await self._request(kernel_id, wait_seconds, **request)
        return content

    async def export_variable(
        self, kernel_id: str, name: str, max_bytes: int, *, wait_seconds: float | None = None
    ) -> bytes:
        """The text of a variable as UTF-8; raises CallerError if it is over ``max_bytes``."""
        _, blobs = await self._request(kernel_id, wait_seconds, op="export", name=name, max_bytes=max_bytes)
        return blobs[0]

    async def save_variables(
        self, kernel_id: str, names: Sequence[str] | None, limit: int, room: int
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Variables as bytes, sources as text (`image.snapshot.save`); what a kernel says of itself is hostile."""
        chosen = None if names is None else list(names)
        return await self._request(kernel_id, None, op="save", names=chosen, limit=limit, room=room)

    async def restore_variables(
        self,
        kernel_id: str,
        code: Sequence[Mapping[str, Any]],
        variables: Sequence[Mapping[str, Any]],
        file: int,
        shadow: Collection[str] = (),
    ) -> dict[str, Any]:
        """Give a kernel what `save_variables` gave: ``file`` holds the bytes one after the other; it stays ours.

        ``shadow`` are the names that they take from contexts.
        """
        request = {"op": "restore", "code": list(code), "variables": list(variables), "shadow": sorted(shadow)}
        content, _ = await self.call("request", [os.dup(file)], kernel_id=kernel_id, request=request)
        return content

    async def _request(
        self, kernel_id: str, wait_seconds: float | None, **request: Any
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        return await self.call("request", kernel_id=kernel_id, request=request, wait_seconds=wait_seconds)

    # -- queries

    async def answer(
        self,
        kernel_id: str,
        answers: Mapping[str, Mapping[str, Any]],
        used: Mapping[str, float] = MappingProxyType({}),
        *,
        refused: bool = False,
    ) -> list[str]:
        """Inject answers ``{id: {"answer": text} | {"error": text}}``; returns the ids that the kernel waited for.

        An error that says ``over`` is that the budget is used up. An outcome ``by_code`` is one that code has assigned.
        ``used`` is what the session's queries have used; ``refused`` says that what code has assigned is not taken.
        """
        told = {name: dict(outcome) for name, outcome in answers.items()}
        content, _ = await self.call("settle", kernel_id=kernel_id, answers=told, used=dict(used), refused=refused)
        known: list[str] = content["known"]
        return known

    async def pending_queries(self, kernel_id: str) -> list[dict[str, Any]]:
        """Queries of the kernel that nobody has answered."""
        content, _ = await self.call("queries", kernel_id=kernel_id)
        rows: list[dict[str, Any]] = content["queries"]
        return rows

    async def cells(self, kernel_id: str, after: int = 0) -> list[dict[str, Any]]:
        """The kernel's latest cells that no caller got the result of, from serial ``after`` on (`host.cells`)."""
        content, _ = await self.call("cells", kernel_id=kernel_id, after=after)
        rows: list[dict[str, Any]] = content["cells"]
        return rows


def write_connection(path: Path, connection: Mapping[str, Any]) -> None:
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
    """A connected socket to the host at ``path``; None if nobody serves and none is to be started."""
    if not start:
        return rendezvous.connect(path)
    log = rendezvous.state_dir() / "host.log"
    argv = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "rlm_kernel.host"]
    argv += ["--socket", str(path), "--log", str(log)]
    return rendezvous.connect_or_start(path, argv, log=log, env=chosen(HOST))
