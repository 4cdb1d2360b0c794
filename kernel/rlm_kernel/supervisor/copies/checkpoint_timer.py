"""When copies of a session are taken: in its idle time, except for those that a strict reply waits for.

A fork costs the running cell only the pages that it writes to afterwards, and those are copied while the agent thinks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rlm_ipc.outcomes import NoCopy
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.processes.patience import retrieved
from rlm_kernel.supervisor.processes.worker_link import ForkRefused

# Copying and preparing pages takes a processor for as long as a cell. On two cores it would take it from the sender or
# the reader of the reply, so it waits until both are done, and no longer: the next cell needs it.
IDLE_SECONDS = 0.01
# No cell waits for a copy that could not be taken.
IDLE_AFTER_REFUSAL_SECONDS = 0.1
IDLE_BEFORE_SHARING_SECONDS = 5.0
TRY_AGAIN_SECONDS = 1.0


class CheckpointTimer:
    """Takes the copies of one session. ``mode`` is what its policy says: ``off``, ``lazy`` or ``strict``."""

    def __init__(self, mode: str, processes: KernelProcesses, checkpoints: Checkpoints, queue: RequestQueue) -> None:
        self.mode = mode
        self._processes, self._checkpoints, self._queue = processes, checkpoints, queue
        self._timer: asyncio.TimerHandle | None = None
        self._tried = 0.0

    async def now(self) -> None:
        """Take a copy. A kernel that cannot be copied continues without one."""
        # Recorded before the attempt: one that fails slowly must not be repeated before each cell.
        self._tried = time.monotonic()
        try:
            await self._processes.checkpoint()
        except ForkRefused as refused:
            self._checkpoints.refused(refused.why, refused.detail)
        except TimeoutError:
            self._checkpoints.refused(NoCopy.NO_ANSWER, "")

    async def look(self) -> None:
        """Find out whether a copy could be taken now, so that the answer to the cell that has ended can report it."""
        try:
            await self._processes.demand_still()
        except ForkRefused as refused:
            self._checkpoints.refused(refused.why, refused.detail)
        else:
            self._checkpoints.possible()

    async def cover(self) -> None:
        """Take a copy of what no copy represents yet, if the policy wants copies."""
        if self.mode != "off" and not self._checkpoints.covered:
            await self.now()

    async def secure(self) -> None:
        """Copy a session that was forked or rolled back, so that a crash loses nothing of it; under ``lazy`` soon."""
        if self.mode == "strict":
            await self.cover()
        self.later()

    def due(self) -> bool:
        """Return whether the next cell must wait for a copy.

        It must if there was no pause to take one in, or the previous copy has died.

        So ``lazy`` never loses more than the last completed cell, unless the session cannot be copied.
        """
        if self.mode == "off" or self._checkpoints.covered:
            return False
        return self._checkpoints.uncopied is None or time.monotonic() - self._tried >= TRY_AGAIN_SECONDS

    def later(self) -> None:
        """Take a copy as soon as the session is idle, if a new one is worth it, and prepare for the next cell."""
        if self.mode != "off" and not self._queue.closed:
            was_refused = self._checkpoints.uncopied is not None
            self._wait(IDLE_AFTER_REFUSAL_SECONDS if was_refused else IDLE_SECONDS, self._if_idle)

    def cancel(self) -> None:
        """Cancel a planned copy."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def _if_idle(self) -> None:
        if self._queue.idle:
            self._queue.operation(self._make_ready).add_done_callback(retrieved)
            self._wait(IDLE_BEFORE_SHARING_SECONDS, self._share_if_idle)

    async def _make_ready(self) -> None:
        if not self._checkpoints.fresh:
            await self.now()
        self._processes.prefault()

    def _share_if_idle(self) -> None:
        """Take a new copy of a session that is left alone, so that both share every page: half of their memory.

        Until now the kernel kept pages that it had copied ahead for the cell that was expected next. A session that
        could not be copied is checked again, because its thread may have ended.
        """
        uncopied = self._checkpoints.uncopied
        if self._queue.idle and (uncopied is not None or self._checkpoints.newest is not None):
            self._queue.operation(self.now).add_done_callback(retrieved)
        if uncopied is not None and uncopied.reason is NoCopy.THREAD_RUNS:
            self._wait(IDLE_BEFORE_SHARING_SECONDS, self._share_if_idle)
