"""The map of a project: which of its files matter for a task and a question."""

from __future__ import annotations

import heapq
import itertools
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.extraction.packing import definitions_in, from_bytes, names_in
from rlm_lock.extraction.words import hash_of, parts_of
from rlm_lock.index.postings import Field
from rlm_lock.index.project import ProjectIndex
from rlm_lock.map import scores
from rlm_lock.map.past import Past
from rlm_lock.map.question import asks_for_tests, terms_of
from rlm_lock.map.scores import WEIGHTS, Weights
from rlm_lock.map.text import Line, text_of
from rlm_lock.model import Definition, Extract
from rlm_lock.names import shown

_MOST_SHOWN = 400
_FEW = 40
"""If nothing else distinguishes them, files are shown in the order of their paths."""
_MOST_WITH_SYMBOLS = 24
_MOST_SYMBOLS = 8
_MOST_NAMED, _MOST_STEMS = 600, 20
"""Files with a word in their path, and those of them with that name, among which a module's tests are searched."""
_MOST_COMPANIONS = 8
_MOST_POPULAR = 300
_MOST_PAST = 100
"""Maximum number of files taken from commits: those of barely related commits do no good."""
_MOST_KEPT, _MOST_NAMES_KEPT = 1_000, 100
"""Files whose names are kept between maps, and names of each: maps show the same files again and again."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A map's text, how many files it names, and which paths of the focus the project does not have."""

    text: str
    files: int
    unknown: tuple[str, ...] = ()


