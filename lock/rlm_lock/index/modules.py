"""Which file of the project an import means, by the names a file may have and by how near it is."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from zlib import crc32

_PACKAGE_FILES = {"__init__", "index", "mod", "lib", "main", "package-info"}
"""An import of a folder means the file of this name in it."""
_SOURCE_FOLDERS = {"src", "lib"}
_FOLDER_IMPORTS = {".go", ".java", ".cs", ".kt", ".scala"}
"""Languages in which an import may mean all files of a folder."""
_ROOTS = {"crate", "@", "~", "#"}
"""First parts that mean the top of the importer's own package."""
_LONGEST_SUFFIX = 3
_MOST_CANDIDATES = 400
MOST_FILES = 24
"""Maximum number of files that one import may mean."""


def names_of(path: str) -> list[str]:
    """Return the names by which a file may be imported."""
    folder, slash, name = path.rpartition("/")
    base, suffix = posixpath.splitext(name)
    names = [f"{folder}{slash}{base}", path] if suffix else [path]
    if base in _PACKAGE_FILES and folder:
        names.append(folder)
        above, _, last = folder.rpartition("/")
        if last in _SOURCE_FOLDERS and above:
            names.append(above)
    elif suffix in _FOLDER_IMPORTS and folder and not base.endswith("_test"):
        names.append(folder)
    return names


def imports_folders(path: str) -> bool:
    """Return whether an import in this file may mean all files of a folder."""
    return posixpath.splitext(path)[1] in _FOLDER_IMPORTS


def module_terms(path: str) -> set[int]:
    """Return the terms under which a file is found by the last parts of its names."""
    return {_term(parts[-size:]) for parts in _split(path) for size in range(1, min(len(parts), _LONGEST_SUFFIX) + 1)}


def _split(path: str) -> list[list[str]]:
    return [name.split("/") for name in names_of(path)]


def _term(parts: Sequence[str]) -> int:
    return crc32(("\x01" + "/".join(parts)).encode("utf-8", "surrogateescape"))


def import_parts(name: str) -> set[str]:
    """Return the parts of an import by which a file may answer it: a new file of such a name may be what it means."""
    parts = [part for part in name.split("/") if part.strip(".")][-_LONGEST_SUFFIX:]
    return {each for part in parts for each in (part, posixpath.splitext(part)[0])}


class Modules:
    """Resolves imports against the existing files.

    Args:
        lookup: the numbers of the files with a term.
        path_of: the path of a file.
    """

    def __init__(self, lookup: Callable[[int], list[int]], path_of: Callable[[int], str]) -> None:
        self._lookup = lookup
        self._path_of = path_of
        self._found: dict[str, list[tuple[int, int]]] = {}

    def forget(self) -> None:
        """Forget the results, because the files have changed."""
        self._found.clear()

    def resolve(self, importer: str, name: str) -> list[int]:
        """Return the files that an import means; none if it means nothing in the project."""
        if name.startswith("."):
            return self._relative(importer, name)
        parts = [part for part in name.removeprefix("node:").split("/") if part]
        own = bool(parts) and parts[0] in _ROOTS
        if own:
            del parts[0]
        is_python = importer.endswith((".py", ".pyi"))
        if not parts or (is_python and parts[0] in sys.stdlib_module_names and not self._exact("/".join(parts[:1]))):
            return []
        for drop in range(min(_LONGEST_SUFFIX, len(parts))):
            shortened = parts[: len(parts) - drop]
            if drop and len(shortened) < 2 and not own:
                break
            if matching := self._matching("/".join(shortened)):
                return self._nearest(importer, matching)
        return []

    def _relative(self, importer: str, name: str) -> list[int]:
        base = posixpath.normpath(posixpath.join(posixpath.dirname(importer), name))
        if base.startswith(".."):
            return []
        for wanted in (base, posixpath.splitext(base)[0], posixpath.dirname(base)):
            if wanted and wanted != "." and (found := self._exact(wanted)):
                return found[:MOST_FILES]
        return []

    def _exact(self, wanted: str) -> list[int]:
        """Return the files one of whose complete names is ``wanted``."""
        found = self._lookup(_term(wanted.split("/")[-_LONGEST_SUFFIX:]))
        # Each of a file's names begins where its path begins, which is quicker to check.
        return [n for n in found if (path := self._path_of(n)).startswith(wanted) and wanted in names_of(path)]

    def _matching(self, wanted: str) -> list[tuple[int, int]]:
        """Return the matching files, with how many parts of the name their path has."""
        if wanted not in self._found:
            parts = wanted.split("/")
            self._found[wanted] = []
            for size in range(min(len(parts), _LONGEST_SUFFIX), 0, -1):
                numbers = self._lookup(_term(parts[-size:]))
                if len(numbers) > _MOST_CANDIDATES:
                    break
                same = ((n, max(_agreement(have, parts, size) for have in _split(self._path_of(n)))) for n in numbers)
                if found := [(n, count) for n, count in same if count]:
                    best = max(count for _, count in found)
                    self._found[wanted] = [(n, count) for n, count in found if count == best]
                    break
        return self._found[wanted]

    def _nearest(self, importer: str, found: list[tuple[int, int]]) -> list[int]:
        """Return the file nearest to the importer, and its siblings if the name means their folder."""
        if len(found) == 1:
            return [found[0][0]]
        here = importer.split("/")[:-1]

        def distance(number: int) -> tuple[int, int, str]:
            there = self._path_of(number).split("/")
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(here, there[:-1], strict=False)))
            return -common, len(there), "/".join(there)

        ordered = sorted((number for number, _ in found), key=distance)
        nearest = self._path_of(ordered[0])
        if not imports_folders(nearest):
            return ordered[:1]
        folder = posixpath.dirname(nearest)
        return [n for n in ordered if posixpath.dirname(self._path_of(n)) == folder][:MOST_FILES]


def _agreement(have: list[str], wanted: list[str], size: int) -> int:
    """Return how many parts of an imported name a file's name has, or 0 if the name does not mean it.

    The last ``size`` parts have to match. The others have to be in the path too, in order: `pkg/src/a.ts` is imported
    as `pkg/a`. A path that is the end of the name is imported by where it is published: `example.org/x/pkg`.
    """
    if have[-size:] != wanted[-size:]:
        return 0
    if len(have) <= len(wanted) and have == wanted[-len(have) :]:
        return len(have) if len(have) > 1 or len(wanted) == 1 or "." in wanted[0] else 0
    rest = iter(have[: len(have) - size])
    others = wanted[: len(wanted) - size]
    sought = others[1:] if others and others[0].startswith("@") else others
    return len(wanted) if all(any(_same(part, there) for there in rest) for part in sought) else 0


def _same(part: str, there: str) -> bool:
    return part == there or part.replace("_", "-") == there
