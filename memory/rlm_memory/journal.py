"""The journal: what ran in a session, in which order, and with which result. It is deleted with the session.

Rows are appended in batches and never changed. The journal is bounded: each text is cut, each session keeps its latest
rows (`MOST_ROWS`, `MOST_BYTES`) and all sessions together `MOST_BYTES_IN_ALL`; the oldest rows go first. Rows of a
running frame do not count towards these bounds, because its log is still to be written. They have a bound of their own:
the writer of the log saves the rows `beyond` it there and then deletes them with `let_go`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, case, delete, exists, func, not_, select

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.frame_schema import frames
from rlm_memory.schema import journal as table
from rlm_memory.store import Store

LONGEST_CODE = 65_536
"""Characters kept of a cell's code."""
LONGEST_OUTPUT = 16_384
"""Characters kept of a cell's output."""
LONGEST_STATUS = 20
TERMINAL = "terminal"
"""Used in place of an attachment: the cell came from `rlm-kernel run`."""
HIGHEST_COUNT = 1 << 53
"""Kernels report the numbers of their cells. Higher ones are dropped: neither the database nor the pages can hold them.
"""
MOST_ROWS = 1000
"""Rows kept of one session."""
MOST_BYTES = 4 << 20
"""Bytes of code and output kept of one session."""
MOST_BYTES_IN_ALL = 64 << 20
"""Bytes of code and output kept of all sessions together."""
MOST_ROWS_OPEN, MOST_BYTES_OPEN = 4000, 16 << 20
"""Rows kept of one running frame, and bytes of their code and output."""

_RUNS = exists().where(frames.c.key == table.c.frame, frames.c.status == "in_progress")
"""Whether a row belongs to a running frame."""


class Author(StrEnum):
    """Who sent a cell: an agent through a tool, or a person through a Jupyter client."""

    AGENT = "agent"
    NOTEBOOK = "notebook"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One cell. Times are epoch seconds; ``status`` is ``ok``, ``error``, ``aborted`` or ``died``.

    ``queries`` are the ids of the queries that the cell asked. ``kernel`` and ``serial`` are set when the supervisor
    reported the cell; ``attachment`` is the one that a person's cell came through, or `TERMINAL`; ``displays`` are the
    pictures and the HTML that it showed, by MIME type and as the kernel made them. ``frame`` is the key of the frame
    that it ran for. ``number`` is 0 until the entry has a row. ``count`` is the number that the kernel gave the cell,
    ``value`` the text of its last expression, which ``output`` contains too.
    """

    session: int
    author: Author
    code: str
    started_at: float
    ended_at: float
    status: str
    output: str = ""
    queries: tuple[str, ...] = ()
    kernel: str | None = None
    serial: int | None = None
    attachment: str | None = None
    displays: tuple[dict[str, str], ...] = ()
    frame: int | None = None
    number: int = 0
    count: int | None = None
    value: str = ""
    traceback: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        """Who ran it: the author, ``terminal``, or ``trusted`` for a person in a copy without the language wall."""
        if self.attachment == TERMINAL:
            return TERMINAL
        return "trusted" if (self.attachment or "").startswith("trusted-") else self.author.value

    @property
    def front_end(self) -> str | None:
        """The attachment that the cell came through, if it was one."""
        return None if self.attachment == TERMINAL else self.attachment


_COLUMNS = tuple(each.name for each in fields(JournalEntry) if each.name != "number")
_WRITTEN = (*_COLUMNS, "size")
# Rows are written after every cell, and building a statement takes longer than executing it.
_APPEND = (
    f"insert into journal ({', '.join(_WRITTEN)}) select {', '.join(f':{name}' for name in _WRITTEN)} "
    "where exists (select 1 from sessions where key = :session) on conflict do nothing"
)


def append(store: Store, entries: Iterable[JournalEntry]) -> None:
    """Add rows, in one transaction.

    Entries of ended sessions are skipped, and so are those whose ``kernel`` and ``serial`` are already there.
    """
    store.write(_APPEND, [_values(entry) for entry in entries])


def of_session(store: Store, session: int, *, last: int | None = None) -> list[JournalEntry]:
    """List the session's cells, oldest first; only the ``last`` ones if that is given."""
    return _latest(store, select(table).where(table.c.session == session), last)


