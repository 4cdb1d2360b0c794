"""One project's snapshot: the file table, brought up to date with the disk step by step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rlm_lock.listing.content import ContentReader, Taken, changed_rows, look
from rlm_lock.listing.history import History, read_history
from rlm_lock.listing.listing import Lister, Listing
from rlm_lock.listing.table import UNTRACKED, FileTable
from rlm_lock.model import FileNote
from rlm_lock.names import shown
from rlm_lock.protocol import Phase, Progress
from rlm_lock.store import Store, Version

_STEP_SECONDS = 0.05
"""How long a step may take before the next question is checked for."""
_MOST_NAMED = 20


class ProjectGone(Exception):
    """The project's folder no longer exists, or cannot be read."""


class Project:
    """What is known about a project.

    Attributes:
        table: the file table. During a look it is partly that of the newest version, partly newer.
        version: the newest version; None before the first look has ended.
        listing: the latest listing.
        waiting: rows that changed and were not read again yet.
        history: when committed files were last changed.
        touched: paths whose content the last looks have changed, for consumers that keep something for each.
        revision: a number that changes with anything in the table, or in what git says about a file.
    """

    def __init__(self, root: bytes, store: Store) -> None:
        """Args: root, the real path of the project's top."""
        self.root, self.store = root, store
        kept = store.newest()
        self.version: Version | None = None if kept is None else kept[0]
        self.table = FileTable([]) if kept is None else kept[1]
        self.listing: Listing | None = None
        self.waiting: list[int] = []
        self.touched: set[bytes] = set()
        self.files = self.untracked = self.revision = 0
        self.history = History()

    def look(self, known: Sequence[bytes] = ()) -> Iterator[Progress]:
        """Bring the table up to date with the disk, and create a version if it differs from the newest one.

        Args: known, the only paths that have changed, as far as is known; empty: look at all. Raises: ProjectGone.
        """
        fd = self._opened()
        reader = ContentReader(fd)
        try:
            rows = self._known_rows(known)
            yield Progress(Phase.LISTING, 0, len(self.table))
            if rows is None:
                yield from self._look_at_all(fd)
            else:
                self.waiting = changed_rows(self.table, fd, frozenset(), rows, ())
            yield from self._read(reader)
        finally:
            reader.close()
            os.close(fd)

    def _opened(self) -> int:
        try:
            return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as problem:
            raise ProjectGone(f"the folder {shown(self.root)} cannot be read ({problem.strerror})") from problem

    def _known_rows(self, known: Sequence[bytes]) -> list[int] | None:
        """Return the rows of the only paths to look at; None if one of them is new, which git has to judge."""
        if not known or self.version is None or self.listing is None:
            return None
        wanted = set(known)
        rows = [row for row, path in enumerate(self.table.paths) if path in wanted]
        return rows if len(rows) == len(wanted) else None

    def _look_at_all(self, fd: int) -> Iterator[Progress]:
        lister = Lister(self.root, self.listing)
        try:
            # The known files are checked while git lists.
            submodules = frozenset[bytes]() if self.listing is None else self.listing.submodules
            yield from self._look_at(fd, None, submodules)
            listing = lister.listing(fd)
        finally:
            lister.close()
        if listing is self.listing:
            return
        self.listing = listing
        self.revision += 1
        if listing.paths != self.table.paths:
            self.touched.update(set(self.table.paths) ^ set(listing.paths))
            changed = [self.table.paths[row] for row in self.waiting]
            self.table = self.table.rearranged(listing.paths)
            self.waiting = []
            new = [row for row, ctime in enumerate(self.table.ctimes) if not ctime]
            yield from self._look_at(fd, new, listing.submodules)
            self.waiting = sorted({*self.waiting, *(row for path in changed if (row := self.table.row_of(path)) >= 0)})
        moved = _moved_submodules(self.table, listing)
        self.waiting = sorted({*self.waiting, *moved}) if moved else self.waiting
        self.table.mark(listing.index, is_git=listing.is_git)

    def _look_at(self, fd: int, rows: list[int] | None, submodules: frozenset[bytes]) -> Iterator[Progress]:
        self.waiting = []
        for found in look(self.table, fd, submodules, rows):
            self.waiting += found
            yield Progress(Phase.LISTING, 0, len(self.table))

    def _read(self, reader: ContentReader) -> Iterator[Progress]:
        """Read what has changed, then create a version if contents differ."""
        table, listing = self.table, self.listing
        assert listing is not None
        rows = self.waiting
        self.revision += bool(rows)
        total, until = len(rows), time.monotonic() + _STEP_SECONDS
        for done, row in enumerate(rows):
            path = table.paths[row]
            before = table.blob(row), table.modes[row]
            if path in listing.submodules:
                _put_submodule(table, row, listing.index[path])
            else:
                _put(table, row, reader.take(path, time.time_ns()))
            if (table.blob(row), table.modes[row]) != before:
                self.touched.add(path)
            if time.monotonic() > until:
                self.waiting = rows[done + 1 :]
                yield Progress(Phase.LISTING, done + 1, total)
                until = time.monotonic() + _STEP_SECONDS
        self.waiting = []
        if rows:
            table.mark(listing.index, is_git=listing.is_git, rows=rows)
        self._finish(has_read=bool(rows))

    def _finish(self, *, has_read: bool) -> None:
        table = self.table
        present = len(table) - table.modes.count(0)
        self.untracked = sum(
            1 for mode, flags in zip(table.modes, table.flags, strict=True) if mode and flags & UNTRACKED
        )
        self.files = present - self.untracked
        if self.version is not None and not has_read and not self.touched:
            return
        tree = table.tree()
        if self.version is None or tree != self.version.tree:
            self.version = self.store.add_version(table, tree)
        elif has_read:
            self.store.keep_statuses(table)

    def read_history(self) -> Iterator[Progress]:
        """Ask git for the times of the last commits, unless they are known."""
        if self.listing is None or not self.listing.head or self.listing.head == self.history.head:
            return
        for found in read_history(self.root, self.listing.head):
            if found is not None:
                self.history = found
            yield Progress(Phase.INDEXING, 0, len(self.table))

    def changed_names(self) -> tuple[str, ...]:
        """Name the first files that changed and are not in the version yet."""
        with suppress(IndexError):  # the list belongs to an older state of the table
            return tuple(shown(self.table.paths[row]) for row in self.waiting[:_MOST_NAMED])
        return ()


def _put(table: FileTable, row: int, taken: Taken) -> None:
    """Write the result for a path into its row."""
    status = taken.status
    table.set_blob(row, taken.blob)
    table.set_note(row, taken.note if status is not None else FileNote.NONE)
    table.modes[row] = 0 if status is None else status.st_mode
    table.sizes[row] = 0 if status is None else status.st_size
    table.inodes[row] = 0 if status is None else status.st_ino
    table.mtimes[row] = 0 if status is None else status.st_mtime_ns
    table.ctimes[row] = 0 if status is None or taken.is_fresh else status.st_ctime_ns


def _moved_submodules(table: FileTable, listing: Listing) -> list[int]:
    if not listing.submodules:
        return []
    rows = (row for row, path in enumerate(table.paths) if path in listing.submodules)
    return [row for row in rows if table.blob(row) != listing.index[table.paths[row]]]


def _put_submodule(table: FileTable, row: int, commit: bytes) -> None:
    table.set_blob(row, commit)
    table.set_note(row, FileNote.SUBMODULE)
    table.modes[row] = 0o040000
