"""Requests of Jupyter clients to a session over its sockets."""

from __future__ import annotations

from collections.abc import Callable

from rlm_ipc import worker_protocol
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.relay.output_router import OutputRouter
from rlm_kernel.supervisor.relay.waiting_notes import WaitingNotes
from rlm_kernel.supervisor.running.answer_wait import AnswerWait


class ClientRequests:
    """Queues requests, passes input on, and answers those that the supervisor answers itself.

    ``interrupt`` interrupts what runs, otherwise the next cell. ``shut_down`` ends the session, if clients may do that.
    """

    def __init__(
        self,
        interrupt: Callable[[], object],
        shut_down: Callable[[], None],
        queue: RequestQueue,
        processes: KernelProcesses,
        relay: OutputRouter,
        wait: AnswerWait,
    ) -> None:
        self._interrupt, self._shut_down, self._front, self._queue = interrupt, shut_down, relay.front, queue
        self._processes, self._relay, self._wait = processes, relay, wait
        queue.waits = WaitingNotes(queue, relay.front).watch

    def take(self, channel: str, parts: list[bytes]) -> None:
        """Handle one request. The kernel has no key, so the signature is checked here."""
        if channel == "iopub":
            self._front.welcome(parts)
        elif channel == "control":
            self._control(parts)
        elif not self._front.signer.genuine(parts):
            return
        elif channel == "shell":
            self._queue.enqueue(CellRequest.of_client(worker_protocol.SHELL, parts))
        else:
            self.input_came(parts)

    def input_came(self, parts: list[bytes]) -> None:
        """Pass on what a person has typed for a cell that asked."""
        if self._processes.live is not None:
            if self._relay.limits is not None and not self._wait.ids:
                self._relay.limits.input_came()
            self._processes.live.send(worker_protocol.STDIN, tuple(parts))

    def _control(self, parts: list[bytes]) -> None:
        message = self._front.signer.read(parts)
        if message is None:
            return
        if message.kind == "interrupt_request":
            self._interrupt()
            self._front.answer_control(message, {"status": "ok"})
        elif message.kind == "shutdown_request":
            restart = bool(message.content.get("restart", False))
            self._front.answer_control(message, {"status": "ok", "restart": restart})
            self._shut_down()
        else:
            self._queue.enqueue(CellRequest.of_client(worker_protocol.CONTROL, parts))
