"""Literals of which every matching line must hold at least one: a search skips what lies between them.

RE2 looks at every byte; a vectorised search for a few short literals passes over ten times as many in the same time.
So the pattern's tree is searched for strings that no match can do without. For each way to match, a part of them is
chosen that is rare and has few spellings (upper and lower case), and all spellings are searched at once.  The plan then
decides whether the line around a hit matches, unless the pattern is nothing but those literals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product
from operator import itemgetter
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from rlm_contexts.search.charsets import Ranges, equal_ignoring_case
from rlm_contexts.search.translate import scoped
from rlm_ipc.late_dataclasses import dataclass

Spellings = tuple[bytes, ...]
"""The bytes one character of a literal may be."""
Run = tuple[Spellings, ...]
"""Consecutive characters of a literal."""

_MOST = 60  # spellings searched at once: the limit of the vectorised search, less the impossible ones
_FEW = 24  # ... and the limit up to which it is fastest
_MOST_MEMBERS = 4  # of a character set that still counts as a literal
_LONGEST = 6  # characters of a part
_MOST_UNROLLED = 8  # repetitions of a literal that are written out
_MOST_CHOICES = 8  # maximum number that are compared
_COMPARED = 3  # bytes
_TOO_FREQUENT = 1 / 200  # estimated hits per byte from which RE2 alone is faster
# Bytes that UTF-8 never contains. Without them, when the literals begin with few different bytes, the library looks for
# these bytes one by one, several times slower than for all literals at once.
_IMPOSSIBLE = (b"\xf8", b"\xf9", b"\xfa", b"\xfb")
_BY_FREQUENCY = " etaoinsrhldcumfpgwybvkxjqz"  # of English; logs and programs are near enough


@dataclass(frozen=True, slots=True, eq=False)
class Needles:
    """Literals to search for.

    Attributes:
        program: finds them; find_matches_as_indexes(buffer) gives (which, start, stop) of each hit, in order.
        pure: the pattern is these literals: each line with a hit matches.
        choices: alternatives to search for; each a list of runs, one of which every match holds.
    """

    program: BytesAhoCorasick
    pure: bool
    choices: tuple[tuple[Run, ...], ...] = ()

    def tuned(self, sample: bytes) -> Needles:
        """Return the needles that are rarest in a sample of the text to search."""
        lowered = sample.lower()

        def frequency(part: Run) -> float:
            # The search compares the first three bytes of each literal everywhere, the others only where these match.
            start = b"".join(min(spellings).lower() for spellings in part)[:_COMPARED]
            return lowered.count(start) / max(len(sample), 1) + _frequency(part)

        return self if self.pure else _chosen(self.choices, frequency) or self


def needles_for(regex: re.Pattern[str], ascii_text: bool) -> Needles | None:
    """Return the needles of a pattern in texts that are ASCII or not; None when none are worth searching for."""
    nodes = list(parser.parse(regex.pattern, regex.flags))
    try:
        whole = _expanded(nodes, regex.flags, ascii_text)
        if whole is not None:
            return Needles(_program(whole), pure=True)
        found = _Requirements(ascii_text).of(nodes, regex.flags)
    except RecursionError:
        return None
    return _chosen(tuple(map(tuple, sorted(found, key=_frequency_of)[:_MOST_CHOICES])), _frequency)


def _chosen(choices: tuple[tuple[Run, ...], ...], frequency: Callable[[Run], float]) -> Needles | None:
    best: tuple[float, list[Run]] = _TOO_FREQUENT, []
    for runs in choices:
        parts = [min(_parts(run, len(runs)), key=frequency) for run in runs]
        if sum(map(_count, parts)) <= _MOST:
            best = min(best, (sum(map(frequency, parts)), parts), key=itemgetter(0))
    return Needles(_program(best[1]), False, choices) if best[1] else None


def _program(runs: Sequence[Run]) -> BytesAhoCorasick:
    spelled = sorted(set(chain.from_iterable(map(_spelled, runs))))
    shortest = min(map(len, spelled))
    spelled += [byte * min(shortest, 3) for byte in _IMPOSSIBLE]
    return BytesAhoCorasick(spelled, matchkind=MatchKind.LeftmostFirst)


def _spelled(run: Run) -> Iterator[bytes]:
    return map(b"".join, product(*run))


def _count(run: Run) -> int:
    return math.prod(map(len, run))


def _expanded(nodes: Sequence[Any], flags: int, ascii_text: bool) -> list[Run] | None:
    """Return all literals that a purely literal pattern stands for; None for other patterns, or too many."""
    runs: list[Run] = [()]
    for kind, value in nodes:
        further = _expanded_node(kind, value, flags, ascii_text)
        if further is None:
            return None
        runs = [before + after for before in runs for after in further]
        if sum(map(_count, runs)) > _MOST:
            return None
    return runs if all(b"\r" not in spellings for run in runs for spellings in run) and all(runs) else None


def _expanded_node(kind: Any, value: Any, flags: int, ascii_text: bool) -> list[Run] | None:
    if kind is op.SUBPATTERN:
        _, added, removed, body = value
        return _expanded(list(body), scoped(flags, added, removed), ascii_text)
    if kind is op.BRANCH:
        branches = [_expanded(list(branch), flags, ascii_text) for branch in value[1]]
        return None if None in branches else [run for branch in branches for run in branch or ()]
    spellings = _spellings(kind, value, flags, ascii_text)
    return [(spellings,)] if spellings else None


class _Requirements:
    """Walks a pattern's tree and collects, for each place in it, the runs one of which every match holds."""

    def __init__(self, ascii_text: bool) -> None:
        self._ascii_text = ascii_text
        self._run: Run = ()
        self._found: list[list[Run]] = []

    def of(self, nodes: Sequence[Any], flags: int) -> list[list[Run]]:
        """Return the choices; none when a match may do without any literal."""
        self._walk(nodes, flags)
        self._end_run()
        return self._found

    def _walk(self, nodes: Sequence[Any], flags: int) -> None:
        for kind, value in nodes:
            spellings = _spellings(kind, value, flags, self._ascii_text)
            if spellings:
                self._run += (spellings,)
            elif kind is op.SUBPATTERN:
                _, added, removed, body = value
                self._walk(list(body), scoped(flags, added, removed))
            elif kind is op.ATOMIC_GROUP:
                self._walk(list(value), flags)
            elif kind in {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}:
                self._repeat(value, flags)
            elif kind is op.BRANCH:
                self._branch(value[1], flags)
            elif kind not in {op.AT, op.ASSERT, op.ASSERT_NOT}:  # these take no characters: the run continues
                self._end_run()

    def _repeat(self, value: Any, flags: int) -> None:
        low, high, body = value
        for _ in range(min(low, _MOST_UNROLLED)):
            self._walk(list(body), flags)
        if low != high or low > _MOST_UNROLLED:
            self._end_run()

    def _branch(self, branches: Sequence[Any], flags: int) -> None:
        self._end_run()
        each = [_Requirements(self._ascii_text).of(list(branch), flags) for branch in branches]
        if all(each):
            self._found.append([run for choices in each for run in min(choices, key=_frequency_of)])

    def _end_run(self) -> None:
        if self._run:
            self._found.append([self._run])
        self._run = ()


