"""Undoing cells: a copy of the session from before them takes the place of its process.

Memory goes back, behind the same sockets. Files, loaded texts and rows do not; ids of queries are not used again.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rlm_kernel.errors import CallerError, KernelBusy
from rlm_kernel.host.cells import content_of
from rlm_kernel.host.images import REDO_CELLS
from rlm_kernel.host.peer import texts
from rlm_kernel.host.request import Request

if TYPE_CHECKING:
    from rlm_kernel.host.session import KernelSession

PREVIEW_CHARS = 200
MOST_NAMES = 1000


@dataclass(slots=True)
class Undone:
    """A completed cell as it is remembered: which one it was, its code, what it bound, what it asked."""

    number: int
    code: str
    defined: list[str]
    queries: list[str]


@dataclass(slots=True)
class Rollback:
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
    possible: list[int] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class History:
    """The latest cells of a session: as many as its policy lets it undo, and those that a copy may repeat."""

    def __init__(self, limit: int) -> None:
        self._cells: deque[Undone] = deque(maxlen=limit + REDO_CELLS if limit else 0)

    @property
    def before(self) -> int:
        """The number of the cell after which every cell is remembered."""
        return self._cells[0].number - 1 if self._cells else sys.maxsize

    def note(self, number: int, request: Request, summary: dict[str, Any]) -> None:
        """Take note of the ``number``-th completed cell; a crash may have made earlier ones of that number undone."""
        self._forget_from(number)
        content = content_of(request) or {}
        code = str(content.get("code", ""))[:PREVIEW_CHARS]
        asked = [str(query["id"]) for query in request.queries]
        self._cells.append(Undone(number, code, texts(summary.get("defined"))[:MOST_NAMES], asked))

    def latest(self, count: int) -> list[str]:
        """The beginning of the code of the last ``count`` cells, the newest first."""
        return [cell.code for cell in reversed(self._cells)][:count]

    def undo_after(self, number: int) -> list[Undone]:
        """Forget the cells after that one; returns them, the oldest first."""
        undone = [cell for cell in self._cells if cell.number > number]
        self._forget_from(number + 1)
        return undone

    def _forget_from(self, number: int) -> None:
        while self._cells and self._cells[-1].number >= number:
            self._cells.pop()


async def rollback(session: KernelSession, count: int) -> Rollback:
    """Undo the last ``count`` completed cells of the session.

    Raises `KernelBusy` while a cell runs, CallerError when there is no copy to go back to; then nothing has changed.
    """
    if session.cell is not None:
        raise KernelBusy("the session runs a cell; wait for it, or interrupt it: then memory is as before it")

    async def work() -> Rollback:
        return await _go_back(session, count)

    done: Rollback = await session.operation(work)
    return done


async def _go_back(session: KernelSession, count: int) -> Rollback:
    images = session.images
    possible = session.undoable
    if count not in possible:
        raise CallerError(_why_not(session, count, possible))
    await images.go_back(count)
    await images.equip()
    session.told_of_loss()
    undone = session.history.undo_after(images.cells)
    names = sorted({name for cell in undone for name in cell.defined})
    content, _ = await images.ask({"op": "variables"})
    present = {str(row.get("name")) for row in content.get("variables", ()) if isinstance(row, dict)}
    present |= images.contexts.keys()
    asked = [query for cell in undone for query in cell.queries if session.queries.withdraw(query)]
    await session.secure()
    return Rollback(
        undone=[cell.code for cell in undone],
        restored=[name for name in names if name in present],
        gone=[name for name in names if name not in present],
        queries=asked,
        possible=session.undoable,
    )


def _why_not(session: KernelSession, count: int, possible: list[int]) -> str:
    cells, kept, mode = session.images.cells, session.limits.rollback_cells, session.policy.checkpoint
    if count > cells:
        return f"the session's process has completed {cells} cell(s); {count} cannot be undone"
    if mode == "off":
        return "the policy has checkpoint: off and keeps no copies: no cell can be undone; restart_session begins anew"
    can = f"can be undone now: {', '.join(map(str, possible))} cell(s)" if possible else "nothing can be undone now"
    if count > kept:
        return f"the policy keeps copies for {kept} cell(s) (limits.rollback_cells), {count} cannot be undone; {can}"
    return (
        f"there is no copy from before the last {count} cell(s): under checkpoint: {mode} none is taken between cells "
        f"that follow each other at once, while threads run, or when copies would use too much memory; {can}"
    )
