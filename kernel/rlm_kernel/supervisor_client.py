"""The daemon's view of kernels: an asyncio client of the supervisor's control socket.

Everything specific to Jupyter stays behind the supervisor. A cell that is run here is an ordinary ``execute_request``
for the kernel and for every watching notebook; only its way there is shorter than the Jupyter sockets.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rlm_contexts.store.store import SharedText
from rlm_ipc import discovery
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import KernelError, ProtocolError
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
from rlm_ipc.messages import Json
from rlm_ipc.supervisor_protocol import OutputSoFar, SpawnRequest
from rlm_ipc.worker_requests import Reply, Request, VariableRow, Variables, read_reply, request_json
from rlm_kernel.fork_policy import refuse_looser_fork
from rlm_kernel.new_kernel import new_scratch, resolved, spawn_call, write_connection
from rlm_kernel.supervisor_connection import Blobs, SharedReply, SupervisorConnection
from rlm_sandbox.policy.model import Policy


class Execution:
    """A cell in progress."""

    def __init__(self, client: SupervisorClient, kernel_id: str, run: str, result: SharedReply[CellResult]) -> None:
        self._client, self._kernel_id, self._run, self._result = client, kernel_id, run, result

    @property
    def done(self) -> bool:
        """True when `result` will not wait."""
        return self._result.done()

    async def result(self) -> CellResult:
        """Wait for the cell; raises `UnknownKernel`, `SupervisorGone` or `KernelBusy` (the queue is full).

        Cancelling the wait leaves the cell running.
        """
        return await self._result.wait()

    async def output_so_far(self) -> tuple[str, str]:
        """Return what the running cell has written to stdout and stderr."""
        output = await self._client.call(protocol.OUTPUT, protocol.OfKernel(self._kernel_id))
        return output.stdout, output.stderr

    async def interrupt(self) -> None:
        """End the cell, even a waiting one; if it does not react to an interrupt, kill and recover."""
        await self._client.call(protocol.STOP, protocol.Stop(self._kernel_id, self._run))


Made = TypeVar("Made")


class SupervisorClient(SupervisorConnection):
    """The calls of the supervisor, one method each."""

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
            return await self._announced(request, await self._made(request.kernel_id, self.call(protocol.SPAWN, call)))
        except Exception:
            shutil.rmtree(scratch, ignore_errors=True)  # in this thread: there may be no other available
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
        refuse_looser_fork(child_policy, parent.policy, but_language=request.trusted)
        child = spawn_call(request, child_policy, scratch)
        forked = await self._made(request.kernel_id, self.call(protocol.FORK, protocol.Fork(kernel_id, child)))
        await self._announced(request, forked.kernel)
        return forked

    async def _made(self, kernel_id: str, call: Coroutine[Any, Any, Made]) -> Made:
        """Await the creation of a kernel.

        If the caller gives up, it is still created, and ended: nobody else knows of it.
        """
        making = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})
            if making.exception() is None:
                with suppress(KernelError):
                    await self.shutdown(kernel_id)
            raise

    async def _announced(self, request: SpawnRequest, info: KernelInfo) -> KernelInfo:
        """Write the requested connection file; if that fails, end the kernel again."""
        if request.connection_file:
            try:
                await asyncio.to_thread(write_connection, Path(request.connection_file), info.connection)
            except BaseException:
                with suppress(KernelError):
                    await self.shutdown(info.kernel_id)
                raise
        return info

    async def kernels(self) -> list[KernelInfo]:
        """Return every kernel that the supervisor holds."""
        return list((await self.call(protocol.KERNELS, protocol.ListKernels())).kernels)

    async def detach(self, kernel_id: str, attachment: str) -> int:
        """Disconnect every front end that has the attachment open. Return how many there were."""
        return (await self.call(protocol.DETACH, protocol.Detach(kernel_id, attachment))).closed

    async def kernel_info(self, kernel_id: str) -> KernelInfo:
        """Return one kernel; raises `UnknownKernel`."""
        return await self.call(protocol.INFO, protocol.OfKernel(kernel_id))

    def execute(self, kernel_id: str, code: str, *, store_history: bool = True) -> Execution:
        """Queue a cell and return at once."""
        return self._started(protocol.Execute(kernel_id, code, store_history, run=secrets.token_hex(8)))

    def execute_all(self, kernel_id: str, cells: Sequence[str], attachment: str = "") -> list[Execution]:
        """Queue cells that run one after the other. Cells after one that does not succeed are skipped.

        ``attachment`` is `TERMINAL` if a person runs them at a terminal.
        """
        started, after = list[Execution](), ""
        for code in cells:
            run = secrets.token_hex(8)
            call = protocol.Execute(kernel_id, code, run=run, after=after, attachment=attachment)
            started.append(self._started(call))
            after = run
        return started

    def claim(self, kernel_id: str, run: str) -> Execution:
        """Return the cell of that name, which another caller started and left."""
        return self._started(protocol.Execute(kernel_id, "", run=run))

    def _started(self, call: protocol.Execute) -> Execution:
        return Execution(self, call.kernel_id, call.run, self.start_shared_call(protocol.EXECUTE, call))

    async def running(self, kernel_id: str) -> OutputSoFar:
        """Return the cell that runs now, whoever sent it, and its output."""
        return await self.call(protocol.OUTPUT, protocol.OfKernel(kernel_id))

    async def interrupt(self, kernel_id: str) -> bool:
        """End the running cell, whatever it does. Return False if none runs."""
        return (await self.call(protocol.INTERRUPT, protocol.Interrupt(kernel_id, escalate=True))).stopped

    async def restart(self, kernel_id: str) -> None:
        """Start again from scratch: loaded contexts stay, variables are lost."""
        await self.call(protocol.RESTART, protocol.OfKernel(kernel_id))

    async def rollback(self, kernel_id: str, cells: int) -> RollbackInfo:
        """Undo the last completed cells: memory, not files. The sockets stay.

        Raises `KernelBusy` while a cell runs, and CallerError when no copy is from before those cells.
        """
        return await self.call(protocol.ROLLBACK, protocol.Rollback(kernel_id, cells))

    async def shutdown(self, kernel_id: str, why: str = "") -> bool:
        """End the kernel and remove its sockets; front ends see ``why``.

        Its scratch folder stays for the caller. Return True if a session that was forked from it also uses that folder.
        """
        return (await self.call(protocol.SHUTDOWN, protocol.OfKernel(kernel_id, why))).shared

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
        """Bind a context to a global of the kernel, in place of its present value.

        The supervisor keeps the pin, and reports the ``revision`` (`KernelInfo`); the caller keeps ``shared_text``.
        """
        copies = [os.dup(fd) for fd in shared_text.fds]
        call = protocol.Bind(kernel_id, name, shared_text.header, type, dict(metadata), revision)
        await self.call(protocol.BIND, call, copies)

    async def unbind(self, kernel_id: str, name: str) -> None:
        """Remove a context from its global."""
        await self.call(protocol.UNBIND, protocol.Unbind(kernel_id, name))

    async def variables(self, kernel_id: str, *, wait_seconds: float | None = None) -> tuple[VariableRow, ...]:
        """Return the user's globals that are not contexts, or took the name of one; none if the kernel lies."""
        try:
            found, _ = await self.ask(kernel_id, Variables(), wait_seconds=wait_seconds)
        except ProtocolError:
            return ()
        return found.variables

    async def make_room(self, kernel_id: str, size: int) -> None:
        """Wait until there is that much memory for variables that a kernel is about to get; raises `MachineFull`."""
        await self.call(protocol.MAKE_ROOM, protocol.MakeRoom(kernel_id, size))

    async def ask(
        self,
        kernel_id: str,
        request: Request[Reply],
        *,
        wait_seconds: float | None = None,
        file: int | None = None,
    ) -> tuple[Reply, Blobs]:
        """Ask the kernel process, in order with its cells; ``file`` is sent along, and stays ours.

        What a kernel says of itself is hostile. Raises ProtocolError for what is not a reply, `KernelBusy` if a cell
        runs for longer than ``wait_seconds``, and the error that the kernel answers with, such as `UnknownVariable`.
        """
        call = protocol.AskWorker(kernel_id, request_json(request), wait_seconds)
        answer, blobs = await self.start_call(protocol.ASK, call, [] if file is None else [os.dup(file)])
        return read_reply(request, answer.content), blobs

    # -- queries

    async def answer(
        self,
        kernel_id: str,
        answers: Mapping[str, QueryOutcome],
        used: BudgetUsed | None = None,
        *,
        refused: bool = False,
    ) -> list[str]:
        """Pass on outcomes by query id. Return the ids that the kernel was waiting for.

        ``used`` is what the session's queries have used; ``refused`` says that what code assigned was not accepted.
        """
        call = protocol.Resolve(kernel_id, dict(answers), used, refused)
        return list((await self.call(protocol.RESOLVE, call)).known)

    async def pending_queries(self, kernel_id: str) -> list[AskedQuery]:
        """Return the kernel's unanswered queries."""
        return list((await self.call(protocol.QUERIES, protocol.OfKernel(kernel_id))).queries)

    async def cells(self, kernel_id: str, after: int = 0) -> list[CellNote]:
        """Return the kernel's latest cells whose result no caller got, from serial ``after`` on."""
        return list((await self.call(protocol.CELLS, protocol.CellsAfter(kernel_id, after))).cells)