class ProjectMap:
    """Answers from an index, and from the extracts of the few files that are shown.

    Args:
        index: of the project.
        packed_of: the packed extract of a file of the project, or None.
        weights: of the evidence.

    Attributes:
        past: what the newest commits show.
    """

    def __init__(
        self, index: ProjectIndex, packed_of: Callable[[bytes], bytes | None], weights: Weights = WEIGHTS
    ) -> None:
        self.past = Past()
        self._index = index
        self._packed_of = packed_of
        self._weights = weights
        self._prior: dict[int, float] = {}
        self._names: dict[int, dict[tuple[str, int], None]] = {}
        self._known_of = -1

    def show(self, tokens: int, focus: Sequence[str] = (), about: str = "", path: str = "") -> Shown:
        """Return a map of up to ``tokens`` tokens.

        Args:
            tokens: what the text may take.
            focus: paths that are being worked on; they are not shown again.
            about: the question, in words.
            path: a folder to which the map is narrowed.
        """
        touched, unknown = self._touched(focus)
        ordered = self.ranked(touched, about, path, max(20, min(_MOST_SHOWN, tokens // 6)))
        wanted = {part for part in parts_of(about) if len(part) > 2}
        text, files = text_of((self._line(number, place, wanted) for place, number in enumerate(ordered)), tokens)
        return Shown(text, files, tuple(unknown))

    def ranked(self, touched: Sequence[int], about: str = "", path: str = "", most: int = _MOST_SHOWN) -> list[int]:
        """Return the numbers of the files that matter, most important first."""
        index, weights = self._index, self._weights
        score: dict[int, float] = {}
        sought = terms_of(about)
        if self._known_of != index.revision:
            self._prior, self._known_of = scores.popular(index, _MOST_POPULAR), index.revision
            self._names.clear()
        self._add(score, self._prior, weights.prior)
        if touched:
            self._add(score, scores.near(index, touched, self._extract_of, weights), weights.near)
            self._add_tests(score, touched, weights.test_asked if asks_for_tests(about) else weights.test)
            self._add_siblings(score, touched)
            self._add_together(score, touched)
        if sought:
            word_scores = scores.words(index, sought, weights)
            self._add_companions(word_scores)
            self._add(score, word_scores, weights.words)
            alike = self._numbers(self.past.alike(sought))
            # Commits with few of the words count little, even if no other commit has more of them.
            self._add(score, alike, weights.alike * min(1.0, max(alike.values(), default=0.0)))
        folder = path.strip("/").encode("utf-8", "surrogateescape")
        if folder:
            score = {n: s for n, s in score.items() if index.path_of(n).startswith(folder + b"/")}
        if len(score) < _FEW:
            for number in itertools.islice(index.numbers(folder), _MOST_SHOWN):
                score.setdefault(number, 0.0)
        for number in touched:
            score.pop(number, None)
        least = sorted(score.values(), reverse=True)[:most][-1:]
        best = sorted((-round(value, 6), n) for n, value in score.items() if value >= least[0] - 1e-6)[:most]
        by_score: dict[float, list[int]] = {}
        for value, number in best:
            by_score.setdefault(value, []).append(number)
        # Numbers follow the order of paths, except for files that are newer than the index.
        newer = len(index.base)
        for equal in by_score.values():
            if len(equal) > 1 and equal[-1] >= newer:
                equal.sort(key=index.path_of)
        return list(itertools.chain.from_iterable(by_score.values()))

    def forget(self) -> None:
        """Forget the names of files: their contents may have changed."""
        self._names.clear()

    def whole(self, most: int) -> Iterator[str]:
        """Yield a plain map of all files, folder by folder, in about ``most`` bytes; names of files are never cut."""
        index = self._index
        symbols = max(0, most // max(1, len(index)) - 40) // 12
        former = None
        for number in sorted(index.numbers(), key=index.path_of):
            folder, base = posixpath.split(index.text_of(number))
            if folder != former:
                yield f"{shown(folder or '.')}/\n"
                former = folder
            found = self._definitions_of(number)[: min(symbols, 40)] if symbols else ()
            names = " ".join(f"{shown(d.name)}:{d.line}" for d in found)
            yield f" {shown(base)}: {names}\n" if names else f" {shown(base)}\n"

    def _add_together(self, score: dict[int, float], touched: Sequence[int]) -> None:
        """Add what changed together with each file of the focus."""
        focus = touched[: scores.MOST_FOCUS]
        for number in focus:
            together = self._numbers(self.past.together(self._index.path_of(number)))
            self._add(score, together, self._weights.together / len(focus))

    def _numbers(self, found: Mapping[bytes, float]) -> dict[int, float]:
        """Return the files that still exist, by their numbers; if there are very many, the best."""
        best = heapq.nlargest(_MOST_PAST, found.items(), key=lambda item: (item[1], item[0]))
        return {n: value for path, value in best if (n := self._index.number_of(path)) is not None}

    @staticmethod
    def _add(score: dict[int, float], found: dict[int, float], weight: float) -> None:
        """Add one kind of evidence, whose strongest item counts ``weight``."""
        top = max(found.values(), default=0.0)
        for number, value in found.items() if top else ():
            score[number] = score.get(number, 0.0) + weight * value / top

    def _touched(self, focus: Sequence[str]) -> tuple[list[int], list[str]]:
        touched: dict[int, None] = {}
        unknown = []
        for path in focus:
            number = self._index.number_of(path.removeprefix("./").encode("utf-8", "surrogateescape"))
            if number is None:
                unknown.append(path)
            else:
                touched[number] = None
        return list(touched), unknown

    def _add_tests(self, score: dict[int, float], touched: Sequence[int], weight: float) -> None:
        """Add the test of each module, and the module of each test: they share the stem of their name."""
        for number in touched[: scores.MOST_FOCUS]:
            for other in self._companions(number):
                score[other] = score.get(other, 0.0) + weight / len(touched)

    def _add_companions(self, score: dict[int, float]) -> None:
        """Add the tests of the modules that the words found, and the modules of the tests: both change together."""
        best = sorted(score, key=lambda n: (-score[n], n))[:_MOST_COMPANIONS]
        gains = [(other, score[n] * self._weights.companion) for n in best for other in self._companions(n)]
        for number, gain in gains:
            score[number] = score.get(number, 0.0) + gain

    def _companions(self, number: int) -> list[int]:
        """Return the tests of a module, or the modules of a test."""
        index = self._index
        path = index.text_of(number)
        stem = scores.stem_of(path)
        names = (stem, f"test_{stem}", f"{stem}_test", f"{stem}test", f"{stem}tests", f"{stem}_spec", f"{stem}.test")
        found = {n for name in names for n in self._named(name) if scores.stem_of(index.text_of(n)) == stem}
        is_test = scores.is_test(path)
        return sorted(n for n in found - {number} if scores.is_test(index.text_of(n)) != is_test)

    def _named(self, stem: str) -> list[int]:
        hits = self._index.hits(hash_of(stem))
        if not 0 < hits.size_of(Field.PATH) <= _MOST_NAMED:
            return []  # a name that very many files have pairs none of them
        return [n for n, info in hits.rows(Field.PATH) if info][:_MOST_STEMS]

    def _add_siblings(self, score: dict[int, float], touched: Sequence[int]) -> None:
        gain = self._weights.sibling * self._weights.near
        siblings: set[int] = set()
        for folder in {posixpath.dirname(self._index.path_of(n)) for n in touched}:
            siblings.update(filter(self._index.beside(folder), score))
        for number in siblings:
            score[number] += gain

    def _extract_of(self, path: bytes) -> Extract | None:
        packed = self._packed_of(path)
        return None if packed is None else from_bytes(packed)

    def _definitions_of(self, number: int) -> tuple[Definition, ...]:
        packed = self._packed_of(self._index.path_of(number))
        return () if packed is None else definitions_in(packed)

    def _line(self, number: int, place: int, wanted: set[str]) -> Line:
        folder, _, base = self._index.text_of(number).rpartition("/")
        if place >= _MOST_WITH_SYMBOLS:
            return Line(folder, base, ())
        names = self._names.get(number)
        if names is None:
            packed = self._packed_of(self._index.path_of(number))
            if packed is None:
                return Line(folder, base, ())
            names = dict.fromkeys(names_in(packed))
            if len(self._names) >= _MOST_KEPT:
                self._names.clear()
            if len(names) <= _MOST_NAMES_KEPT:
                self._names[number] = names
        return Line(folder, base, _chosen(names, wanted))


def _chosen(names: Collection[tuple[str, int]], wanted: set[str]) -> list[tuple[str, int]]:
    """Return names with a word of the question first, then public names, in the order of the file."""
    if wanted:
        everything = "\n".join(name for name, _ in names).lower()
        wanted = {word for word in wanted if word in everything}
    if not wanted:
        public = list(itertools.islice((name for name in names if name[0][0] != "_"), _MOST_SYMBOLS))
        missing = _MOST_SYMBOLS - len(public)
        return public + list(itertools.islice((name for name in names if name[0][0] == "_"), missing))

    def key(name: tuple[str, int]) -> tuple[int, bool]:
        lower = name[0].lower()
        return -len([word for word in wanted if word in lower]), name[0][0] == "_"

    return sorted(names, key=key)[:_MOST_SYMBOLS]
