"""The index of a project: opened, kept up to date file by file, and rebuilt when much has changed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from rlm_ipc.environment import HELPER, chosen
from rlm_lock.index.base import stamp_of
from rlm_lock.index.project import ProjectIndex
from rlm_lock.listing.table import FileTable
from rlm_lock.map.past import Past
from rlm_lock.map.project import ProjectMap
from rlm_lock.parsing.keys import parse_key
from rlm_lock.protocol import Phase, Progress
from rlm_lock.scanner.extracts import Extracts, unpacked
from rlm_lock.scanner.places import index_folder, indexed_key
from rlm_lock.scanner.project import Project

_SLICE = 500
_WAIT_SECONDS = 0.05
_LEAST_OVERLAY = 200
_MOST_OVERLAY = 5_000
_SHARE = 20
"""An index is rebuilt when this fraction of the files has changed (one in twenty), within these two limits."""


class Indexing:
    """Keeps the index of a project.

    Attributes:
        index: the present one; None before the first one is built.
        map: the map of the project, which keeps its results while the index stays the same; None without an index.
    """

    def __init__(self, project: Project, store: Path, extracts: Extracts) -> None:
        """Args: the project, the folder of its store, and the extracts of its files."""
        self._project, self._store, self._extracts = project, store, extracts
        self._folder = index_folder(store, project.root)
        self._builder: subprocess.Popen[bytes] | None = None
        self._is_compared = False
        self._has_failed = False
        self._past, self._past_head = Past(), ""
        self.index: ProjectIndex | None = None
        self.map: ProjectMap | None = None
        self._open()

    def close(self) -> None:
        """End the building process."""
        if self._builder is not None:
            self._builder.kill()
            self._builder.wait()
            self._builder = None

    def work(self, touched: set[bytes]) -> Iterator[Progress]:
        """Bring the index up to date with the file table. Args: touched, all files that differ since the last call."""
        self._take_history()
        if self.map is not None and touched:
            self.map.forget()
        if self.index is not None:
            yield from self._update(sorted(touched) if self._is_compared else (yield from self._differing()))
            self._is_compared = True
        total = len(self._project.table)
        bound = min(_MOST_OVERLAY, max(_LEAST_OVERLAY, total // _SHARE))
        if total and not self._has_failed and (self.index is None or self.index.overlay > bound):
            yield from self._build()

    def _open(self) -> None:
        try:
            self.index = ProjectIndex.open(self._folder, self._imports_of)
        except (OSError, ValueError, KeyError):
            self.index = self.map = None
        else:
            self.map = ProjectMap(self.index, self._extracts.packed)
            self.map.past = self._past

    def _take_history(self) -> None:
        """Give the newest commits to maps."""
        history = self._project.history
        if history.head != self._past_head:
            self._past, self._past_head = Past(history.commits), history.head
        if self.map is not None:
            self.map.past = self._past

    def _imports_of(self, path: bytes) -> tuple[str, ...]:
        found = self._extracts.extract(path)
        return () if found is None else found.imports

    def _differing(self) -> Generator[Progress, None, list[bytes]]:
        """Return the paths whose content differs from the indexed one, when the changes are unknown."""
        index, table = self.index, self._project.table
        assert index is not None
        stamps = dict(index.stamps())
        found = []
        for row, path in enumerate(table.paths):
            if row % _SLICE == 0:
                yield Progress(Phase.INDEXING, row, len(table))
            stamp = stamps.pop(path, None)
            wanted = stamp_of(indexed_key(table, row, is_parsed=table.has_text(row))) if table.modes[row] else None
            if stamp != wanted:
                found.append(path)
        return [*stamps, *found]

    def _update(self, touched: Sequence[bytes]) -> Iterator[Progress]:
        index, table = self.index, self._project.table
        assert index is not None
        rows = _rows(table, touched)
        for done, (path, row) in enumerate(zip(touched, rows, strict=True)):
            if done % _SLICE == 0:
                yield Progress(Phase.INDEXING, done, len(touched))
            if row < 0 or not table.modes[row]:
                if index.number_of(path) is not None:
                    index.remove(path)
                continue
            self._update_one(index, table, row)

    def _update_one(self, index: ProjectIndex, table: FileTable, row: int) -> None:
        path, has_text = table.paths[row], table.has_text(row)
        if not index.differs(path, indexed_key(table, row, is_parsed=has_text)):
            return
        extract = unpacked(self._project.store.packed(table.blob(row), parse_key(path)) if has_text else None)
        key = indexed_key(table, row, is_parsed=extract is not None)
        if index.differs(path, key):
            index.update(path, key, extract)

    def _build(self) -> Iterator[Progress]:
        """Build an index in a process of its own, and open it. The old one answers meanwhile."""
        total = len(self._project.table)
        yield Progress(Phase.INDEXING, 0, total)
        # One that was started for an older version continues: later changes are added to its result.
        builder = self._builder = self._builder or self._started()
        if builder is None:
            return
        watch = os.pidfd_open(builder.pid)
        try:
            while not select.select([watch], [], [], _WAIT_SECONDS)[0]:
                yield Progress(Phase.INDEXING, 0, total)
        finally:
            os.close(watch)
        self._builder = None
        self._has_failed = builder.wait() != 0
        if not self._has_failed:
            self._open()
            if self.index is not None:
                yield from self._update((yield from self._differing()))
                self._is_compared = True

    def _started(self) -> subprocess.Popen[bytes] | None:
        version = self._project.version
        if version is None:
            return None
        names = os.fsdecode(self._project.root), str(self._store), str(version.number)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "rlm_lock.scanner.build", *names],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=chosen(HELPER),
            )  # fmt: skip
        except OSError:
            self._has_failed = True
            return None


def _rows(table: FileTable, paths: Sequence[bytes]) -> Iterator[int]:
    """Yield the row of each path; -1 for one that is not listed."""
    known = {path: row for row, path in enumerate(table.paths)} if len(paths) > _SLICE else None
    for path in paths:
        yield table.row_of(path) if known is None else known.get(path, -1)
