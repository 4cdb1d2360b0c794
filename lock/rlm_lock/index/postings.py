"""Which files have a term: one sorted table for up to 32,768 files, read in place from a mapped file.

A term is a hash of 32 bits. Its postings are in four fields, the strongest evidence first, each in the order of files.
A posting is the file's number within its segment, and one byte: the field in its two highest bits, then what `Field`
says.
"""

from __future__ import annotations

import enum
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import BinaryIO

SEGMENT_BITS = 15
SEGMENT_FILES = 1 << SEGMENT_BITS
FIELD_SHIFT = 6
_LARGEST_BITS = 16
_TERMS_TOGETHER = 4
"""A term is looked up among those with the same highest bits, of which there are about two to the power of this."""
_FIRST_OF = tuple(field << FIELD_SHIFT for field in range(5))
_ROW = struct.Struct("<Q")
_FEW = 16
"""Terms of a file in a field that are written one by one."""
_PARTS_BITS = 4
"""Postings are sorted in parts, by the highest bits of their terms: sorting all at once takes too much memory."""


class Field(enum.IntEnum):
    """Where a term occurs."""

    DEFINED = 0
    """The file defines the name; or, for names of modules, it may be imported by that name."""
    PATH = 1
    """A part of the path; the byte is 1 for the file's own name, 0 for its folders."""
    PART = 2
    """A part of a name that the file defines."""
    TEXT = 3
    """A word of the text; the byte is that of `rlm_lock.extraction.words`."""


_MARKED = {field: bytes(info & 0x3F | field << FIELD_SHIFT for info in range(256)) for field in Field}


class PostingsWriter:
    """Collects the postings of one segment's files, then writes them sorted."""

    def __init__(self) -> None:
        self._parts = [bytearray() for _ in range(1 << _PARTS_BITS)]

    def add(self, number: int, field: Field, hashes: array[int], infos: bytes) -> None:
        """Add terms of a file; ``infos`` has a byte for each."""
        if not hashes:
            return
        count = len(hashes)
        if count <= _FEW:  # the columns below would cost more than these rows
            low = field << 24 | number << 8 | field << FIELD_SHIFT
            for term, info in zip(hashes, infos, strict=True):
                self._parts[term >> (32 - _PARTS_BITS)] += _ROW.pack(term << 32 | low | info & 0x3F)
            return
        raw = memoryview(hashes).cast("B")
        # Eight bytes per posting, lowest first: the last sort key comes first.
        rows = bytearray(8 * count)
        rows[0::8] = infos.translate(_MARKED[field])
        rows[1::8] = bytes((number & 0xFF,)) * count
        rows[2::8] = bytes((number >> 8,)) * count
        rows[3::8] = bytes((field,)) * count
        for plane in range(4):
            rows[4 + plane :: 8] = raw[plane::4]
        self._spread(hashes, rows)

    def _spread(self, hashes: array[int], rows: bytearray) -> None:
        """Distribute the rows to the parts; the terms of a call are sorted."""
        start = 0
        for part, rows_of_part in enumerate(self._parts):
            end = bisect_left(hashes, (part + 1) << (32 - _PARTS_BITS), start)
            rows_of_part.extend(rows[8 * start : 8 * end])
            start = end

    def write(self, file: BinaryIO) -> tuple[int, int]:
        """Write the tables, each padded to eight bytes. Return the numbers of terms and postings.

        They are: where the terms with each highest bits begin, terms, where the postings of each begin, files, bytes.
        """
        terms, starts = array("I"), array("I")
        files, infos = bytearray(), bytearray()
        total = 0
        for part in self._parts:
            values = array("Q")
            values.frombytes(part)
            part.clear()
            ordered = array("Q", sorted(values))
            raw = ordered.tobytes()
            infos += raw[0::8]
            numbers = bytearray(2 * len(ordered))
            numbers[0::2], numbers[1::2] = raw[1::8], raw[2::8]
            files += numbers
            keys = bytearray(4 * len(ordered))
            for plane in range(4):
                keys[plane::4] = raw[4 + plane :: 8]
            counted = Counter(memoryview(keys).cast("I"))
            terms.extend(counted)
            starts.extend(total + n for n in accumulate(counted.values(), initial=0) if n < len(ordered))
            total += len(ordered)
        starts.append(total)
        shift = _shift_of(len(terms))
        tops = array("I", (bisect_left(terms, top << shift) for top in range((1 << (32 - shift)) + 1)))
        for table in (tops.tobytes(), terms.tobytes(), starts.tobytes(), files, infos):
            file.write(table)
            file.write(bytes(-len(table) % 8))
        return len(terms), total


