"""The extracts of a project's files: which are still to be made, and the existing ones."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rlm_lock.extraction.packing import from_bytes
from rlm_lock.listing.table import FileTable
from rlm_lock.model import Extract, FileNote
from rlm_lock.parsing.keys import parse_key
from rlm_lock.parsing.pool import FileToParse, Outcome, ParsePool
from rlm_lock.protocol import Phase, Progress
from rlm_lock.scanner.project import Project
from rlm_lock.store import ParsedFile

_SLICE = 1_000
_WAIT_SECONDS = 0.05
_COMMIT_SECONDS = 1.0
_AHEAD = 2_000
"""Maximum number of files that are with the helpers at once."""


class Extracts:
    """Creates the extracts that the store lacks, and finds the existing ones.

    Attributes:
        wanted: contents without an extract, each with a file that has it.
        unseen: files that have not been checked yet.
        late: how many files are only hashed, because the time for parsing was used up.
    """

    def __init__(self, project: Project) -> None:
        """Args: the project, whose root the helpers may read."""
        self._project, self._store = project, project.store
        self._pool = ParsePool(project.root)
        self._notes = {blob: FileNote(note) for blob, note in self._store.notes().items()}
        self._ready: list[ParsedFile] = []
        self._is_complete = False
        self.wanted: dict[tuple[bytes, str], FileToParse] = {}
        self._given: set[tuple[bytes, str]] = set()
        self.late = self.unseen = 0
        self.done = 0

    def close(self) -> None:
        """End the helpers; their results are kept."""
        self._pool.close()
        self._take(self._pool.take(0))
        self._keep()

    @property
    def refusal(self) -> str:
        """Why nothing can be parsed here; empty if it can."""
        return self._pool.refusal

    def note(self, table: FileTable, row: int) -> FileNote:
        """Return why not everything is known about a file."""
        own = table.note(row)
        return own if own is not FileNote.NONE else self._notes.get(table.blob(row), own)

    def packed(self, path: bytes) -> bytes | None:
        """Return the packed extract of a file; None if there is none."""
        table = self._project.table
        row = table.row_of(path)
        if row < 0 or not table.modes[row]:
            return None
        return self._store.packed(table.blob(row), parse_key(path))

    def extract(self, path: bytes) -> Extract | None:
        """Return the extract of a file; None if there is none."""
        return unpacked(self.packed(path))

    def names(self, table: FileTable, row: int) -> frozenset[str] | None:
        """Return the names of the definitions that a file of a version has; None if it was not parsed."""
        extract = unpacked(self._store.packed(table.blob(row), parse_key(table.paths[row])))
        if extract is not None:
            return frozenset(one.name for one in extract.definitions)
        return None if table.has_text(row) else frozenset()

    # --- what is still to be made ---

    def work(self, touched: set[bytes]) -> Iterator[Progress]:
        """Find out what changed files need (the first time all files), and have it created."""
        yield from self._look_up(touched if self._is_complete else None)
        self._is_complete = True
        kept_at = time.monotonic()
        while self.wanted or self._pool.left:
            self._give()
            self._take(self._pool.take(_WAIT_SECONDS))
            if time.monotonic() > kept_at + _COMMIT_SECONDS or not self.wanted:
                self._keep()
                kept_at = time.monotonic()
            yield Progress(Phase.PARSING, self.done, self.done + len(self.wanted))
        self._keep()

    def _look_up(self, touched: set[bytes] | None) -> Iterator[Progress]:
        table = self._project.table
        rows = range(len(table)) if touched is None else [row for path in touched if (row := table.row_of(path)) >= 0]
        if touched is None:
            self.wanted.clear()
        for at, row in enumerate(rows, 1):
            self._want(table, row)
            if at % _SLICE == 0:
                self.unseen = len(rows) - at
                yield Progress(Phase.PARSING, 0, len(self.wanted))
        self.unseen = 0

    def _want(self, table: FileTable, row: int) -> None:
        if not table.has_text(row):
            return
        pair = table.blob(row), parse_key(table.paths[row])
        if pair not in self.wanted and not self._store.has_extract(*pair):
            self.wanted[pair] = FileToParse(table.paths[row], *pair, table.sizes[row])

    def _give(self) -> None:
        """Hand files to the helpers, but not so many that none could be withdrawn when they change."""
        room = _AHEAD - self._pool.left
        if room < _AHEAD // 2:
            return
        files: list[FileToParse] = []
        for pair, file in self.wanted.items():
            if len(files) == room:
                break
            if pair not in self._given:
                self._given.add(pair)
                files.append(file)
        if files:
            self._pool.add(files)

    def _take(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            pair = outcome.file.blob, outcome.file.key
            self.wanted.pop(pair, None)
            self._given.discard(pair)
            self.late += outcome.is_late
            self.done += 1
            if outcome.parsed is not None:
                self._ready.append(outcome.parsed)
                if outcome.parsed.note:
                    self._notes[outcome.file.blob] = FileNote(outcome.parsed.note)
            elif outcome.is_late:
                self._notes[outcome.file.blob] = FileNote.NOT_PARSED

    def _keep(self) -> None:
        if self._ready:
            self._store.add_extracts(self._ready)
            self._ready.clear()


def unpacked(packed: bytes | None) -> Extract | None:
    """Return an extract; None if there is none, or a captured helper forged it."""
    if packed is None:
        return None
    try:
        return from_bytes(packed)
    except Exception:  # what forged bytes raise is not documented
        return None
