"""How a session continues after its process has died, and what its caller learns about the loss."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from rlm_ipc import processes as process
from rlm_ipc.errors import KernelError
from rlm_ipc.framed_stream import Overfull
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.supervisor_protocol import Event, Recovered
from rlm_kernel.supervisor.cells.cell_history import CellHistory
from rlm_kernel.supervisor.cells.limits import CellLimits
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.copies.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.processes.patience import retrieved
from rlm_kernel.supervisor.processes.worker_link import PeerDied, WorkerLink
from rlm_kernel.supervisor.relay.output_router import OutputRouter

ALL_LOST = Loss(Lost.EVERYTHING)


class Recovery:
    """Replaces a process that died by a copy or a fresh process. ``report`` tells callers that it happened."""

    def __init__(
        self,
        processes: KernelProcesses,
        checkpoints: Checkpoints,
        history: CellHistory,
        copying: CheckpointTimer,
        queue: RequestQueue,
        relay: OutputRouter,
        report: Callable[[Event], None],
    ) -> None:
        self._processes, self._checkpoints, self._history = processes, checkpoints, history
        self._copying, self._queue, self._relay, self._report = copying, queue, relay, report
        self.untold: tuple[str, Loss] | None = None
        """A loss between two cells, to be reported to the next cell."""

    def lost(self, link: WorkerLink) -> None:
        """Record that a process of the session has died."""
        self._processes.lost_copy(link)
        if link is not self._processes.live:
            self._copying.later()
        elif self._relay.current is None and self._checkpoints.cells:
            # A process that has run a cell is replaced at once. One that died before its first cell is replaced only
            # when it is needed: a kernel that cannot live must not be restarted forever.
            self._queue.operation(partial(asyncio.sleep, 0)).add_done_callback(retrieved)

    async def recover(self) -> Loss:
        """Continue from the newest copy, or from a fresh process. Return what was lost."""
        dead = self._processes.live
        reason = cause_of_death(dead) if dead is not None else "the kernel was gone"
        in_cell = self._relay.current is not None
        loss = await self._processes.take_over(in_cell=in_cell)
        self.forget_lost_cells()
        if not loss.nothing and not in_cell:
            self.untold = reason, loss
        self._report(Recovered(lost=loss.cells))
        with contextlib.suppress(PeerDied):
            await self._copying.cover()
        return loss

    async def explain(self, limits: CellLimits | None) -> tuple[str, Loss]:
        """Recover. Return what happened, which ``limits`` may know, and what was lost."""
        dead = self._processes.serving
        reason = limits.reason if limits is not None and limits.ended else cause_of_death(dead)
        try:
            return reason, await self.recover()
        except (KernelError, PeerDied) as error:
            return f"{reason}, and no kernel could be started in its place: {error}", ALL_LOST

    def forget_lost_cells(self) -> None:
        """Forget lost cells: their numbers are reused, also by a restored snapshot, and would be ambiguous."""
        self._history.undo_after(self._checkpoints.cells)

    async def copy(self) -> None:
        """Take a copy. If the kernel dies of it, recover as from any other death."""
        try:
            await self._copying.now()
        except PeerDied:
            await self.recover()

    def began_anew(self) -> None:
        """Drop unreported losses and the history of cells: nobody misses what the session had."""
        self.untold = None
        self.forget_lost_cells()

    @property
    def cells_untold(self) -> int:
        """Return how many completed cells are undone without anyone having been told."""
        return 0 if self.untold is None else self.untold[1].cells

    def take_untold(self) -> tuple[str, Loss] | None:
        """Return a loss between two cells, once.

        The next cell fails with it and does not run on variables that are gone.
        """
        untold, self.untold = self.untold, None
        return untold


def cause_of_death(link: WorkerLink) -> str:
    """Return why a process ended, in words for the user."""
    if link.stopped_for:
        return link.stopped_for
    if isinstance(link.failure, Overfull):
        return str(link.failure)
    if link.failure is not None:
        return f"the kernel broke its protocol ({link.failure})"
    if link.status == process.EXIT_MEMORY:
        return "the kernel ran out of its memory"
    if link.status == process.EXIT_TAMPERED:
        return "code changed a part of the language wall, so the kernel was ended"
    return f"the kernel {process.describe_exit(link.status)}"
