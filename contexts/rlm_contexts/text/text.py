"""A text in memory, mapped or private: pages, lines, and the whole as one string."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from rlm_contexts.errors import BadRange
from rlm_contexts.shares import ShownShare, fair_share
from rlm_contexts.text import shared_str
from rlm_contexts.text._native import split
from rlm_contexts.text.ingest import Ingest
from rlm_contexts.text.line_index import LineIndex
from rlm_contexts.text.mapping import Mapping
from rlm_contexts.text.model import StoredText
from rlm_ipc.late_dataclasses import dataclass

MAX_PAGE_LINES = 20_000
"""Maximum number of lines in one page; larger limits are clamped."""
_PIECE = 1 << 17  # bytes decoded at a time: the resulting strings stay in the processor's cache
_FIRST_PIECE = 1 << 12  # bytes of the first piece of an iteration; the next ones grow
_COUNTED = 1 << 20  # bytes whose characters are counted at once
_CARRIAGE_RETURN = 13
_NOT_FIRST = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


@dataclass(frozen=True, slots=True)
class TextPage:
    """Some consecutive lines.

    Attributes:
        text: the lines joined by newlines, without a final one and without carriage returns at line ends.
        offset: number of the first line, 0-based.
        returned: how many lines, the cut one included.
        total_lines: lines of the whole text.
        has_more: lines follow this page.
        next_offset: where the next page starts.
        cut_line: the only line of the page is longer than max_chars, and its end is missing.
    """

    text: str
    offset: int
    returned: int
    total_lines: int
    has_more: bool
    next_offset: int
    cut_line: bool


class Text:
    """An immutable text of valid UTF-8, with its line index.

    The map behind it, and with it the pin on the stored file, lives as long as the text or anything made from it:
    views, lines, pages being read, and the shared string (see `shared_str.release_unused`).
    """

    def __init__(
        self,
        facts: StoredText,
        index: LineIndex,
        *,
        data: Mapping | None = None,
        wide: Mapping | None = None,
    ) -> None:
        """Args: what is known, the bytes and their index; the maps that `content` may share."""
        self.facts, self.index = facts, index
        self.view = index.view
        self._data, self._wide = data, wide

    @classmethod
    def from_bytes(cls, data: bytes) -> Text:
        """Return a private text; invalid UTF-8 is replaced as it is when storing."""
        pieces: list[bytes | bytearray] = []
        ingest = Ingest(pieces.append)
        ingest.feed(data)
        facts, ranks = ingest.finish()
        view = memoryview(b"".join(pieces))
        return cls(StoredText.from_dict(facts.to_dict() | {"digest": ""}), LineIndex(view, ranks))

    def __repr__(self) -> str:
        return f"<Text {self.facts.digest or 'private'}: {self.size:,} bytes, {self.line_count:,} lines>"

    @property
    def size(self) -> int:
        """Bytes of UTF-8."""
        return self.facts.size

    @property
    def line_count(self) -> int:
        """How many lines."""
        return self.facts.line_count

    @cached_property
    def content(self) -> str:
        """Return the whole text as a real string: over the mapped pages where possible, otherwise a private copy."""
        source = self._data if self.facts.ascii else self._wide
        if source is None or self._data is None or self.facts.chars < 2 or not shared_str.available():
            return str(self.view, "utf-8")
        if self.facts.chars * self.facts.unit > source.size or self.size > self._data.size:
            # A string longer than its map would let session code read whatever memory follows it.
            raise ValueError("the text is longer than the map of its file; load the text again")
        encoding = shared_str.encoding_of(self.facts.unit, self.facts.ascii)
        utf8 = (self._data.address, self.size)
        return shared_str.make(source.address, self.facts.chars, encoding, utf8, source, self._data)

    def peek(self, offset: int = 0, limit: int = 2000, max_chars: int | None = None) -> TextPage:
        """Return a page from line `offset` on: at most `limit` lines, clamped to MAX_PAGE_LINES, and `max_chars`.

        At least one line is returned if there is one; it is cut when it alone exceeds `max_chars`. Raises: BadRange.
        """
        check_page(offset, limit, max_chars)
        stop = min(offset + min(limit, MAX_PAGE_LINES), self.line_count)
        if offset >= stop:
            return TextPage("", offset, 0, self.line_count, False, self.line_count, False)
        low, high = self.start_of(offset), self.start_of(stop)
        if max_chars is None or high - low <= max_chars:
            text = "\n".join(split(self.view[low:high], self.facts.crlf))
            return TextPage(text, offset, stop - offset, self.line_count, stop < self.line_count, stop, False)
        # A character takes at most 4 bytes and a carriage return vanishes: this much holds max_chars or the
        # whole page.
        high = self._character_start(low, min(high, low + 8 * max_chars + 8))
        return self._fit("\n".join(split(self.view[low:high], self.facts.crlf)), offset, stop, max_chars)

    def peek_every(self, offset: int, limit: int, max_chars: int) -> list[ShownShare]:
        """Return all lines of a page; the longest are cut so that together they have about `max_chars` characters.

        Raises: BadRange.
        """
        check_page(offset, limit, max_chars)
        stop = min(offset + min(limit, MAX_PAGE_LINES), self.line_count)
        at, bounds = self.start_of(offset), []
        for _ in range(offset, stop):
            end = self.end_of_line(at)
            bounds.append((at, end))
            at = end + 1
        room = max_chars * self.size // max(self.facts.chars, 1)
        share = fair_share((end - start for start, end in bounds), room)
        return [self.clip(start, end, share) for start, end in bounds]

    def clip(self, start: int, stop: int, chars: int, at: int | None = None) -> ShownShare:
        """Return the line between two byte offsets; a longer one is cut to `chars` characters from just before `at`."""
        view = self.view
        stop -= stop > start and view[stop - 1] == _CARRIAGE_RETURN
        length = stop - start if self.facts.ascii else self._chars(start, stop)
        if length <= chars:
            return ShownShare(str(view[start:stop], "utf-8"), length)
        # Decode a window that surely holds enough characters, and ignore partial characters at its ends.
        low = start if at is None else max(start, min(at - chars // 4, stop - chars))
        return ShownShare(str(view[low : min(stop, low + 4 * chars + 4)], "utf-8", "ignore")[:chars], length)

    def decoded(self, start: int, stop: int) -> list[str]:
        """Return lines `start` to `stop` (exclusive, at most line_count) as a list."""
        if start >= stop:
            return []
        return split(self.view[self.start_of(start) : self.start_of(stop)], self.facts.crlf)

    def part(self, start: int, stop: int) -> Text:
        """Return a private text of the lines `start` to `stop` (exclusive)."""
        return Text.from_bytes(bytes(self.view[self.start_of(start) : self.start_of(stop)]))

    def line_chunks(self, start: int, stop: int) -> Iterator[list[str]]:
        """Yield lines `start` to `stop` (exclusive), in lists of about 128 KiB of text each."""
        if start >= stop:
            return
        low, end = self.start_of(start), self.start_of(stop)
        wanted = _FIRST_PIECE  # often the first lines are all that is looked at
        while low < end:
            lines, low = self.stretch(low, end, wanted)
            yield lines
            wanted = min(wanted * 4, _PIECE)

    def stretch(self, low: int, end: int, size: int) -> tuple[list[str], int]:
        """Return about `size` bytes of whole lines between two byte offsets, and the offset after them."""
        high = self.end_of_stretch(low, end, size)
        return split(self.view[low:high], self.facts.crlf), high

    def end_of_stretch(self, low: int, end: int, size: int) -> int:
        """Return the end of the first line that ends at least `size` bytes after `low`, but at most `end`."""
        return end if low + size >= end else min(find_newline(self.view, low + size - 1, end) + 1, end)

    def start_of(self, line: int) -> int:
        """Return the byte offset where a 0-based line starts; the size for one past the last."""
        return self.size if line >= self.line_count else self.index.start_of(line)

    def end_of_line(self, offset: int) -> int:
        """Return the offset of the first newline at or after `offset`, or the size of the text."""
        return find_newline(self.view, offset, self.size)

    def _chars(self, start: int, stop: int) -> int:
        """Return how many characters there are between two byte offsets."""
        pieces = (self.view[low : min(low + _COUNTED, stop)] for low in range(start, stop, _COUNTED))
        return sum(len(bytes(piece).translate(None, _NOT_FIRST)) for piece in pieces)

    def _character_start(self, low: int, offset: int) -> int:
        """Return where the character that holds `offset` starts, not before `low`."""
        while low < offset < self.size and self.view[offset] & 0xC0 == 0x80:
            offset -= 1
        return offset

    def _fit(self, text: str, offset: int, stop: int, max_chars: int) -> TextPage:
        total = self.line_count
        if len(text) <= max_chars:
            return TextPage(text, offset, stop - offset, total, stop < total, stop, False)
        cut = text.rfind("\n", 0, max_chars + 1)
        if cut < 0:
            return TextPage(text[:max_chars], offset, 1, total, offset + 1 < total, offset + 1, True)
        returned = text.count("\n", 0, cut) + 1
        return TextPage(text[:cut], offset, returned, total, True, offset + returned, False)


def check_page(offset: int, limit: int, max_chars: int | None) -> None:
    """Refuse page bounds that make no sense. Raises: BadRange."""
    if offset < 0:
        raise BadRange(f"offset is {offset}; lines are counted from 0")
    if limit < 1:
        raise BadRange(f"limit is {limit}; ask for at least one line")
    if max_chars is not None and max_chars < 1:
        raise BadRange(f"max_chars is {max_chars}; allow at least one character")


def find_newline(view: memoryview, start: int, stop: int) -> int:
    """Return the offset of the first newline in [start, stop), or `stop`."""
    width = 256
    while start < stop:
        found = bytes(view[start : min(start + width, stop)]).find(b"\n")
        if found >= 0:
            return start + found
        start += width
        width = min(width * 4, 1 << 20)
    return stop


def find_line_start(view: memoryview, low: int, offset: int) -> int:
    """Return the start of the line that holds `offset`, not before `low`, which must be a line start."""
    width, high = 256, offset
    while high > low:
        base = max(low, high - width)
        found = bytes(view[base:high]).rfind(b"\n")
        if found >= 0:
            return base + found + 1
        high = base
        width = min(width * 4, 1 << 20)
    return low
