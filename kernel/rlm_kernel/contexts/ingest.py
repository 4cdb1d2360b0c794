"""One pass over the bytes of a text: make them valid UTF-8, and measure everything there is to know.

Chunks go in, normalised bytes go out to a sink; hash, newline counts, character count and widest character
are kept on the way.  A chunk that is pure ASCII, the usual case, is neither decoded nor copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate

import xxhash

from .model import BLOCK, StoredText

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ASTRAL_LEADS = [bytes((lead,)) for lead in range(0xF0, 0xF5)]  # first bytes of characters beyond U+FFFF


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
            self._take_wide(self._carry + chunk, final=False)

    def finish(self) -> tuple[StoredText, array[int]]:
        """The facts, and the ranks of the line index.  The digest has no collision suffix yet."""
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

    def _take_wide(self, data: bytes, *, final: bool) -> None:
        cut = len(data) if final else _character_boundary(data)
        body, self._carry = data[:cut], data[cut:]
        if not body:
            return
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = body.decode(errors="replace")
            # EF BF BD is U+FFFD wherever it stands, so those that were in the source can be told from ours.
            self.replacements += text.count(_REPLACEMENT) - body.count(_REPLACEMENT.encode())
            body = text.encode()
        self._ascii = self._ascii and text.isascii()
        if self._unit < 4:
            self._unit = max(self._unit, _unit_of(text, body))
        self._take(body, len(text))

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
        """Newlines by block; blocks are aligned to the text, not to the chunks."""
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
        counts = [body.count(b"\n", at, at + BLOCK) for at in range(start, stop, BLOCK)]
        ranks = accumulate(counts, initial=self._ranks[-1])
        next(ranks)
        self._ranks.extend(ranks)
        self._size += stop - start

    def _close_block(self) -> None:
        self._ranks.append(self._ranks[-1] + self._in_block)
        self._in_block = 0


def _unit_of(text: str, encoded: bytes) -> int:
    """Bytes per character of the narrowest Python string that holds `text`: 1, 2 or 4."""
    if any(lead in encoded for lead in _ASTRAL_LEADS):
        return 4
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return 2
    return 1


def _character_boundary(data: bytes) -> int:
    """Where to cut so that no character is split: before a lead byte whose sequence is not complete.

    Cutting before any byte that is not a continuation is always right, also between invalid sequences.
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if wanted > back else len(data)
        if byte < 0x80:
            break
    return len(data)
