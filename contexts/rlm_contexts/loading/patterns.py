"""The files that a pattern such as ``src/**/*.py`` names, found through descriptors like those of a directory.

Patterns mean what they mean to `glob`, with two differences: ``**`` follows no symbolic link, and ``..`` is allowed
only before the first wildcard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from glob import has_magic
from pathlib import Path

from rlm_contexts.errors import OutOfReach, SourceError
from rlm_contexts.loading.folder import DEEPEST, EntryKind, Look, TooMany
from rlm_contexts.loading.places import PathReach, Place

MOST_MATCHES = 10_000
"""Maximum number of files that a pattern may name."""
_ANY_DEPTH = "**"


class Pattern:
    """The matches below a folder.

    Attributes:
        refused: how many files and folders were encountered that may not be read.
    """

    def __init__(self, reach: PathReach, pattern: str) -> None:
        """Args: what may be read; the pattern, relative to a folder.  Raises: SourceError."""
        self._reach = reach
        self._look = Look(pattern)
        self._parts = tuple(part for part in pattern.split("/") if part not in ("", "."))
        self.refused = 0
        if ".." in self._parts:
            raise SourceError(f"{pattern[:200]!r} has .. after a wildcard", "write the folder out before the wildcard")

    def files(self, folder: Place) -> list[Path]:
        """Return the files below an open folder that match, by their real paths, each once.  Raises: TooMany."""
        found: dict[Path, None] = {}
        for path in sorted(self._matching(folder)):
            if (real := self._file(path)) is not None:
                found[real] = None
        return list(found)

    def _matching(self, folder: Place) -> set[Path]:
        found = set()
        for path in self._below(folder, self._parts, DEEPEST):
            found.add(path)
            if len(found) > MOST_MATCHES:
                raise TooMany(f"more than {MOST_MATCHES:,} files match", "use a narrower pattern")
        return found

    def _file(self, path: Path) -> Path | None:
        try:
            with self._reach.opened(path) as place:
                return None if place.is_folder else place.path
        except OutOfReach:
            self.refused += 1
        except SourceError:  # a link to nothing, or it is gone
            pass
        return None

    def _below(self, folder: Place, parts: tuple[str, ...], levels: int) -> Iterator[Path]:
        first, rest = parts[0], parts[1:]
        if first == _ANY_DEPTH:
            yield from self._at_any_depth(folder, parts, levels)
        elif has_magic(first):
            matches = re.compile(translate(first)).match
            for name, kind in self._entries(folder):
                if matches(name) and (first.startswith(".") or not name.startswith(".")):
                    yield from self._inside(folder, name, kind, rest, levels)
        else:
            yield from self._inside(folder, first, EntryKind.LINK, rest, levels)

    def _at_any_depth(self, folder: Place, parts: tuple[str, ...], levels: int) -> Iterator[Path]:
        rest = parts[1:]
        if rest and rest[0] == _ANY_DEPTH:
            yield from self._at_any_depth(folder, rest, levels)
            return
        if rest:
            yield from self._below(folder, rest, levels)
        for name, kind in self._entries(folder):
            if name.startswith("."):
                continue
            if kind is EntryKind.FOLDER:
                yield from self._inside(folder, name, kind, parts, levels)
            elif not rest:
                yield folder.path / name

    def _inside(self, folder: Place, name: str, kind: EntryKind, rest: tuple[str, ...], levels: int) -> Iterator[Path]:
        """Yield the matches of the rest within an entry of a folder; the entry itself if there is no rest."""
        path = folder.path / name
        if not rest:
            if kind is not EntryKind.FOLDER:
                yield path
            return
        if kind not in (EntryKind.FOLDER, EntryKind.LINK) or levels == 0:
            return
        try:
            with self._reach.below(folder, name) if kind is EntryKind.FOLDER else self._reach.opened(path) as inner:
                if inner.is_folder:
                    yield from self._below(inner, rest, levels - 1)
        except TooMany:
            raise
        except OutOfReach:
            self.refused += 1
        except SourceError:
            pass

    def _entries(self, folder: Place) -> list[tuple[str, EntryKind]]:
        try:
            return self._look.into(folder)
        except TooMany:
            raise
        except SourceError:  # nobody may list it: glob skips it too
            return []
