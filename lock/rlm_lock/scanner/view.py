"""A project as the sections see it: the file table, and the files' beginnings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice

from rlm_lock.index.project import ProjectIndex
from rlm_lock.listing.content import MOST_HASHED, ContentReader
from rlm_lock.listing.table import DIRTY, UNTRACKED
from rlm_lock.model import FileEntry, FileNote
from rlm_lock.parsing.secrets import has_secret, redacted
from rlm_lock.scanner.extracts import Extracts
from rlm_lock.scanner.project import Project
from rlm_lock.sections.view import Imported, is_below

_READ = frozenset({FileNote.NONE, FileNote.NOT_PARSED, FileNote.SECRET_TEXT})


class View:
    """Implements `rlm_lock.sections.view.ProjectView`; close it when the section is finished."""

    def __init__(self, project: Project, extracts: Extracts, index: ProjectIndex | None) -> None:
        """Args: a project whose folder exists, and what is known about its files; raises OSError if it is gone."""
        self._project, self._extracts, self._index = project, extracts, index
        self._fd = os.open(project.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._reader = ContentReader(self._fd)

    def close(self) -> None:
        """Close the folder."""
        self._reader.close()
        os.close(self._fd)

    @property
    def root(self) -> str:
        """The top of the project."""
        return os.fsdecode(self._project.root)

    def files(self) -> Iterator[FileEntry]:
        """Return every file that is on disk."""
        table = self._project.table
        for row in table.present():
            yield FileEntry(table.paths[row], table.sizes[row], not table.flags[row] & UNTRACKED)

    def read(self, path: bytes, limit: int) -> bytes | None:
        """Return the beginning of a regular file, with what is probably secret replaced."""
        table = self._project.table
        row = table.row_of(path)
        if row < 0 or not stat.S_ISREG(table.modes[row]):
            return None
        if self._extracts.note(table, row) not in _READ:
            return None
        try:
            fd = self._reader.opened(path)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            data = os.read(fd, MOST_HASHED)
        except OSError:
            return None
        finally:
            os.close(fd)
        if has_secret(data):
            data = redacted(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return data[:limit]

    def imports_of(self, path: bytes) -> Sequence[Imported]:
        """Return what a file imports; empty while it is not parsed."""
        found = self._extracts.extract(path)
        if found is None:
            return ()
        number = None if self._index is None else self._index.number_of(path)
        if self._index is None or number is None:
            return [Imported(name) for name in found.imports]
        targets = self._index.resolve(number, found.imports)
        pairs = zip(found.imports, targets, strict=True)
        return [Imported(name, self._index.path_of(meant[0]) if meant else None) for name, meant in pairs]

    def most_used(self, count: int, below: bytes = b"") -> Sequence[bytes]:
        """Return the files that others use, most used first; empty before there is an index."""
        if self._index is None:
            return ()
        paths = map(self._index.path_of, self._index.popular())
        return list(islice((path for path in paths if is_below(path, below)), count))

    def last_modified(self, path: bytes) -> float | None:
        """Return the time of a file that differs from git's version, otherwise that of its last commit."""
        table = self._project.table
        row = table.row_of(path)
        if row < 0:
            return None
        if table.flags[row] & DIRTY or (self._project.listing is not None and not self._project.listing.is_git):
            return table.mtimes[row] / 1e9
        return self._project.history.times.get(path)
