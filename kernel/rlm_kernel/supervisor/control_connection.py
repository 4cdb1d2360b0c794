"""One client of the control socket: its calls, which run at the same time, and the cells that it waits for."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from rlm_ipc import discovery, framing
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import CallerError, KernelError, machine_full, to_wire
from rlm_ipc.framed_stream import Stream
from rlm_ipc.kernel_reports import CellResult
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.supervisor_protocol import Operation, Reply, Request
from rlm_ipc.version import VERSION
from rlm_kernel.supervisor.attachments import Attachment
from rlm_kernel.supervisor.processes.patience import retrieved
from rlm_kernel.supervisor.session import SupervisedSession
from rlm_kernel.supervisor.supervisor import Supervisor

GATHERED_SECONDS = 0.005
"""The results of cells of one batch are gathered for this long: each write wakes the caller."""

log = logging.getLogger(__name__)

Answered = tuple[Reply, tuple[bytes, ...]]
"""A reply with its blobs."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What came with a request: the number of its call, and its descriptors, which are closed when it has ended."""

    number: int
    descriptors: tuple[int, ...]


Handler = Callable[["Connection", Request, Envelope], Answered[Reply] | Coroutine[Any, Any, Answered[Reply]] | None]
"""Answers a request, at once or in a task; None if the answer comes from somewhere else."""


HANDLERS: dict[str, tuple[Operation[Any, Any], Handler[Any, Any]]] = {}


def answers(
    operation: Operation[Request, Reply],
) -> Callable[[Handler[Request, Reply]], Handler[Request, Reply]]:
    """Register the function as the handler of that operation."""

    def enter(handler: Handler[Request, Reply]) -> Handler[Request, Reply]:
        HANDLERS[operation.name] = operation, handler
        return handler

    return enter


class Connection:
    """One client of the control socket; its calls run concurrently and end with it.

    ``supervisor`` is the inventory that they work on. ``connections`` are all existing connections.
    """

    def __init__(self, supervisor: Supervisor, connections: set[Connection], sock: socket.socket) -> None:
        self.supervisor, self._connections = supervisor, connections
        self.wants_events = False
        self.spoken = 0
        """The version of the calls used here; 0: only the core, which every version knows."""
        self.owned: set[str] = set()
        self._pid = discovery.peer(sock).pid
        self.attachment: Attachment | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._cells: dict[int, tuple[SupervisedSession, str]] = {}
        """The cells with a waiting caller here, by the numbers of the calls: their sessions and names."""
        self._beginning = False
        """Whether the task of a call has yet to take its first step."""
        self.stream = Stream(sock, self._message, self._closed, wire.MAX_CALL)

    def own(self, kernel_id: str) -> None:
        """Make the kernel end with this connection, or with the process that opened it."""
        self.owned.add(kernel_id)
        self.supervisor.owners.enter(kernel_id, self._pid)

    def _message(self, message: framing.Message) -> None:
        if self.stream.closed:
            message.close()
            return
        if self._beginning:  # calls start in order, and a cell starts without a task
            asyncio.get_running_loop().call_soon(self._message, message)
            return
        if self.attachment is not None:
            self.attachment.receive(message)
            return
        number: int | None = None
        try:
            number, name, content = wire.call_in(message.parts[0])
            operation, handler = HANDLERS.get(name, (None, None))
            if operation is None or handler is None or not (self.spoken or operation.of_core):
                raise CallerError(
                    f"the supervisor is rlm-kernel {VERSION}, and the caller another version, which speaks of "
                    f"{name[:40]!r} differently; let one version take over with `rlm-kernel upgrade`"
                )
            envelope = Envelope(number, message.descriptors)
            work = handler(self, wire.request_in(operation, content), envelope)
            if isinstance(work, tuple):
                self._reply(number, *work)
        except Exception as error:
            message.close()
            self._fail(number, error)
            return
        if work is None or isinstance(work, tuple):
            message.close()
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._answer(number, work))
        self._beginning = True
        loop.call_soon(self._has_begun)
        self.tasks.add(task)
        task.add_done_callback(lambda done: self._answered(done, work, message))

    def _has_begun(self) -> None:
        self._beginning = False

    def _answered(self, task: asyncio.Task[None], work: Coroutine[Any, Any, Any], message: framing.Message) -> None:
        # Here and not in the task: a task that is cancelled before its first step runs no line of its own, not even a
        # `finally`.
        self.tasks.discard(task)
        work.close()
        message.close()

    def _closed(self) -> None:
        self._connections.discard(self)
        if self.attachment is not None:
            self.attachment.close()
        for task in self.tasks:
            task.cancel()
        for session, run in self._cells.values():
            session.queue.leave(run)
        self._cells.clear()
        for kernel_id in self.owned:
            owned = self.supervisor.sessions.get(kernel_id)
            if owned is not None:
                owned.close()

    async def _answer(self, number: int, work: Coroutine[Any, Any, Answered[Any]]) -> None:
        try:
            self._reply(number, *await work)
        except Exception as error:
            self._fail(number, error)

    def wait_for(self, number: int, session: SupervisedSession, run: str, result: asyncio.Future[CellResult]) -> None:
        """Answer that call with the result of a cell. A task would take two more turns of the event loop for it."""
        self._cells[number] = session, run
        result.add_done_callback(lambda done: self._ran(number, done))

    def _ran(self, number: int, result: asyncio.Future[CellResult]) -> None:
        retrieved(result)
        session, run = self._cells.pop(number, (None, ""))
        if session is None:  # the caller has gone
            return
        session.named_runs.told(run)
        try:
            waits = any(other is session for other, _ in self._cells.values())
            self._reply(number, result.result(), wait=GATHERED_SECONDS if waits else 0.0)
        except Exception as error:
            self._fail(number, error)

    def _reply(self, number: int, reply: object, blobs: tuple[bytes, ...] = (), *, wait: float = 0.0) -> None:
        parts = (wire.reply_part(number, reply), *blobs)
        if sum(map(len, parts)) > wire.MAX_CALL:  # the caller would hang up, and lose all of its other calls
            raise CallerError(f"the answer is over {wire.MAX_CALL >> 20} MiB; ask for less at once")
        self.stream.send(wire.RESULT, parts, wait=wait)

    def _fail(self, number: int | None, error: Exception) -> None:
        if not isinstance(error, KernelError | ValueError | LookupError | TypeError | OSError):
            log.error("a call of the supervisor failed", exc_info=error)
        self.stream.send(wire.RESULT, (wire.failure_part(number, to_wire(machine_full(error) or error)),))
