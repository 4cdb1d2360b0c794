"""How much each file matters: one step from the files being worked on, and by the words of the question.

Nothing here is proportional to the project: terms that very many files have are not read, only looked up for the files
that other terms have found.
"""

from __future__ import annotations

import functools
import math
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.extraction.words import COUNT, HEAD, hash_of, unpack
from rlm_lock.index.modules import imports_folders
from rlm_lock.index.postings import FIELD_SHIFT, Field
from rlm_lock.index.project import Hits, ProjectIndex
from rlm_lock.index.terms import STEM
from rlm_lock.map.question import Sought
from rlm_lock.model import Extract

Scores = dict[int, float]


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each kind of evidence counts. They were chosen on the tuning half of the tasks of bench/lock_quality."""

    # Between the kinds of evidence: each is first normalised to a maximum of 1.
    near: float = 3.0
    words: float = 3.0
    test: float = 1.5
    test_asked: float = 4.0
    prior: float = 0.5
    companion: float = 0.3
    together: float = 2.0
    alike: float = 2.5
    # Neighbours of the focus
    imports: float = 1.0
    importers: float = 0.5
    uses: float = 0.35
    used: float = 0.35
    sibling: float = 0.05
    untrusted: float = 0.15
    # Words
    rarity: float = 1.5
    defined: float = 3.0
    stem: float = 3.0
    folder: float = 0.6
    part: float = 0.8
    head: float = 0.5
    text: float = 1.0
    length: float = 0.35
    common: float = 0.35
    coverage: float = 0.125


WEIGHTS = Weights()
MOST_FOCUS = 12
"""Files of the focus that are considered; a map's time must not grow with all that was touched in a day."""
_MOST_DEFINERS = 8
_MOST_MENTIONS = 256
_MOST_ROWS = 600
"""Maximum postings of a term that are read; of more frequent ones only those of files that other terms have found."""
_MOST_READ = 2_500
"""Maximum postings of a whole question that are read, of texts and of names, those of the rarest terms first."""
_MOST_WEIGHED = 600
"""Maximum files that are weighed by their length and by how many of the words they have: more are never shown."""
_MOST_LOOKED_UP = 300
"""Maximum files that are checked for a term that very many have."""
_MOST_NAMES = 150
_COUNTS = (0.4, 1.0, 1.35, 1.6, 1.8, 1.95, 2.1, 2.2)
"""The value of a word by how often a file has it."""
_MEAN_LENGTH = 150
_TEST_NAME = re.compile(r"(?i:^tests?_|\.test\.|\.spec\.)|^[^.]*(?:(?i:_tests?|_spec)|Tests?|Spec)(?:\.|$)")
_TEST_FOLDERS = {"test", "tests", "spec", "specs", "__tests__"}
_TEST_MARK = re.compile(r"^tests?_|(?:_tests?|_spec|\.tests?|\.spec|tests?|spec)$")


def stem_of(path: str) -> str:
    """Return what the names of a module and of its test have in common."""
    base = posixpath.basename(path)
    stem = (base.rsplit(".", 1)[0] or base).lower() if "." in base else base.lower()
    return _TEST_MARK.sub("", stem) or stem


def is_test(path: str) -> bool:
    """Return whether a file looks like a test, by its name or its folders."""
    folders, _, base = path.rpartition("/")
    return _TEST_NAME.search(base) is not None or not _TEST_FOLDERS.isdisjoint(folders.lower().split("/"))


def rarity_of(count: int, files: int) -> float:
    """Return how much it says that a file has a term that ``count`` files have."""
    return math.log(1 + files / max(count, 1))


def near(
    index: ProjectIndex, focus: Sequence[int], extract_of: Callable[[bytes], Extract | None], weights: Weights
) -> Scores:
    """Return the neighbours of the focus; each of its files counts the same."""
    score: Scores = defaultdict(float)
    for number in focus[:MOST_FOCUS]:
        own: Scores = defaultdict(float)
        extract = extract_of(index.path_of(number)) or Extract()
        imported = _imports(index, number, own, weights)
        _uses(index, number, extract, imported, own, weights)
        _used(index, number, extract, own, weights)
        top = max(own.values(), default=0.0) or 1.0
        for other, value in own.items():
            score[other] += value / top / min(len(focus), MOST_FOCUS)
    return score


def _imports(index: ProjectIndex, number: int, own: Scores, weights: Weights) -> set[int]:
    """Add the files that a file imports; files that one import of a folder means share its value."""
    imported = index.imports_of(number)
    folders = [posixpath.dirname(index.path_of(n)) for n in imported]
    sizes = Counter(folders) if imports_folders(index.text_of(number)) else {}
    for other, folder in zip(imported, folders, strict=True):
        own[other] += weights.imports / sizes.get(folder, 1) ** 0.5
    return set(imported)


def _uses(
    index: ProjectIndex, number: int, extract: Extract, imported: set[int], own: Scores, weights: Weights
) -> None:
    """Add the files that define what a file mentions."""
    is_beside = index.beside(posixpath.dirname(index.path_of(number)))
    hashes, infos = unpack(extract.words)
    for term, info in zip(hashes, infos, strict=True):
        if not info & COUNT:
            continue
        definers = index.named(term, 3 * _MOST_DEFINERS)
        if not definers:
            continue
        chosen = [d for d in definers if d in imported]
        trust = 1.0
        if not chosen and len(definers) <= _MOST_DEFINERS:
            trust = weights.untrusted
            chosen = [d for d in definers if is_beside(d)] or definers
        if 0 < len(chosen) <= 3:
            gain = weights.uses * trust * _COUNTS[info & COUNT] / len(chosen)
            for other in chosen:
                if other != number:
                    own[other] += gain