def _spellings(kind: Any, value: Any, flags: int, ascii_text: bool) -> Spellings:
    """Return the bytes a node may match, when it is one character of few; otherwise nothing."""
    if kind is op.LITERAL:
        codes = [value]
    elif kind is op.IN and all(member is op.LITERAL for member, _ in value) and len(value) <= _MOST_MEMBERS:
        codes = [code for _, code in value]
    else:
        return ()
    spelled = {spelling for code in codes for spelling in _encoded(code, flags, ascii_text)}
    return tuple(sorted(spelled)) if len(spelled) <= 2 * _MOST_MEMBERS else ()


def _encoded(code: int, flags: int, ascii_text: bool) -> Iterator[bytes]:
    ranges: Ranges = ((code, code),)
    if flags & re.IGNORECASE:
        ranges = equal_ignoring_case(code, flags & (re.IGNORECASE | re.ASCII), ascii_text)
    for first, last in ranges:
        for each in range(first, last + 1):
            if each != 0x0A and not 0xD800 <= each < 0xE000 and (each < 128 or not ascii_text):
                yield chr(each).encode()


def _parts(run: Run, runs: int) -> list[Run]:
    """Return the likely rarest parts of a run that have no more spellings than its share; at least one."""
    share = max(4, min(_FEW, _MOST // runs))
    found = [part for low in range(len(run)) if (part := _part_from(run[low : low + _LONGEST], share))]
    return sorted(found, key=_frequency)[:_MOST_CHOICES] or [run[:1]]


def _part_from(run: Run, share: int) -> Run:
    """Return the longest beginning of a run with at most `share` spellings."""
    return next((run[:high] for high in range(len(run), 0, -1) if _count(run[:high]) <= share), ())


def _frequency_of(runs: Sequence[Run]) -> float:
    return sum(_frequency(_parts(run, len(runs))[0]) for run in runs)


def _frequency(part: Run) -> float:
    """Estimate how often per byte a literal occurs."""
    return math.prod(max(map(_byte_frequency, spellings)) for spellings in part)


def _byte_frequency(spelling: bytes) -> float:
    char = spelling.decode()
    rank = _BY_FREQUENCY.find(char.lower())
    if rank >= 0:
        return 0.12 * 0.87**rank
    return 0.03 if char.isdigit() else 0.01