class Postings:
    """The postings of one segment, in place in a mapped file."""

    __slots__ = ("_files", "_infos", "_shift", "_starts", "_terms", "_tops", "base")

    def __init__(self, data: memoryview, terms: int, postings: int, base: int) -> None:
        """Read tables that `PostingsWriter.write` wrote; ``base`` is the number of the segment's first file."""
        self.base = base
        self._shift = _shift_of(terms)
        tops, data = _table(data, 4 * ((1 << (32 - self._shift)) + 1))
        hashes, data = _table(data, 4 * terms)
        starts, data = _table(data, 4 * terms + 4)
        files, data = _table(data, 2 * postings)
        self._tops = tops.cast("I")
        self._terms, self._starts, self._files = hashes.cast("I"), starts.cast("I"), files.cast("H")
        self._infos, _ = _table(data, postings)

    def range_of(self, term: int) -> tuple[int, int]:
        """Return where the postings of a term begin and end."""
        top = term >> self._shift
        end = self._tops[top + 1]
        at = bisect_left(self._terms, term, self._tops[top], end)
        if at == end or self._terms[at] != term:
            return 0, 0
        return self._starts[at], self._starts[at + 1]

    def holds(self, number: int) -> bool:
        """Return whether a file belongs to this segment."""
        return 0 <= number - self.base < SEGMENT_FILES

    def ends_of(self, start: int, end: int) -> tuple[int, int, int, int, int]:
        """Return where the postings of a term begin in each field, and where they end."""
        infos = self._infos
        if infos[start] >= _FIRST_OF[Field.TEXT]:  # most terms are only words of texts
            return start, start, start, start, end
        path = bisect_left(infos, _FIRST_OF[Field.PATH], start, end)
        part = bisect_left(infos, _FIRST_OF[Field.PART], path, end)
        return start, path, part, bisect_left(infos, _FIRST_OF[Field.TEXT], part, end), end

    def defined(self, term: int) -> range:
        """Return the positions of a term's postings in the first field."""
        start, end = self.range_of(term)
        if start == end or self._infos[start] >= _FIRST_OF[Field.PATH]:
            return range(0)
        return range(start, bisect_left(self._infos, _FIRST_OF[Field.PATH], start, end))

    def files(self, start: int, end: int) -> list[int]:
        """Return the file of each posting."""
        base = self.base
        return [base + file for file in self._files[start:end]]

    def rows(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the file and the byte of each posting, without the bits of its field."""
        base = self.base
        pairs = zip(self._files[start:end], self._infos[start:end], strict=True)
        return [(base + file, info & 0x3F) for file, info in pairs]

    def infos_of(self, numbers: Iterable[int], start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield those of the files, in ascending order, that are among the postings of one field, with their bytes."""
        base, files, infos = self.base, self._files, self._infos
        at = start
        for number in numbers:
            at = bisect_left(files, number - base, at, end)
            if at == end:
                return
            if files[at] == number - base:
                yield number, infos[at] & 0x3F


def _shift_of(terms: int) -> int:
    """Return how many lower bits of a term are ignored in finding its group."""
    return 32 - min(_LARGEST_BITS, max(0, terms.bit_length() - _TERMS_TOGETHER))


def _table(data: memoryview, size: int) -> tuple[memoryview, memoryview]:
    """Return a table and what follows it."""
    return data[:size], data[size + -size % 8 :]
