"""The supervisor's own requests to a kernel, between cells (`rlm_ipc.worker_requests`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlm_ipc.errors import KernelError, ProtocolError
from rlm_ipc.messages import JsonObject
from rlm_ipc.worker_requests import Answered, Reply, Request, encode_request, read_reply
from rlm_kernel.failures import from_worker
from rlm_kernel.supervisor.cells.limits import CellLimits
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.processes.worker_link import PeerDied, WorkerLink, heard

RawAnswer = tuple[JsonObject, tuple[bytes, ...]]
"""The fields of an answer, with its blobs."""


class KernelRequests:
    """Asks the live process of one session, and reports each request to its ``checkpoints``.

    A request may run user code (a ``__repr__``, a finaliser), so ``start_clock`` gives it the time limit of a cell.
    """

    def __init__(self, checkpoints: Checkpoints, start_clock: Callable[[WorkerLink], CellLimits]) -> None:
        self._checkpoints, self._start_clock = checkpoints, start_clock

    async def ask(self, live: WorkerLink, request: Request[Any], descriptors: tuple[int, ...] = ()) -> RawAnswer:
        """Send a request and wait for its answer; raises the kernel's KernelError, or `PeerDied`."""
        self._checkpoints.asked(request)
        told = live.expect(Answered.TAG)
        tag, part = encode_request(request)
        live.send(tag, (part,), descriptors)
        clock = self._start_clock(live)
        try:
            message = await told
        except PeerDied:
            # Recovery asks the link why it died. The link knows only of a signal, which the supervisor sent.
            live.stopped_for = clock.reason
            raise
        finally:
            clock.end()
        answer = heard(Answered, message)
        if answer is None:
            raise KernelError("the kernel's answer is too long or cannot be read; ask for less at once")
        if answer.failure is not None:
            raise from_worker(answer.failure)
        return answer.content, message.parts[1:]

    async def ask_for(self, live: WorkerLink, request: Request[Reply], nothing: Reply) -> Reply:
        """Run `ask`, and read the reply; return ``nothing`` if a hostile kernel sent something else."""
        content, _ = await self.ask(live, request)
        try:
            return read_reply(request, content)
        except ProtocolError:
            return nothing
