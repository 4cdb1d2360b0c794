"""The driver of a session: it processes the queue, strictly one item after the other.

That makes recovery simple: while a request runs or a copy is taken, nothing else touches the kernel.
"""

from __future__ import annotations

import asyncio
import logging

from rlm_ipc.errors import KernelDied
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.outcomes import Ended
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.request_queue import Item, QueuedOperation, RequestQueue
from rlm_kernel.supervisor.processes.worker_link import PeerDied
from rlm_kernel.supervisor.running.request_runner import RequestRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GivenOut:
    """A request that another supervisor sent out under a number, and that may be ``answered``."""

    request: CellRequest
    serial: int
    answered: bool


class Driver:
    """Works through ``queue`` from `start` to `cancel`.

    It notes the changes after each item, unless ``runner`` has noted them.
    """

    def __init__(self, queue: RequestQueue, runner: RequestRunner) -> None:
        self._queue, self._runner = queue, runner
        self._task: asyncio.Task[None] | None = None

    def start(self, going_on: GivenOut | None = None) -> None:
        """Start to work, possibly with a request that another supervisor sent out."""
        self._task = asyncio.create_task(self._drive(going_on))

    def cancel(self) -> None:
        """Stop, even in the middle of something."""
        if self._task is not None:
            self._task.cancel()

    async def _drive(self, going_on: GivenOut | None) -> None:
        if going_on is not None:
            self._queue.taken = going_on.request
            await self._do(going_on.request, going_on)
            del going_on
        while not self._queue.closed:
            await self._do(await self._queue.take())  # unnamed: a name would keep the last request and its output

    async def _do(self, item: Item, given_out: GivenOut | None = None) -> None:
        try:
            if not isinstance(item, CellRequest):
                await self._operate(item)
            elif given_out is not None:
                await self._runner.go_on(item, given_out.serial, answered=given_out.answered)
            else:
                await self._runner.run(item)
        except Exception as error:
            # A fault of ours in one request must not stop the session for all later ones.
            log.exception("a request of kernel %s failed in the supervisor", self._runner.relay.kernel_id)
            self._give_up(item, error)
        finally:
            self._queue.taken = None
            if not (self._queue.closed or (isinstance(item, CellRequest) and item.noted)):
                self._runner.note()

    def _give_up(self, item: Item, error: Exception) -> None:
        if isinstance(item, CellRequest):
            self._runner.relay.fail(item, Ended.FAULT, f"the supervisor failed at this request ({error}); run it again")
        elif not item.future.done():
            item.future.set_exception(error)

    async def _operate(self, operation: QueuedOperation) -> None:
        future = operation.future
        if future.cancelled():
            return
        try:
            if not self._runner.processes.alive:
                await self._runner.recovery.recover()
            if self._queue.closed or future.cancelled():  # its caller has closed the descriptors that it lent
                return
            result = await operation.work()
        except Exception as error:
            failure = KernelDied(*await self._runner.recovery.explain(None)) if isinstance(error, PeerDied) else error
            if not future.done():
                future.set_exception(failure)
        else:
            if not future.done():
                future.set_result(result)
