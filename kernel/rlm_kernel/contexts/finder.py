"""Find the lines of a text that match a plan, in order, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .deadline import Deadline
from .plan import UNANCHORED, Plan
from .text import find_line_start, find_newline

_FIRST_BLOCK = 1 << 16  # bytes; the first matches are often near, later blocks grow
_LARGEST_BLOCK = 1 << 22
_NEWLINE = 0x0A


class Found(NamedTuple):
    """A matching line: byte offsets of its start and of its line end, and where in it the match was seen."""

    start: int
    stop: int
    at: int


class Finder:
    """Iterates over matching lines from a byte offset on, which must be the start of a line.

    `position` is the start of the first line not searched yet.  The iteration may be ended and started again.
    """

    def __init__(self, view: memoryview, plan: Plan, position: int, deadline: Deadline) -> None:
        """Args: a text's bytes, the plan for them, where to begin, and until when."""
        self._view, self._plan = view, plan
        self.position, self.deadline = position, deadline
        self._block = _FIRST_BLOCK

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self._view)

    def __iter__(self) -> Iterator[Found]:
        """Raises: Expired."""
        while self.position < len(self._view):
            low = self.position
            high = self._block_end(low)
            found = self._candidates(low, high) if self._plan.program is not None else self._every_line(low, high)
            for line in found:
                self.deadline.check()
                self.position = line.start
                matches = self._plan.exact or self._plan.confirms(self._bare(line))
                self.position = min(line.stop + 1, len(self._view))
                if matches:
                    yield line
            self.position = high
            self.deadline.check()

    def _block_end(self, low: int) -> int:
        size = len(self._view)
        high = min(low + self._block, size)
        self._block = min(self._block * 4, _LARGEST_BLOCK)
        return min(find_newline(self._view, high - 1, size) + 1, size)

    def _candidates(self, low: int, high: int) -> Iterator[Found]:
        block, match = self._view[low:high], self._plan.program.Match  # type: ignore[union-attr]
        size = high - low
        position = 0
        while position < size:
            start, stop = match(UNANCHORED, block, position, size)[0]
            if start < 0 or (start == size and block[size - 1] == _NEWLINE):  # the end of a text is not a line
                return
            line_start = find_line_start(block, position, start)
            line_stop = find_newline(block, stop, size)
            yield Found(low + line_start, low + line_stop, low + start)
            position = line_stop + 1

    def _every_line(self, low: int, high: int) -> Iterator[Found]:
        while low < high:
            stop = find_newline(self._view, low, high)
            yield Found(low, stop, low)
            low = stop + 1

    def _bare(self, line: Found) -> memoryview:
        """The line without the carriage return that belongs to its end."""
        stop = line.stop
        if stop > line.start and self._view[stop - 1] == 0x0D:
            stop -= 1
        return self._view[line.start : stop]
