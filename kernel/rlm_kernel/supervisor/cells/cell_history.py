"""The latest cells of a session, so that a rollback can say what it undoes."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.supervisor.cells.cell_log import content_of
from rlm_kernel.supervisor.cells.cell_request import CellRequest

PREVIEW_CHARS = 200
MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class UndoneCell:
    """A completed cell that may be undoable: its number, its code, the names it bound, the queries it asked."""

    number: int
    code: str
    defined: tuple[str, ...]
    queries: tuple[str, ...]


class CellHistory:
    """The latest cells of a session: as many as its policy lets it undo."""

    def __init__(self, limit: int) -> None:
        self._cells: deque[UndoneCell] = deque(maxlen=limit)

    @property
    def cells(self) -> tuple[UndoneCell, ...]:
        """The remembered cells, oldest first."""
        return tuple(self._cells)

    def remember(self, cells: Iterable[UndoneCell]) -> None:
        """Replace the remembered cells by these, oldest first."""
        self._cells.extend(cells)

    @property
    def before(self) -> int:
        """The number of the cell after which every cell is remembered."""
        return self._cells[0].number - 1 if self._cells else sys.maxsize

    def note(self, number: int, request: CellRequest, defined: Sequence[str]) -> None:
        """Remember the completed cell ``number``, in place of one with that number that a crash has undone."""
        self._forget_from(number)
        content = content_of(request) or {}
        code = str(content.get("code", ""))[:PREVIEW_CHARS]
        self._cells.append(UndoneCell(number, code, tuple(defined[:MOST_NAMES]), tuple(request.queries)))

    def latest(self, count: int) -> list[str]:
        """Return the beginning of the code of the last ``count`` cells, newest first."""
        return [cell.code for cell in reversed(self._cells)][:count]

    def undo_after(self, number: int) -> list[UndoneCell]:
        """Forget the cells after that one. Return them, oldest first."""
        undone = [cell for cell in self._cells if cell.number > number]
        self._forget_from(number + 1)
        return undone

    def _forget_from(self, number: int) -> None:
        while self._cells and self._cells[-1].number >= number:
            self._cells.pop()
