"""The current index of a project: the base on disk, overlaid with what has changed since it was built."""

from __future__ import annotations

import heapq
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_lock.extraction.words import hash_of
from rlm_lock.index.base import INDEX_FILE, Base, stamp_of
from rlm_lock.index.modules import Modules, names_of
from rlm_lock.index.postings import FIELD_SHIFT, SEGMENT_FILES, Field, Postings
from rlm_lock.index.terms import terms_of
from rlm_lock.model import Extract

_MOST_REOPENED = 300
"""Maximum number of files whose imports are resolved again for one new file: more share a word with it by chance."""


@dataclass(slots=True)
class _Changed:
    """What replaces a file's rows in the base."""

    stamp: bytes
    size: int
    imports: tuple[str, ...]
    terms: array[int]


@dataclass(slots=True)
class Hits:
    """The postings of one term, found but not read.

    Attributes:
        ranges: for each segment that has the term: the segment, where each field begins, and where the last ends.
        fresh: postings of changed files.
        void: which base rows are outdated.
        count: how many postings there are, void ones included.
    """

    ranges: list[tuple[Postings, tuple[int, int, int, int, int]]]
    fresh: list[tuple[int, int]]
    void: set[int]
    count: int

    def size_of(self, field: Field) -> int:
        """Return about how many files have the term in a field."""
        count = 0
        for _, ends in self.ranges:
            count += ends[field + 1] - ends[field]
        return count + len(self._fresh_in(field)) if self.fresh else count

    def rows(self, field: Field) -> list[tuple[int, int]]:
        """Return the files that have the term in a field, with the byte of each."""
        found: list[tuple[int, int]] = []
        for segment, ends in self.ranges:
            if ends[field] < ends[field + 1]:
                found += segment.rows(ends[field], ends[field + 1])
        if self.void:
            found = [row for row in found if row[0] not in self.void]
        return found + self._fresh_in(field) if self.fresh else found

    def infos_of(self, numbers: Sequence[int], field: Field) -> Iterator[tuple[int, int]]:
        """Yield those of the files, in ascending order, that have the term in a field, with the byte of each."""
        for segment, ends in self.ranges:
            first = bisect_left(numbers, segment.base)
            last = bisect_left(numbers, segment.base + SEGMENT_FILES, first)
            for number, info in segment.infos_of(numbers[first:last], ends[field], ends[field + 1]):
                if number not in self.void:
                    yield number, info
        if self.fresh:
            sought = set(numbers)
            yield from (row for row in self._fresh_in(field) if row[0] in sought)

    def _fresh_in(self, field: Field) -> list[tuple[int, int]]:
        return [(number, info & 0x3F) for number, info in self.fresh if info >> FIELD_SHIFT == field]


