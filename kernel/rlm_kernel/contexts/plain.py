"""The inner loops over lines, in Python: what `_native.c` does faster where it could be compiled.

Both answer the same.  Import them from `native`.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, count
from operator import add
from typing import Any, Self

_LONG_LINE = 40  # bytes of a line from which on leaping over it beats looking at each byte


def split_lines(decoded: str, crlf: bool = True) -> list[str]:
    """The lines of whole lines: each ends at a newline, and one carriage return before the end goes too.

    Args: crlf, false when there is none.
    """
    lines = decoded.split("\n")
    if not lines[-1]:
        lines.pop()  # what follows the last newline
    return [line.removesuffix("\r") for line in lines] if crlf and "\r" in decoded else lines


def split(view: memoryview, crlf: bool, large: bool, /) -> list[str]:
    """The lines of whole lines of UTF-8; `large`: their strings had better come in large pages of memory.

    Raises: UnicodeDecodeError.
    """
    return split_lines(str(view, "utf-8"), crlf)


def equal_lines(view: memoryview, wanted: bytes, crlf: bool, /) -> tuple[list[int], int]:
    """Which lines of whole lines of UTF-8 are the one that is wanted, counted from 0, and how many there are."""
    text = bytes(view)
    if wanted not in text:
        return [], text.count(b"\n") + (text[-1:] not in {b"", b"\n"})
    lines = split(view, crlf, False)
    line = wanted.decode()
    return [at for at, each in enumerate(lines) if each == line], len(lines)


def ranks(view: memoryview, block: int, rank: int, /) -> bytes:
    """How many newlines there are up to the end of each block, if there are `rank` before the first.

    Returns: numbers of 8 bytes each in the machine's byte order, for whole blocks.
    """
    found = array("Q")
    newlines = block  # of the last block, which tells how those of the next are counted best
    for at in range(0, len(view) - block + 1, block):
        text = bytes(view[at : at + block])
        # `count` compares byte by byte; `replace` leaps from one to the next, which is faster when they are rare.
        rare = newlines * _LONG_LINE < block
        newlines = block - len(text.replace(b"\n", b"")) if rare else text.count(b"\n")
        rank += newlines
        found.append(rank)
    return found.tobytes()


def line_starts(view: memoryview, starts: array[int], line: int, at: int, ascii: bool, /) -> tuple[int, int]:
    """Write down where the line after each newline starts, in characters.

    Args: whole lines of UTF-8, the array to write to, the number of the line after the first newline, the number of
        the first character, whether all of it is ASCII.
    Returns: the number of the line after the next newline, and of the character after the last one.
    """
    *lengths, rest = map(len, str(view, "utf-8").split("\n"))
    found = array(starts.typecode, map(add, accumulate(lengths), count(at + 1)))
    starts[line : line + len(found)] = found
    return line + len(found), (found[-1] if found else at) + rest


class LineCache:
    """Lines that are answered at once; `_fetch(key)` is asked for all others, and for what is no index."""

    __slots__ = ("_answers", "_cuts")
    _answers: tuple[list[str], int]
    _cuts: tuple[str, memoryview, range, bool] | None

    def __new__(cls, *_: object) -> Self:
        """Nothing is answered yet."""
        made = super().__new__(cls)
        made._answers = [], 0
        made._cuts = None
        return made

    def __getitem__(self, key: Any) -> Any:
        """One line, or what `_fetch` answers."""
        if type(key) is not int or key < 0:  # numbers of numpy wrap around
            return self._fetch(key)
        lines, first = self._answers
        if key >= first:
            try:
                return lines[key - first]
            except IndexError:
                pass
        if self._cuts is None:
            return self._fetch(key)
        content, starts, cut, crlf = self._cuts
        try:
            line = cut[key]
        except IndexError:
            return self._fetch(key)
        found = content[starts[line] : starts[line + 1] - 1]
        return found.removesuffix("\r") if crlf else found

    def _answer(self, lines: list[str], first: int, /) -> None:
        """Answer with the lines of a list from now on, the first of which has the number `first`."""
        self._answers = lines, first

    def _cut_from(self, content: str, starts: array[int], start: int, size: int, crlf: bool, /) -> None:
        """Cut lines that are not cached out of a string from now on; none are cached then.

        Args: the string, where each line of it starts and one after the last would, the first of these lines and how
            many there are, whether some end in a carriage return that is not part of them.
        """
        self._cuts = content, memoryview(starts), range(start, start + size), crlf

    def _fetch(self, key: Any) -> Any:
        raise NotImplementedError
