"""Find the lines of a text that match a plan, in order, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rlm_contexts.search.deadline import Deadline
from rlm_contexts.search.literals import Needles
from rlm_contexts.search.strategy import UNANCHORED, Plan
from rlm_contexts.text.text import find_line_start, find_newline

_FIRST_BLOCK = 1 << 16  # bytes; the first matches are often near, later blocks grow
_LARGEST_BLOCK = 1 << 22
_REFUSAL_BYTES = 1000  # RE2 searches this many bytes in the time that it takes to check and refuse a line with a needle
_WORTH_TUNING = 1 << 20  # bytes left to search for which looking at a sample pays
_SAMPLES, _SAMPLE = 4, 1 << 12  # how many, and bytes of each
_NEWLINE = 0x0A


class FoundSpan(NamedTuple):
    """A matching line: byte offsets of its start and of its line end, and where in it the match was seen."""

    start: int
    stop: int
    at: int


class Finder:
    """Iterates over matching lines from a byte offset on, which must be the start of a line.

    `position` is the start of the first line not searched yet.  The iteration may be stopped and resumed.
    """

    def __init__(self, view: memoryview, plan: Plan, position: int, deadline: Deadline) -> None:
        """Args: a text's bytes, the plan for them, where to begin, and until when."""
        self.view, self._plan = view, plan
        self.position, self.deadline = position, deadline
        self._block = _FIRST_BLOCK
        self._needles, self._tuned = plan.needles, False

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.view)

    def __iter__(self) -> Iterator[FoundSpan]:
        """Raises: Expired."""
        while self.position < len(self.view):
            low = self.position
            high = self._block_end(low)
            lines, certain = self._block_candidates(low, high)
            refused = 0
            for line in lines:
                self.deadline.check()
                self.position = line.start
                matches = certain or self._plan.confirms(self._bare(line))
                self.position = min(line.stop + 1, len(self.view))
                if matches:
                    yield line
                else:
                    refused += 1
            self._review_needles(refused, low, high)
            self.position = high
            self.deadline.check()

    def counts(self) -> Iterator[int]:
        """Yield how many more lines match, as numbers to add up.  Raises: Expired."""
        while self.position < len(self.view) and self._needles is not None and self._needles.pure:
            low = self.position
            high = self._block_end(low)
            yield self._lines_hit(low, high, self._needles)
            self.position = high
            self.deadline.check()
        for _ in self:
            yield 1

    def _block_end(self, low: int) -> int:
        size = len(self.view)
        high = min(low + self._block, size)
        self._block = min(self._block * 4, _LARGEST_BLOCK)
        return min(find_newline(self.view, high - 1, size) + 1, size)

    def _block_candidates(self, low: int, high: int) -> tuple[Iterator[FoundSpan], bool]:
        """Return the lines of a block that may match, and whether they are known to."""
        if self._needles is not None:
            return self._at_needles(low, high, self._needles), self._needles.pure
        if self._plan.program is not None:
            return self._candidates(low, high), self._plan.exact
        return self._every_line(low, high), False

    def _review_needles(self, refused: int, low: int, high: int) -> None:
        """Choose needles that are rare in this text, when much of it is left.

        Those found mostly in other lines are dropped: each refusal costs as much as many bytes.
        """
        if self._needles is None:
            return
        if not self._tuned and len(self.view) - high > _WORTH_TUNING:
            self._tuned = True
            step = len(self.view) // _SAMPLES
            pieces = (self.view[at * step : at * step + _SAMPLE] for at in range(_SAMPLES))
            self._needles = self._needles.tuned(b"".join(pieces))
        elif refused * _REFUSAL_BYTES > high - low and self._plan.program is not None:
            self._needles = None

    def _at_needles(self, low: int, high: int, needles: Needles) -> Iterator[FoundSpan]:
        block, position = self.view[low:high], 0
        for _, start, stop in needles.program.find_matches_as_indexes(block):
            if start >= position:
                line_start = find_line_start(block, position, start)
                line_stop = find_newline(block, stop, high - low)
                yield FoundSpan(low + line_start, low + line_stop, low + start)
                position = line_stop + 1

    def _lines_hit(self, low: int, high: int, needles: Needles) -> int:
        block, size, position, lines = self.view[low:high], high - low, 0, 0
        for _, start, stop in needles.program.find_matches_as_indexes(block):
            if start >= position:
                position = find_newline(block, stop, size)
                lines += 1
        return lines

    def _candidates(self, low: int, high: int) -> Iterator[FoundSpan]:
        block, match = self.view[low:high], self._plan.program.Match  # type: ignore[union-attr]
        size = high - low
        position = 0
        while position < size:
            start, stop = match(UNANCHORED, block, position, size)[0]
            if start < 0 or (start == size and block[size - 1] == _NEWLINE):  # the end of a text is not a line
                return
            line_start = find_line_start(block, position, start)
            line_stop = find_newline(block, stop, size)
            yield FoundSpan(low + line_start, low + line_stop, low + start)
            position = line_stop + 1

    def _every_line(self, low: int, high: int) -> Iterator[FoundSpan]:
        while low < high:
            stop = find_newline(self.view, low, high)
            yield FoundSpan(low, stop, low)
            low = stop + 1

    def _bare(self, line: FoundSpan) -> memoryview:
        """Return the line without the carriage return that belongs to its end."""
        stop = line.stop
        if stop > line.start and self.view[stop - 1] == 0x0D:
            stop -= 1
        return self.view[line.start : stop]


class InvertedFinder:
    """Iterates over the lines that do not match, with the interface of a Finder, which it uses up."""

    def __init__(self, finder: Finder) -> None:
        """Args: a finder whose iteration has not begun."""
        self._finder, self._matches = finder, iter(finder)
        self._pending: FoundSpan | None = None  # the next line that matches, when it is known
        self.position, self.size = finder.position, finder.size

    @property
    def deadline(self) -> Deadline:
        """Until when."""
        return self._finder.deadline

    @deadline.setter
    def deadline(self, deadline: Deadline) -> None:
        self._finder.deadline = deadline

    def __iter__(self) -> Iterator[FoundSpan]:
        """Raises: Expired."""
        while self.position < self.size:
            stop = self._next_match().start
            while self.position < stop:
                self.deadline.check()
                line = FoundSpan(self.position, find_newline(self._finder.view, self.position, stop), self.position)
                self.position = line.stop + 1
                yield line
            self._pass_match()

    def counts(self) -> Iterator[int]:
        """Yield how many more lines do not match, as numbers to add up.  Raises: Expired."""
        while self.position < self.size:
            stop = self._next_match().start
            for low in range(self.position, stop, _LARGEST_BLOCK):
                self.deadline.check()
                yield bytes(self._finder.view[low : min(low + _LARGEST_BLOCK, stop)]).count(b"\n")
            if stop == self.size > self.position and self._finder.view[stop - 1] != _NEWLINE:
                yield 1
            self._pass_match()

    def _next_match(self) -> FoundSpan:
        if self._pending is None:
            self._pending = next(self._matches, FoundSpan(self.size, self.size, self.size))
        return self._pending

    def _pass_match(self) -> None:
        self.position = min(self._next_match().stop + 1, self.size)
        self._pending = None
