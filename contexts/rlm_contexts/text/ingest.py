"""One pass over the bytes of a text: make them valid UTF-8, and measure everything that is needed later.

Chunks go in, and normalised bytes go out to a sink. The hash, the newline counts, the character count and the widest
character are found on the way. A chunk of pure ASCII, the usual case, is neither decoded nor copied.
"""

from __future__ import annotations

from array import array
from codecs import utf_8_decode
from collections.abc import Callable

import xxhash

from rlm_contexts.text._native import ranks
from rlm_contexts.text.model import BLOCK, StoredText

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ASTRAL_LEADS = range(0xF0, 0xF5)  # first bytes of characters beyond U+FFFF
# Bytes decoded at a time. glibc takes larger blocks from the system with mmap, which clears fresh pages for each string
# and unmaps them again.
_DECODED = 1 << 15


class Ingest:
    """Feed chunks in order, then call `finish`.  Not reusable, not thread-safe."""

    def __init__(self, sink: Callable[[bytes | bytearray], object]) -> None:
        """Args: sink, called with each normalised piece; it must take all of it before it returns."""
        self._sink = sink
        self._hash = xxhash.xxh3_128()
        self._carry = b""  # the beginning of a character whose rest is in the next chunk
        self._ranks = array("Q", [0])
        self._in_block = 0  # newlines of the unfinished block
        self._size = self._chars = 0
        self._unit, self._ascii, self._crlf = 1, True, False
        self._last = 0  # the last byte so far
        self.replacements = 0
        """Invalid sequences replaced so far; a caller that replaced some itself adds them here."""

    def feed(self, chunk: bytes | bytearray) -> None:
        """Take the next piece of the source, split anywhere."""
        if not self._carry and chunk.isascii():
            self._take(chunk, len(chunk))
        else:
            self._take_wide(self._carry + chunk if self._carry else chunk, final=False)

    def finish(self) -> tuple[StoredText, array[int]]:
        """Return the facts, and the ranks of the line index.  The digest has no collision suffix yet."""
        if self._carry:
            self._take_wide(self._carry, final=True)
        if self._size % BLOCK:
            self._close_block()
        open_end = self._size > 0 and self._last != 0x0A
        facts = StoredText(
            digest=self._hash.hexdigest(), size=self._size, chars=self._chars,
            line_count=self._ranks[-1] + open_end, open_end=open_end, unit=self._unit, ascii=self._ascii,
            crlf=self._crlf or self._last == 0x0D, replacements=self.replacements,
        )  # fmt: skip
        return facts, self._ranks

    def _take_wide(self, data: bytes | bytearray, *, final: bool) -> None:
        """Take bytes that are not all ASCII; the last character stays in `_carry` while it is not complete."""
        try:
            taken, chars = self._measure(data, final)
            body = data if taken == len(data) else data[:taken]
        except UnicodeDecodeError:
            text, taken = utf_8_decode(data, "replace", final)
            body, chars = text.encode(), len(text)
            # EF BF BD is U+FFFD wherever it occurs, so those that were in the source can be told from ours.
            self.replacements += text.count(_REPLACEMENT) - data[:taken].count(_REPLACEMENT.encode())
            self._measure(body, True)
        self._carry = bytes(data[taken:])
        self._take(body, chars)

    def _measure(self, data: bytes | bytearray, final: bool) -> tuple[int, int]:
        """Record how wide the characters are. Return the bytes and the characters of all complete ones."""
        view, position, chars = memoryview(data), 0, 0
        while position < len(data):
            stop = min(position + _DECODED, len(data))
            text, used = utf_8_decode(view[position:stop], "strict", final and stop == len(data))
            if not used:
                break
            chars += len(text)
            if not text.isascii():
                self._ascii = False
                if self._unit == 1 and not _is_latin(text):
                    self._unit = 2
                if self._unit == 2 and any(data.find(lead, position, position + used) >= 0 for lead in _ASTRAL_LEADS):
                    self._unit = 4
            position += used
        return position, chars

    def _take(self, body: bytes | bytearray, chars: int) -> None:
        if not body:
            return
        self._sink(body)
        self._hash.update(body)
        self._chars += chars
        self._crlf = self._crlf or self._has_crlf(body)
        self._count(body)
        self._last = body[-1]

    def _has_crlf(self, body: bytes | bytearray) -> bool:
        return (self._last == 0x0D and body[0] == 0x0A) or (b"\r" in body and b"\r\n" in body)

    def _count(self, body: bytes | bytearray) -> None:
        """Count newlines by block; blocks are aligned to the text, not to the chunks."""
        position = 0
        while position < len(body):
            whole = 0 if self._size % BLOCK else (len(body) - position) // BLOCK * BLOCK
            if whole:
                self._count_whole(body, position, position + whole)
                position += whole
                continue
            stop = min(position + BLOCK - self._size % BLOCK, len(body))
            self._in_block += body.count(b"\n", position, stop)
            self._size += stop - position
            position = stop
            if self._size % BLOCK == 0:
                self._close_block()

    def _count_whole(self, body: bytes | bytearray, start: int, stop: int) -> None:
        self._ranks.frombytes(ranks(memoryview(body)[start:stop], BLOCK, self._ranks[-1]))
        self._size += stop - start

    def _close_block(self) -> None:
        self._ranks.append(self._ranks[-1] + self._in_block)
        self._in_block = 0


def _is_latin(text: str) -> bool:
    """Return whether Python keeps the string in one byte per character."""
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
