"""The journal of every session: gathered while cells run, written a moment after their answers have left.

A cell costs its caller one append to a list. Rows follow in batches; what has not been written when the daemon is
killed (at most `_GATHER_SECONDS` of cells) is missing from the journal. Where something else depends on a row, it is
written at once: the log of a frame is made of them, and a session that goes back to what is on disk counts in them how
many cells it lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence

from rlm_ipc.daemon_rows import JournalCell
from rlm_ipc.displays import kept
from rlm_ipc.kernel_reports import CellNote, CellResult
from rlm_ipc.messages import alike
from rlm_mcp.service.sessions.sessions import Clock
from rlm_mcp.service.tool_answers import moment
from rlm_memory import journal
from rlm_memory.errors import StoreFault
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.store import Store

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.05
_RETRY_SECONDS = 5.0
_MOST_WAITING = 1000
"""Entries that wait for a database that cannot be written; beyond, the oldest are given up."""
_TRIM_EVERY = 50
"""Entries of a session after which its bounds are looked at again."""


class Journal:
    """Takes note of cells and writes them down."""

    def __init__(self, store: Store, clock: Clock, ended: Callable[[int], bool]) -> None:
        """``ended`` is told the key of a session of which a cell has ended; returns whether its row cannot wait."""
        self._store, self._clock, self._ended = store, clock, ended
        self._waiting: deque[JournalEntry] = deque(maxlen=_MOST_WAITING)
        self._timer: asyncio.TimerHandle | None = None
        self._since_trim: Counter[int] = Counter()
        self._troubled = False

    def now(self) -> float:
        """When something begins."""
        return self._clock()

    def ran(
        self,
        session: int,
        code: str,
        began: float,
        result: CellResult,
        frame: int | None = None,
        *,
        terminal: bool = False,
    ) -> None:
        """Note a cell of an agent, or of a person at a ``terminal``, and what came of it.

        ``frame`` is what it was run for.
        """
        self._add(
            JournalEntry(
                session,
                Author.AGENT,
                code,
                began,
                self._clock(),
                result.status,
                _output(result),
                result.queries,
                attachment=journal.TERMINAL if terminal else None,
                displays=tuple(kept(result.data)),
                frame=frame,
                count=result.execution_count,
                value=result.result or "",
                traceback=() if result.error is None else result.error.traceback,
            )
        )

    def died(
        self,
        session: int,
        code: str,
        began: float,
        reason: str,
        asked: Sequence[str],
        frame: int | None = None,
        *,
        terminal: bool = False,
    ) -> None:
        """Note a cell of an agent, or of a person at a ``terminal``, that took its kernel along."""
        ended, queries, attachment = self._clock(), tuple(asked), journal.TERMINAL if terminal else None
        self._add(
            JournalEntry(
                session, Author.AGENT, code, began, ended, "died", reason, queries, attachment=attachment, frame=frame
            )
        )

    def told(self, session: int, kernel: str, note: CellNote) -> None:
        """Note a cell of which the supervisor tells: a notebook's, or one that an earlier daemon began."""
        self._add(
            JournalEntry(
                session,
                Author(note.author),
                note.code,
                note.started,
                note.ended,
                note.status,
                note.output,
                note.queries,
                kernel,
                note.serial,
                note.attachment or None,
                note.displays,
                count=note.count,
                value=note.value,
                traceback=note.traceback,
            )
        )

    def of_session(self, session: int, last: int | None = None) -> list[JournalEntry]:
        """List the session's cells, the oldest first, with those that were waiting to be written."""
        self.flush()
        return journal.of_session(self._store, session, last=last)

    def last_serial(self, kernel: str) -> int:
        """Return up to which of that kernel's notes the journal has them."""
        self.flush()
        return journal.last_serial(self._store, kernel)

    def flush(self) -> None:
        """Write what waits. A database that cannot be written is tried again later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        entries = list(self._waiting)
        try:
            journal.append(self._store, entries)
            self._waiting.clear()
            self._trim(entries)
        except StoreFault as error:
            if not self._troubled:
                log.warning("the journal cannot be written now: %s", error)
            self._troubled = True
            self._later(_RETRY_SECONDS)
        else:
            self._troubled = False

    def forget(self, session: int) -> None:
        """Let go of what waits to be written of a session that has ended."""
        self._waiting = deque((e for e in self._waiting if e.session != session), maxlen=_MOST_WAITING)
        del self._since_trim[session]

    def trim_all(self) -> None:
        """Hold the bound over all sessions; called now and then."""
        journal.trim_all(self._store)

    def close(self) -> None:
        """Write what waits, for the last time."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()

    def _add(self, entry: JournalEntry) -> None:
        if entry.status == "ok" and not entry.code.strip():  # Python gives it no number: the next cell has the same
            return
        self._waiting.append(entry)
        if self._ended(entry.session) or entry.frame is not None:
            self.flush()
        else:
            self._later(_GATHER_SECONDS)

    def _later(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.flush)

    def _trim(self, entries: list[JournalEntry]) -> None:
        self._since_trim.update(entry.session for entry in entries)
        for session, count in list(self._since_trim.items()):
            if count >= _TRIM_EVERY:
                del self._since_trim[session]
                journal.trim(self._store, session)


def entry_row(entry: JournalEntry) -> JournalCell:
    """An entry as the command line prints it."""
    return alike(
        JournalCell,
        entry,
        author=entry.by,
        started_at=moment(entry.started_at),
        ended_at=moment(entry.ended_at),
        attachment=entry.front_end,
        seconds=round(entry.ended_at - entry.started_at, 3),
    )


def _output(result: CellResult) -> str:
    """What the cell wrote, the text of its value, and the last line of its error."""
    parts = [result.stdout, result.stderr, result.result or ""]
    if result.error is not None:
        parts.append(f"{result.error.ename}: {result.error.evalue}")
    return "\n".join(part[: journal.LONGEST_OUTPUT + 1].rstrip("\n") for part in parts if part)