class ProjectIndex:
    """Which files a project has, which contain a term, and which import which.

    A file keeps its number while the index is open. `update` and `remove` take effect at once and cost nothing that
    grows with the project; `overlay` says how many files differ from the base, and so whether to rebuild it.

    Args:
        base: the mapped index.
        imports_of: the imports of a file that is unchanged since the base, from its extract.
    """

    def __init__(self, base: Base, imports_of: Callable[[bytes], tuple[str, ...]]) -> None:
        self.base = base
        self._in_base = len(base)
        self._imports_of = imports_of
        self._changed: dict[int, _Changed] = {}
        self._removed: set[int] = set()
        self._added: dict[bytes, int] = {}
        self._paths: list[bytes] = []
        self._terms: dict[int, list[tuple[int, int]]] = {}
        self._reopened: set[int] = set()
        self._void: set[int] = set()
        self._modules = Modules(self.named, self.text_of)
        self._stale: set[int] = set()
        self._resolved: dict[int, list[int]] = {}
        self._importers: dict[int, set[int]] = {}
        self.revision = 0
        """A number that changes whenever the contents of the index change."""

    @classmethod
    def open(cls, folder: Path, imports_of: Callable[[bytes], tuple[str, ...]]) -> ProjectIndex:
        """Open the index of a folder; OSError or ValueError if there is no readable one."""
        return cls(Base(folder / INDEX_FILE), imports_of)

    # The files

    def __len__(self) -> int:
        return len(self.base) - sum(1 for n in self._removed if n < len(self.base)) + self._living_added()

    def _living_added(self) -> int:
        return len(self._added) - sum(1 for n in self._removed if n >= len(self.base))

    @property
    def overlay(self) -> int:
        """How many files differ from the base: rebuild it when there are many."""
        return len(self._changed) + len(self._removed)

    def number_of(self, path: bytes) -> int | None:
        """Return a file's number, or None if the project has no such file."""
        number = self._added.get(path)
        if number is None:
            number = self.base.number_of(path)
        return None if number is None or number in self._removed else number

    def path_of(self, number: int) -> bytes:
        """Return a file's path."""
        return self.base.path_of(number) if number < self._in_base else self._paths[number - self._in_base]

    def text_of(self, number: int) -> str:
        """Return a file's path as text that can be converted back."""
        return self.path_of(number).decode("utf-8", "surrogateescape")

    def size_of(self, number: int) -> int:
        """Return 8·log2 of the number of distinct words in the file."""
        changed = self._changed.get(number)
        return changed.size if changed else self.base.sizes[number]

    def numbers(self, folder: bytes = b"") -> Iterator[int]:
        """Yield the files below a folder (all without one), in the order of their paths."""
        prefix = folder.rstrip(b"/") + b"/" if folder else b""
        kept = (n for n in self._below(prefix) if n not in self._removed)
        added = sorted(path for path in self._added if path.startswith(prefix))
        if not added:
            return kept
        fresh = (self._added[path] for path in added if self._added[path] not in self._removed)
        return heapq.merge(kept, fresh, key=self.path_of)

    def beside(self, folder: bytes) -> Callable[[int], bool]:
        """Return a test for whether a file is directly in a folder."""
        prefix = folder + b"/" if folder else b""
        below, end = self._below(prefix), len(prefix)

        def is_beside(number: int) -> bool:
            if number < self._in_base and number not in below:
                return False
            path = self.path_of(number)
            return path.startswith(prefix) and path.find(b"/", end) < 0

        return is_beside

    def _below(self, prefix: bytes) -> range:
        """Return the files of the base whose paths begin with a folder and a slash; all without one."""
        last = self.base.place_of(prefix[:-1] + b"0") if prefix else len(self.base)
        return range(self.base.place_of(prefix), last)

    def stamps(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every file with the mark of the indexed content, in the order of the paths."""
        return ((self.path_of(number), self._stamp(number)) for number in self.numbers())

    def _stamp(self, number: int) -> bytes:
        changed = self._changed.get(number)
        return changed.stamp if changed else self.base.stamp(number)

    # Changes

    def differs(self, path: bytes, key: str) -> bool:
        """Return whether a file is not indexed with this content."""
        number = self.number_of(path)
        return number is None or self._stamp(number) != stamp_of(key)

    def update(self, path: bytes, key: str, extract: Extract | None) -> None:
        """Take a file's new content; ``key`` is the key of its extract."""
        self.revision += 1
        number = self.number_of(path)
        if number is None:
            number = self._revive(path)
        else:
            self._drop_terms(number)
        extract = extract or Extract()
        terms = terms_of(path, extract)
        own = array("I")
        for field, hashes, infos in terms.fields:
            own += hashes
            for term, info in zip(hashes, infos, strict=True):
                self._terms.setdefault(term, []).append((number, info & 0x3F | field << FIELD_SHIFT))
        self._changed[number] = _Changed(stamp_of(key), terms.size, extract.imports, own)
        self._void.add(number)
        self._stale.add(number)

    def _revive(self, path: bytes) -> int:
        """Return the number for a file that was not there: its former one if it has had one."""
        number = self._added.get(path)
        if number is None:
            number = self.base.number_of(path)
        if number is None:
            number = len(self.base) + len(self._paths)
            self._paths.append(path)
            self._added[path] = number
        self._removed.discard(number)
        self._modules.forget()
        for name in names_of(path.decode("utf-8", "surrogateescape")):
            hits = self.hits(hash_of(name.rpartition("/")[2]))
            if hits.count <= _MOST_REOPENED:
                self._reopened.update(n for field in Field for n, _ in hits.rows(field))
        self._stale.update(self._changed, self._reopened)
        return number

    def remove(self, path: bytes) -> None:
        """Forget a file that is gone."""
        number = self.number_of(path)
        if number is None:
            return
        self.revision += 1
        self._removed.add(number)
        self._reopened.update(self.importers_of(number))
        self._drop_terms(number)
        self._changed.pop(number, None)
        self._void.add(number)
        self._modules.forget()
        self._stale.update(self._changed, self._reopened, {number})

    def _drop_terms(self, number: int) -> None:
        changed = self._changed.get(number)
        for term in changed.terms if changed else ():
            self._terms[term] = [row for row in self._terms[term] if row[0] != number]

    # Which files have a term

    def hits(self, term: int) -> Hits:
        """Return the postings of a term."""
        ranges: list[tuple[Postings, tuple[int, int, int, int, int]]] = []
        count = 0
        for segment in self.base.segments:
            start, end = segment.range_of(term)
            if start < end:
                ranges.append((segment, segment.ends_of(start, end)))
                count += end - start
        fresh = self._terms.get(term, [])
        return Hits(ranges, fresh, self._void, count + len(fresh))

    def named(self, term: int, most: int = sys.maxsize) -> list[int]:
        """Return the files that define a name, or may be imported by it; none if there are more than ``most``."""
        found, void = self.base.named(term, most), self._void
        if void:
            found = [n for n in found if n not in void]
        if fresh := self._terms.get(term):
            found += (n for n, info in fresh if info >> FIELD_SHIFT == Field.DEFINED)
        return found

    # Which files import which

    def resolve(self, number: int, imports: Iterable[str]) -> list[list[int]]:
        """Return the files that each of a file's imports means."""
        importer = self.text_of(number)
        return [self._modules.resolve(importer, name) for name in imports]

    def imports_of(self, number: int) -> list[int]:
        """Return the files that a file imports, in the order of their numbers."""
        loose = self._loose()
        if number in loose:
            return loose[number]
        base = self.base
        if number >= len(base):
            return []
        return [n for n in base.targets[base.starts[number] : base.starts[number + 1]] if n not in self._removed]

    def importers_of(self, number: int) -> list[int]:
        """Return the files that import a file, in the order of their numbers."""
        loose, base = self._loose(), self.base
        found: list[int] = []
        if number < len(base):
            sources = base.sources[base.into[number] : base.into[number + 1]]
            found = [n for n in sources if n not in loose and n not in self._removed]
        return sorted({*found, *self._importers.get(number, ())}) if loose else found

    def in_degree(self, number: int) -> int:
        """Return how many files import a file."""
        if not self._void:
            return self.base.into[number + 1] - self.base.into[number]
        return len(self.importers_of(number))

    def popular(self) -> list[int]:
        """Return the files that others import, most imported first."""
        base = self.base
        if not self._void:
            return [n for n in base.popular if base.into[n + 1] > base.into[n]]
        found = {n for n in base.popular if n not in self._removed and self.in_degree(n)}
        self._loose()
        found.update(n for n, importers in self._importers.items() if importers and n not in self._removed)
        return sorted(found, key=lambda n: (-self.in_degree(n), self.path_of(n)))

    def _loose(self) -> dict[int, list[int]]:
        """Return the imports of those files whose imports in the base are outdated."""
        while self._stale:
            number = self._stale.pop()
            for target in self._resolved.pop(number, ()):
                self._importers[target].discard(number)
            if number in self._removed:
                continue
            changed = self._changed.get(number)
            names = changed.imports if changed else self._imports_of(self.path_of(number))
            targets = sorted({n for found in self.resolve(number, names) for n in found} - {number})
            self._resolved[number] = targets
            for target in targets:
                self._importers.setdefault(target, set()).add(number)
        return self._resolved