def _used(index: ProjectIndex, number: int, extract: Extract, own: Scores, weights: Weights) -> None:
    """Add the files that import a file, and those that mention what it defines."""
    importers = index.importers_of(number)
    trusted = set(importers)
    for other in importers[: 2 * _MOST_ROWS]:
        own[other] += weights.importers
    files = len(index)
    for name in dict.fromkeys(d.name for d in extract.definitions[:_MOST_NAMES]):
        if len(name) < 4:
            continue
        hits = index.hits(hash_of(name))
        if not 0 < hits.size_of(Field.TEXT) <= _MOST_MENTIONS:
            continue
        definers = hits.size_of(Field.DEFINED) or 1
        gain = weights.used * rarity_of(hits.count, files) / rarity_of(1, files) / definers
        for other, info in hits.rows(Field.TEXT):
            if other != number and info & COUNT:
                own[other] += gain * _COUNTS[info & COUNT] * (1.0 if other in trusted else weights.untrusted)


def words(index: ProjectIndex, sought: Sequence[Sought], weights: Weights) -> Scores:
    """Return the files that have the words of a question, in their text, names or paths."""
    files = len(index)
    by_word: dict[int, Scores] = {}
    value_of: dict[int, float] = {}
    common: list[tuple[Sought, Hits, float]] = []
    read = names_read = 0
    lookups = [(index.hits(each.term), each) for each in sought]
    for hits, each in sorted(lookups, key=lambda pair: pair[0].count):
        if not hits.count:
            continue
        text = hits.size_of(Field.TEXT) + hits.size_of(Field.DEFINED)
        value = each.weight * rarity_of(max(text, 1), files) ** weights.rarity
        value_of[each.word] = max(value_of.get(each.word, 0.0), value)
        own = by_word.setdefault(each.word, {})
        if names_read < _MOST_READ:
            names_read += _strong(hits, value, own, weights)
        if text <= min(_MOST_ROWS, _MOST_READ - read) and (text <= weights.common * files or text <= 20):
            read += text
            gains = [value * worth for worth in _text_values(weights)]
            for number, info in hits.rows(Field.TEXT):
                gain = gains[info]
                if gain > own.get(number, 0.0):
                    own[number] = gain
        else:
            common.append((each, hits, value))
    return _together(index, by_word, value_of, common, weights)


def _strong(hits: Hits, value: float, own: Scores, weights: Weights) -> int:
    """Add the matches in names, and return how much was read; nothing for a term that is very common in names."""
    read = 0
    for field in (Field.DEFINED, Field.PATH, Field.PART):
        size = hits.size_of(field)
        if not 0 < size <= _MOST_ROWS:
            continue
        read += size
        shared = value / (1 + math.log(size)) if field == Field.DEFINED else value
        gains = [shared * _name_value(field, info, weights) for info in (0, STEM)]
        for number, info in hits.rows(field):
            own[number] = own.get(number, 0.0) + gains[info]
    return read


def _name_value(field: Field, info: int, weights: Weights) -> float:
    if field == Field.PATH:
        return weights.stem if info == STEM else weights.folder
    return weights.defined if field == Field.DEFINED else weights.part


@functools.lru_cache(maxsize=2)
def _text_values(weights: Weights) -> list[float]:
    """Return the value of a word in a text, by the byte of its posting."""
    infos = range(1 << FIELD_SHIFT)
    return [weights.text * _COUNTS[info & COUNT] + (weights.head if info & HEAD else 0.0) for info in infos]


@functools.lru_cache(maxsize=2)
def _length_divisors(weights: Weights) -> list[float]:
    """Return the divisors of scores for the length of a file, by its size in the index."""
    lengths = (max(0.3, 2 ** (size / 8) / _MEAN_LENGTH) for size in range(256))
    return [1 - weights.length + weights.length * length**0.5 for length in lengths]


def _together(
    index: ProjectIndex,
    by_word: dict[int, Scores],
    value_of: dict[int, float],
    common: list[tuple[Sought, Hits, float]],
    weights: Weights,
) -> Scores:
    """Add up the words: shorter files and files with more of the words first."""
    score: Scores = {}
    for own in by_word.values():
        for number, value in own.items():
            score[number] = score.get(number, 0.0) + value
    ordered = sorted(score, key=score.__getitem__, reverse=True)[:_MOST_WEIGHED]
    score = {number: score[number] for number in ordered}
    matched = dict.fromkeys(ordered, 0.0)
    for word, own in by_word.items():
        gain = value_of[word]
        for number in own.keys() & matched.keys():
            matched[number] += gain
    best = sorted(ordered[:_MOST_LOOKED_UP]) if common else []
    worths = _text_values(weights)
    for each, hits, value in common:
        for number, info in hits.infos_of(best, Field.TEXT):
            score[number] += value * worths[info]
            matched[number] += value_of[each.word] * 0.5
    whole = sum(value_of.values()) or 1.0
    divisors = _length_divisors(weights)
    for number, part in matched.items():
        score[number] *= min(1.0, part / whole) ** weights.coverage / divisors[index.size_of(number)]
    return score


def popular(index: ProjectIndex, most: int) -> Scores:
    """Return the files that most others import; the first has 1."""
    numbers = index.popular()[:most]
    top = max((index.in_degree(n) for n in numbers), default=1) or 1
    return {n: math.sqrt(index.in_degree(n) / top) for n in numbers}
