"""The input of a snapshot's sections; the process that scans implements it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.model import FileEntry


@dataclass(frozen=True, slots=True)
class Imported:
    """A module that a file imports.

    Attributes:
        module: as in `rlm_lock.model.Extract.imports`.
        target: the file of the project that it means, see `rlm_lock.index.modules`; None if there is none, or while
            there is no index.
    """

    module: str
    target: bytes | None = None


class ProjectView(Protocol):
    """One version of a project. No request to it runs a program or follows a link."""

    @property
    def root(self) -> str:
        """The top of the project as an absolute path, with surrogate escapes."""

    def files(self) -> Iterator[FileEntry]:
        """Return every file in the order of its path's bytes: listed by git, or neither tracked nor ignored."""

    def read(self, path: bytes, limit: int) -> bytes | None:
        """Return the first ``limit`` bytes of a file.

        Nothing is returned unless it is a regular file of this version, is readable, and its name does not suggest
        secrets. A secret in its text is replaced.
        """

    def imports_of(self, path: bytes) -> Sequence[Imported]:
        """Return what a file imports; empty while it is not parsed."""

    def most_used(self, count: int, below: bytes = b"") -> Sequence[bytes]:
        """Return the files in a folder that others use, most used first; empty before there is an index."""

    def last_modified(self, path: bytes) -> float | None:
        """Return the time of a changed file, otherwise of the last commit that changed it; None if neither is known."""


def folder_below(path: str) -> bytes:
    """Return the folder that a question names, as `is_below` takes it."""
    return os.fsencode(path.strip("/"))


def is_below(path: bytes, folder: bytes) -> bool:
    """Return whether a path is in a folder; all are in the folder without a name."""
    return not folder or path.startswith(folder + b"/")


def top_first(paths: Iterable[bytes]) -> list[bytes]:
    """Return paths in an order in which a limit on their number leaves out the deepest."""
    return sorted(paths, key=lambda path: (path.count(b"/"), path))
