"""The words of a text as numbers, through which mentions of definitions and searches for words are found.

A word is a run of letters, digits and underscores, in lower case, as `git grep -i -w` takes it. It is kept as a hash of
32 bits and one byte that says how often it occurs in the file and whether it is among the first lines. Parts of
camelCase and snake_case words of the first lines are kept too, with a count of zero.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise
from zlib import crc32

MOST_WORDS = 2_000
"""Maximum number of different words kept of one file: the most frequent ones, and those of its first lines."""
SHORTEST, LONGEST = 3, 60
COUNT = 0b0111
"""The bits of a word's byte that hold the count: 0 never as a whole word, 1 once, 2 twice, then by powers of two."""
HEAD = 0b1000
"""The bit of a word's byte that marks it as one of the first lines."""
_HEAD_READ, _HEAD_KEPT = 6_000, 1_500
_FIRST = re.compile(rb"[a-z_\x80-\xff]")
_WORD = re.compile(rb"[a-z0-9_\x80-\xff]{3,}")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PARAGRAPH = re.compile(rb"\n[ \t#*/;-]*\n|\*/")
_LICENCE = re.compile(rb"licen[sc]e|copyright|warrant", re.IGNORECASE)


def hash_of(word: str) -> int:
    """Return the number of a word; case does not matter."""
    return crc32(word.encode("utf-8", "surrogateescape").lower())


def words_in(text: str) -> list[str]:
    """Return the words of a short text, such as a question, in order."""
    data = text.encode("utf-8", "replace").lower()
    return [w.decode("utf-8", "replace") for w in _WORD.findall(data) if _FIRST.match(w) and len(w) <= LONGEST]


def parts_of(text: str) -> list[str]:
    """Return the parts of the names in a text, in lower case: `parseHTTPHeader_fast` has four."""
    return [part.lower() for part in _PART.findall(text) if len(part) > 1]


def words_of(data: bytes, without: Iterable[str] = ()) -> bytes:
    """Return the packed words of a text.

    Args:
        data: the text.
        without: names that the file defines, which need no mention.
    """
    counts = Counter(_WORD.findall(data.lower()))
    head = _head_of(data)
    first = dict.fromkeys(_WORD.findall(head.lower()))
    parts = {part.encode() for part in parts_of(head.decode("ascii", "replace")) if len(part) >= SHORTEST}
    defined = {word.encode("utf-8", "replace").lower() for word in without}
    for word in defined:
        counts.pop(word, None)
    if len(counts) > MOST_WORDS:
        counts = Counter(dict(counts.most_common(MOST_WORDS)))
    infos = {crc32(part): HEAD for part in parts - defined if part not in counts}
    for word, count in counts.items():
        if _FIRST.match(word) and len(word) <= LONGEST:
            infos[crc32(word)] = _count_of(count) | (HEAD if word in first or word in parts else 0)
    return pack(sorted(infos.items()))


def _count_of(count: int) -> int:
    return min(COUNT, 1 + (count - 1).bit_length())


def _head_of(data: bytes) -> bytes:
    """Return the first informative lines: every file has the lines of a licence."""
    kept: list[bytes] = []
    size = 0
    for paragraph in _PARAGRAPH.split(data[:_HEAD_READ]):
        if _LICENCE.search(paragraph):
            continue
        kept.append(paragraph[: _HEAD_KEPT - size])
        size += len(kept[-1])
        if size >= _HEAD_KEPT:
            break
    return b"\n".join(kept)


def pack(words: list[tuple[int, int]]) -> bytes:
    """Pack sorted hashes and their bytes: first what compresses, then the three lower bytes of each hash.

    The highest bytes of sorted hashes are kept as differences, which are small. Numbers are little-endian, as on every
    machine that the walls support.
    """
    hashes = array("I", (key for key, _ in words))
    raw = hashes.tobytes()
    highest = raw[3::4]
    steps = bytes([*highest[:1], *(b - a for a, b in pairwise(highest))])
    return b"".join((steps, bytes(info for _, info in words), raw[0::4], raw[1::4], raw[2::4]))


def unpack(words: bytes) -> tuple[array[int], bytes]:
    """Return the sorted hashes, and the byte of each."""
    count = len(words) // 5
    raw = bytearray(4 * count)
    raw[3::4] = bytes(accumulate(words[:count]))
    for plane in range(3):
        raw[plane::4] = words[(2 + plane) * count : (3 + plane) * count]
    hashes = array("I")
    hashes.frombytes(raw)
    return hashes, words[count : 2 * count]


def compressible(words: bytes) -> int:
    """Return how many of the first bytes of packed words are worth compressing."""
    return 2 * (len(words) // 5)
