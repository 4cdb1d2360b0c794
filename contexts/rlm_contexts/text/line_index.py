"""The text index: from line numbers to byte offsets and back, by a cumulative newline count per block of 16 KiB.

The index takes 8 bytes per block, half a megabyte for a gigabyte of text, and one pass when the text is loaded. An
offset per line would take up to eight times the size of a text with short lines. The price is a search inside one
block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from rlm_contexts.text.model import BLOCK

_SMALL = 512  # bytes; below that, one split is faster than further counting of halves


class LineIndex(NamedTuple):
    """Where the lines of a text start.

    Attributes: view, the text; ranks, for each block the newlines before it, and last the newlines in all.
    """

    view: memoryview
    ranks: Sequence[int]

    @classmethod
    def build(cls, view: memoryview) -> LineIndex:
        """Count the newlines of a text that has no stored index."""
        ranks = array("Q", [0])
        for start in range(0, len(view), BLOCK):
            ranks.append(ranks[-1] + bytes(view[start : start + BLOCK]).count(b"\n"))
        return cls(view, ranks)

    @property
    def newlines(self) -> int:
        """All newlines of the text."""
        return self.ranks[-1]

    def start_of(self, line: int) -> int:
        """Return the byte offset where a 0-based line starts; the text's size for a line past the last newline."""
        if line <= 0:
            return 0
        if line > self.newlines:
            return len(self.view)
        block = bisect_left(self.ranks, line) - 1
        base = block * BLOCK
        return base + _after_newline(bytes(self.view[base : base + BLOCK]), line - self.ranks[block])

    def line_of(self, offset: int) -> int:
        """Return the 0-based line that holds the byte at `offset`; a newline belongs to the line it ends."""
        block = offset // BLOCK
        base = block * BLOCK
        return self.ranks[block] + bytes(self.view[base:offset]).count(b"\n")


def _after_newline(block: bytes, nth: int) -> int:
    """Return the offset just after the nth (1-based) newline of a block, which must have that many."""
    low, high = 0, len(block)
    while high - low > _SMALL:
        middle = (low + high) // 2
        before = block.count(b"\n", low, middle)
        if before >= nth:
            high = middle
        else:
            low, nth = middle, nth - before
    return high - len(block[low:high].split(b"\n", nth)[nth])
