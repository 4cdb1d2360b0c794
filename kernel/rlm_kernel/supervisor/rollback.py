"""Undoing cells: a copy of the session from before them takes the place of its process.

Memory goes back, behind the same sockets. Files, loaded texts and rows do not, and no query id is used again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlm_ipc.errors import CallerError, KernelBusy
from rlm_ipc.kernel_reports import RollbackInfo
from rlm_ipc.worker_requests import VariableRows, Variables
from rlm_kernel.supervisor.cell_log import content_of
from rlm_kernel.supervisor.cell_request import CellRequest
from rlm_kernel.supervisor.checkpoints import Checkpoints
from rlm_kernel.supervisor.query_book import QueryBook
from rlm_kernel.supervisor.session_policy import SessionPolicy

PREVIEW_CHARS = 200
MOST_NAMES = 1000


@dataclass(slots=True)
class UndoneCell:
    """A completed cell as it is remembered: its number, its code, the names it bound, the queries it asked."""

    number: int
    code: str
    defined: list[str]
    queries: list[str]


class History:
    """The latest cells of a session: as many as its policy lets it undo."""

    def __init__(self, limit: int) -> None:
        self._cells: deque[UndoneCell] = deque(maxlen=limit)

    @property
    def before(self) -> int:
        """The number of the cell after which every cell is remembered."""
        return self._cells[0].number - 1 if self._cells else sys.maxsize

    def note(self, number: int, request: CellRequest, defined: Sequence[str]) -> None:
        """Remember the completed cell ``number``, in place of one with that number that a crash has undone."""
        self._forget_from(number)
        content = content_of(request) or {}
        code = str(content.get("code", ""))[:PREVIEW_CHARS]
        asked = [query.id for query in request.queries]
        self._cells.append(UndoneCell(number, code, list(defined[:MOST_NAMES]), asked))

    def latest(self, count: int) -> list[str]:
        """The beginning of the code of the last ``count`` cells, the newest first."""
        return [cell.code for cell in reversed(self._cells)][:count]

    def undo_after(self, number: int) -> list[UndoneCell]:
        """Forget the cells after that one; returns them, the oldest first."""
        undone = [cell for cell in self._cells if cell.number > number]
        self._forget_from(number + 1)
        return undone

    def _forget_from(self, number: int) -> None:
        while self._cells and self._cells[-1].number >= number:
            self._cells.pop()


class UndoableSession(Protocol):
    """What a rollback needs from a session; see `session.SupervisedSession`."""

    @property
    def policy(self) -> SessionPolicy:
        """How many cells it lets undo, and when it is copied."""
        ...

    @property
    def checkpoints(self) -> Checkpoints:
        """Its copies."""
        ...

    @property
    def history(self) -> History:
        """Its latest cells."""
        ...

    @property
    def queries(self) -> QueryBook:
        """What they have asked."""
        ...

    @property
    def cell(self) -> CellRequest | None:
        """The cell that runs, or else the next one."""
        ...

    @property
    def undoable(self) -> list[int]:
        """The numbers of last cells that can be undone."""
        ...

    def operation(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Do ``work`` between requests."""
        ...

    def told_of_loss(self) -> None:
        """Forget the report of what an earlier crash lost."""
        ...

    def secure(self) -> Awaitable[None]:
        """See to it that a crash loses nothing."""
        ...


async def rollback(session: UndoableSession, count: int) -> RollbackInfo:
    """Undo the last ``count`` completed cells of the session.

    Raises `KernelBusy` while a cell runs, CallerError when there is no copy to go back to; then nothing has changed.
    """
    if session.cell is not None:
        raise KernelBusy("the session runs a cell; wait for it or interrupt it, then roll back")

    async def work() -> RollbackInfo:
        return await _go_back(session, count)

    done: RollbackInfo = await session.operation(work)
    return done


async def _go_back(session: UndoableSession, count: int) -> RollbackInfo:
    checkpoints = session.checkpoints
    possible = session.undoable
    if count not in possible:
        raise CallerError(_why_not(session, count, possible))
    await checkpoints.go_back(count)
    await checkpoints.equip()
    session.told_of_loss()
    undone = session.history.undo_after(checkpoints.cells)
    names = sorted({name for cell in undone for name in cell.defined})
    found = await checkpoints.ask_for(Variables(), VariableRows())
    present = {row.name for row in found.variables}
    present |= checkpoints.contexts.keys()
    asked = [query for cell in undone for query in cell.queries if session.queries.withdraw(query)]
    await session.secure()
    return RollbackInfo(
        undone=tuple(cell.code for cell in undone),
        restored=tuple(name for name in names if name in present),
        gone=tuple(name for name in names if name not in present),
        queries=tuple(asked),
        possible=tuple(session.undoable),
    )


def _why_not(session: UndoableSession, count: int, possible: list[int]) -> str:
    cells, kept, mode = session.checkpoints.cells, session.policy.limits.rollback_cells, session.policy.checkpoint
    if count > cells:
        return f"{count} cell(s) cannot be undone: the session's process has completed {cells} cell(s)"
    if mode == "off":
        return "no cell can be undone: the policy has checkpoint: off, so no copies are kept; use restart_session"
    can = f"can be undone now: {', '.join(map(str, possible))} cell(s)" if possible else "nothing can be undone now"
    if count > kept:
        return f"{count} cell(s) cannot be undone: the policy keeps copies for {kept} (limits.rollback_cells); {can}"
    return (
        f"there is no copy from before the last {count} cell(s): checkpoint: {mode} takes none between cells that "
        f"follow each other at once, while threads run, or when copies would use too much memory; {can}"
    )
