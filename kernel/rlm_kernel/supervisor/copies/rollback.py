"""Undoing cells: a copy of the session from before them replaces its process.

Memory goes back, behind the same sockets. Files, loaded texts and rows do not, and no query id is reused.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlm_ipc.errors import CallerError, KernelBusy
from rlm_ipc.kernel_reports import RollbackInfo
from rlm_ipc.worker_requests import VariableRows, Variables
from rlm_kernel.supervisor.cells.cell_history import CellHistory
from rlm_kernel.supervisor.cells.query_book import QueryBook
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.copies.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.copies.equipment import Equipment
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests
from rlm_kernel.supervisor.copies.recovery import Recovery


class Rollback:
    """Undoes the last cells of one session."""

    def __init__(
        self,
        processes: KernelProcesses,
        checkpoints: Checkpoints,
        equipment: Equipment,
        requests: KernelRequests,
        history: CellHistory,
        queries: QueryBook,
        queue: RequestQueue,
        copying: CheckpointTimer,
        recovery: Recovery,
    ) -> None:
        self._processes, self._checkpoints, self._copying = processes, checkpoints, copying
        self._equipment, self._requests, self._recovery = equipment, requests, recovery
        self._history, self._queries, self._queue = history, queries, queue

    @property
    def possible(self) -> list[int]:
        """Return the numbers of last cells that can be undone."""
        known = self._checkpoints.cells - self._history.before
        return [count for count in self._checkpoints.can_go_back() if count <= known]

    async def undo(self, count: int) -> RollbackInfo:
        """Undo the last ``count`` completed cells.

        Raises `KernelBusy` while a cell runs, CallerError when there is no copy to go back to; then nothing changes.
        """
        if self._queue.cell is not None:
            raise KernelBusy("the session runs a cell; wait for it or interrupt it, then roll back")
        done: RollbackInfo = await self._queue.operation(lambda: self._go_back(count))
        return done

    async def _go_back(self, count: int) -> RollbackInfo:
        if count not in self.possible:
            raise CallerError(self._why_not(count, self.possible))
        await self._processes.go_back(count)
        live = self._processes.serving
        await self._equipment.equip(live)
        self._recovery.take_untold()  # the next cell runs on what it says below, not on an earlier loss
        undone = self._history.undo_after(self._checkpoints.cells)
        names = sorted({name for cell in undone for name in cell.defined})
        rows = await self._requests.ask_for(live, Variables(), VariableRows())
        present = {row.name for row in rows.variables}
        present |= self._equipment.contexts.keys()
        withdrawn = [query for cell in undone for query in cell.queries if self._queries.withdraw(query)]
        await self._copying.secure()
        return RollbackInfo(
            undone=tuple(cell.code for cell in undone),
            restored=tuple(name for name in names if name in present),
            gone=tuple(name for name in names if name not in present),
            queries=tuple(withdrawn),
            possible=tuple(self.possible),
        )

    def _why_not(self, count: int, possible: Sequence[int]) -> str:
        cells, kept, mode = self._checkpoints.cells, self._checkpoints.undoable, self._copying.mode
        if count > cells:
            return f"{count} cell(s) cannot be undone: the session's process has completed {cells} cell(s)"
        if mode == "off":
            return "no cell can be undone: the policy has checkpoint: off, so no copies are kept; use restart_session"
        can = f"can be undone now: {', '.join(map(str, possible))} cell(s)" if possible else "nothing can be undone now"
        if count > kept:
            limit = f"the policy keeps copies for {kept} (limits.rollback_cells)"
            return f"{count} cell(s) cannot be undone: {limit}; {can}"
        return (
            f"there is no copy from before the last {count} cell(s): a rollback has used it, or none was taken "
            f"(checkpoint: {mode} takes none while a thread runs, or when copies would use too much memory); {can}"
        )
