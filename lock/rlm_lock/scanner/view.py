"""A project as the sections are made from it: the file table, and the files' beginnings."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from rlm_lock.listing.content import ContentReader
from rlm_lock.model import FileEntry, FileNote
from rlm_lock.scanner.project import Project
from rlm_lock.sections.view import Imported

__all__ = ["View"]

_LONGEST = 4 << 20


class View:
    """Implements `rlm_lock.sections.view.ProjectView`; close it when the section is made."""

    def __init__(self, project: Project) -> None:
        """Args: a project whose folder is there; raises OSError if it has gone."""
        self._project = project
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
            yield table.entry(row)

    def read(self, path: bytes, limit: int) -> bytes | None:
        """Return the beginning of a regular file that holds no secret."""
        table = self._project.table
        row = bisect_left(table.paths, path)
        if row == len(table) or table.paths[row] != path or not stat.S_ISREG(table.modes[row]):
            return None
        if table.note(row) not in (FileNote.NONE, FileNote.LARGE, FileNote.NOT_PARSED):
            return None
        try:
            fd = self._reader.opened(path)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return os.read(fd, min(limit, _LONGEST))
        except OSError:
            return None
        finally:
            os.close(fd)

    def imports_of(self, path: bytes) -> Sequence[Imported]:
        """Return what a file imports; nothing while no file is parsed."""
        return ()

    def most_used(self, count: int, below: bytes = b"") -> Sequence[bytes]:
        """Return the files that others use; nothing while there is no index."""
        return ()

    def last_modified(self, path: bytes) -> float | None:
        """Return the time of a file that differs from what git knows."""
        table = self._project.table
        row = bisect_left(table.paths, path)
        is_changed = row < len(table) and table.paths[row] == path and table.flags[row]
        return table.mtimes[row] / 1e9 if is_changed else None