def find(store: Store, session: int, number: int) -> JournalEntry | None:
    """Return the session's cell with that number, if the journal still has it."""
    found = _latest(store, select(table).where(table.c.session == session, table.c.number == number), 1)
    return found[0] if found else None


def of_frame(store: Store, frame: int, *, last: int | None = None) -> list[JournalEntry]:
    """List the frame's cells, oldest first; only the ``last`` ones if that is given."""
    return _latest(store, select(table).where(table.c.frame == frame), last)


def tally(store: Store, frame: int) -> tuple[int, int]:
    """Count the frame's cells, and how many of them failed."""
    failed = func.coalesce(func.sum(case((table.c.status == "ok", 0), else_=1)), 0).label("failed")
    (found,) = store.rows(select(func.count().label("ran"), failed).where(table.c.frame == frame))
    return found["ran"], found["failed"]


def beyond(store: Store, frame: int, *, rows: int = MOST_ROWS_OPEN, size: int = MOST_BYTES_OPEN) -> list[JournalEntry]:
    """List the oldest cells of a frame that exceed its bound, oldest first."""
    over = limits.numbers_beyond(table, table.c.frame == frame, size=size, rows=rows)
    return _latest(store, select(table).where(table.c.number.in_(over)), None)


def let_go(store: Store, entries: Iterable[JournalEntry]) -> None:
    """Delete the rows of entries that are now kept elsewhere."""
    gone = [entry.number for entry in entries]
    store.run(delete(table).where(table.c.number.in_(gone)))


def last_serial(store: Store, kernel: str) -> int:
    """Return the highest serial that the supervisor has reported for that kernel; 0 if none."""
    statement = select(func.coalesce(func.max(table.c.serial), 0)).where(table.c.kernel == kernel)
    found: int = store.scalars(statement)[0]
    return found


def trim(store: Store, session: int, *, rows: int = MOST_ROWS, size: int = MOST_BYTES) -> None:
    """Delete the session's oldest rows until at most ``rows`` and at most ``size`` bytes are left."""
    limits.trim(store, table, size=size, rows=rows, session=session, among=not_(_RUNS))


def trim_all(store: Store, *, size: int = MOST_BYTES_IN_ALL) -> None:
    """Delete the oldest rows of all sessions until at most ``size`` bytes are left."""
    limits.trim_all(store, table, size=size, among=not_(_RUNS))


def _latest(store: Store, wanted: Select[Any], last: int | None) -> list[JournalEntry]:
    with store.transaction() as connection:
        found = connection.execute(wanted.order_by(table.c.number.desc()).limit(last)).mappings()
        rows = [dict(row) for row in found]
    return [_entry(row) for row in reversed(rows)]


def _values(entry: JournalEntry) -> dict[str, object]:
    values = {name: getattr(entry, name) for name in _COLUMNS}
    code = limits.storable(entry.code, LONGEST_CODE)
    output = limits.storable(entry.output, LONGEST_OUTPUT)
    shown = sum(len(form.encode(errors="replace")) for display in entry.displays for form in display.values())
    value, traceback = limits.storable(entry.value, LONGEST_OUTPUT), _lines(entry.traceback)
    size = sum(len(part.encode()) for part in (code, output, value, *traceback)) + shown
    count = entry.count if entry.count is not None and 0 <= entry.count <= HIGHEST_COUNT else None
    texts = {"code": code, "output": output, "value": value, "status": limits.storable(entry.status, LONGEST_STATUS)}
    lists = {"queries": entry.queries, "displays": entry.displays, "traceback": traceback}
    written = {name: json.dumps(value) for name, value in lists.items()}
    return {**values, **texts, **written, "author": entry.author.value, "count": count, "size": size}


def _lines(traceback: Sequence[str]) -> list[str]:
    """Return the last lines of a traceback, which say most, as far as there is room."""
    found: list[str] = []
    left = LONGEST_OUTPUT
    for line in reversed(traceback):
        left -= len(line) + 1
        if left < 0:
            break
        found.append(limits.storable(line, LONGEST_OUTPUT))
    return found[::-1]


def _entry(row: dict[str, object]) -> JournalEntry:
    del row["size"]
    row["author"] = Author(str(row["author"]))
    for name in ("displays", "traceback", "queries"):
        row[name] = tuple(row[name])  # type: ignore[arg-type]  # a JSON list
    return JournalEntry(**row)  # type: ignore[arg-type]  # the columns are the fields
