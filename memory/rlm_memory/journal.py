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

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.records import Value, values_of
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

_BOUNDED = "NOT EXISTS (SELECT 1 FROM frames WHERE frames.key = journal.frame AND frames.status = 'in_progress')"
"""Whether a row belongs to no running frame."""


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
_APPEND = f"""
    INSERT INTO journal ({", ".join(_WRITTEN)}) SELECT {", ".join(f":{name}" for name in _WRITTEN)}
    WHERE EXISTS (SELECT 1 FROM sessions WHERE key = :session) ON CONFLICT DO NOTHING
"""
_READ = f"SELECT number, {', '.join(_COLUMNS)} FROM journal"
_LATEST_FIRST = "ORDER BY number DESC LIMIT :last"
_OF_SESSION = f"{_READ} WHERE session = :of {_LATEST_FIRST}"
_FIND = f"{_READ} WHERE session = :of AND number = :number"
_OF_FRAME = f"{_READ} WHERE frame = :of {_LATEST_FIRST}"
_TALLY = "SELECT count(*), coalesce(sum(status != 'ok'), 0) FROM journal WHERE frame = :of"
_BEYOND = f"{_READ} WHERE number IN ({limits.oldest_beyond('journal', 'frame = :of')}) ORDER BY number"
_LET_GO = "DELETE FROM journal WHERE number IN (SELECT value FROM json_each(:gone))"
_LAST_SERIAL = "SELECT coalesce(max(serial), 0) FROM journal WHERE kernel = :of"


def append(store: Store, entries: Iterable[JournalEntry]) -> None:
    """Add rows, in one transaction.

    Entries of ended sessions are skipped, and so are those whose ``kernel`` and ``serial`` are already there.
    """
    store.run_each(_APPEND, [_values(entry) for entry in entries])


def of_session(store: Store, session: int, *, last: int | None = None) -> list[JournalEntry]:
    """List the session's cells, oldest first; only the ``last`` ones if that is given."""
    return _latest(store, _OF_SESSION, session, last)


def find(store: Store, session: int, number: int) -> JournalEntry | None:
    """Return the session's cell with that number, if the journal still has it."""
    return store.record(JournalEntry, _FIND, of=session, number=number)


def of_frame(store: Store, frame: int, *, last: int | None = None) -> list[JournalEntry]:
    """List the frame's cells, oldest first; only the ``last`` ones if that is given."""
    return _latest(store, _OF_FRAME, frame, last)


def tally(store: Store, frame: int) -> tuple[int, int]:
    """Count the frame's cells, and how many of them failed."""
    ((ran, failed),) = store.rows(_TALLY, of=frame)
    return ran, failed


def beyond(store: Store, frame: int, *, rows: int = MOST_ROWS_OPEN, size: int = MOST_BYTES_OPEN) -> list[JournalEntry]:
    """List the oldest cells of a frame that exceed its bound, oldest first."""
    return store.records(JournalEntry, _BEYOND, of=frame, rows=rows, size=size)


def let_go(store: Store, entries: Iterable[JournalEntry]) -> None:
    """Delete the rows of entries that are now kept elsewhere."""
    store.run(_LET_GO, gone=json.dumps([entry.number for entry in entries]))


def last_serial(store: Store, kernel: str) -> int:
    """Return the highest serial that the supervisor has reported for that kernel; 0 if none."""
    return int(store.scalar(_LAST_SERIAL, of=kernel))


def trim(store: Store, session: int, *, rows: int = MOST_ROWS, size: int = MOST_BYTES) -> None:
    """Delete the session's oldest rows until at most ``rows`` and at most ``size`` bytes are left."""
    limits.trim(store, "journal", size=size, rows=rows, session=session, among=_BOUNDED)


def trim_all(store: Store, *, size: int = MOST_BYTES_IN_ALL) -> None:
    """Delete the oldest rows of all sessions until at most ``size`` bytes are left."""
    limits.trim_all(store, "journal", size=size, among=_BOUNDED)


def _latest(store: Store, statement: str, of: int, last: int | None) -> list[JournalEntry]:
    return store.records(JournalEntry, statement, of=of, last=-1 if last is None else last)[::-1]


def _values(entry: JournalEntry) -> dict[str, Value]:
    code = limits.storable(entry.code, LONGEST_CODE)
    output = limits.storable(entry.output, LONGEST_OUTPUT)
    shown = sum(len(form.encode(errors="replace")) for display in entry.displays for form in display.values())
    value, traceback = limits.storable(entry.value, LONGEST_OUTPUT), _lines(entry.traceback)
    size = sum(len(part.encode()) for part in (code, output, value, *traceback)) + shown
    count = entry.count if entry.count is not None and 0 <= entry.count <= HIGHEST_COUNT else None
    texts = {"code": code, "output": output, "value": value, "status": limits.storable(entry.status, LONGEST_STATUS)}
    return {**values_of(entry), **texts, "traceback": json.dumps(traceback), "count": count, "size": size}


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
