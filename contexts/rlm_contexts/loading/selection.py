"""Which files a caller means: a path, several of them, directories, patterns."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlm_contexts.errors import OutOfReach, SourceError, SourceGone
from rlm_contexts.loading.patterns import Pattern
from rlm_contexts.loading.places import PathReach
from rlm_contexts.loading.sources import LoadedSource, put_files, put_place
from rlm_contexts.store.store import ContextStore
from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AskedPath:
    """A path or pattern.

    Attributes:
        given: as the caller wrote it; only wildcards in this part make it a pattern.
        path: absolute. It need not exist.
    """

    given: str
    path: Path


def put_asked(store: ContextStore, asked: Sequence[AskedPath], reach: PathReach, limit: int) -> LoadedSource:
    """Store what paths and patterns stand for: a single file as it is, anything else as one text of many files.

    Args: store, where to; asked, at least one; reach, through which all is opened; limit, the maximum bytes to accept.
    Raises: SourceError when one of them may not or cannot be read, or a pattern matches nothing; TextTooLarge,
        StoreError, and what a helper process may raise.
    """
    if len(asked) == 1 and not _is_pattern(asked[0], reach):
        with reach.opened(asked[0].path) as place:
            if not place.is_folder:
                return replace(put_place(store, place, limit), origin=[str(place.path)])
    selected = _Selection(reach)
    for one in asked:
        selected.add(one)
    left_out = Counter({"not permitted": selected.refused} if selected.refused else {})
    return replace(put_files(store, selected.paths, reach, limit, left_out), origin=selected.origin)


class _Selection:
    """Files that are to be loaded together.

    Attributes:
        origin: the request, so that it can be repeated.
        paths: what it stands for.
        refused: how many matches of a pattern may not be read.
    """

    def __init__(self, reach: PathReach) -> None:
        self._reach = reach
        self.origin: list[str] = []
        self.paths: list[Path] = []
        self.refused = 0

    def add(self, asked: AskedPath) -> None:
        """Look up what a path or pattern stands for.  Raises: SourceError."""
        if not _is_pattern(asked, self._reach):
            with self._reach.opened(asked.path) as place:
                self.origin.append(str(place.path))
                self.paths.append(place.path)
            return
        pattern_text, parts = asked.given, asked.path.parts
        plain = len(parts) - len(
            Path(os.path.expanduser(pattern_text)).parts
        )  # the folder it is relative to is not a pattern
        first = next(at for at, part in enumerate(parts) if at >= plain and glob.has_magic(part))
        rest = os.sep.join(parts[first:])
        with self._reach.opened(Path(*parts[:first])) as folder:
            self.origin.append(f"{glob.escape(str(folder.path))}{os.sep}{rest}")
            pattern = Pattern(self._reach, rest)
            files = pattern.files(folder)
        self.refused += pattern.refused
        self.paths += files
        if not files:
            raise SourceGone(f"no file matches {pattern_text[:200]!r}", "give a path or a pattern of files")


def _is_pattern(asked: AskedPath, reach: PathReach) -> bool:
    """Whether the request has wildcards, and is not the name of a file or folder.  Raises: OutOfReach."""
    if not glob.has_magic(asked.given):
        return False
    try:
        with reach.opened(asked.path):
            return False
    except OutOfReach:
        raise
    except SourceError:
        return True
