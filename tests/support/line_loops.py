"""What the loops over lines in C have to answer, written as plainly as Python allows."""

from __future__ import annotations

from array import array


def split_lines(text: str) -> list[str]:
    """The definition: a line ends at a newline, one carriage return before the end goes."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def split(view: memoryview, crlf: bool) -> list[str]:
    """The lines of UTF-8."""
    text = str(view, "utf-8")
    return split_lines(text) if crlf else text.removesuffix("\n").split("\n") if text else []


def equal_lines(view: memoryview, wanted: bytes, crlf: bool) -> tuple[list[int], int]:
    """Which lines are the one that is wanted, counted from 0, and how many there are."""
    lines = split(view, crlf)
    return [at for at, line in enumerate(lines) if line == wanted.decode()], len(lines)


def ranks(view: memoryview, block: int, rank: int) -> bytes:
    """How many newlines there are up to the end of each whole block, if there are `rank` before the first."""
    ends = range(block, len(view) + 1, block)
    return array("Q", [rank + bytes(view[:end]).count(b"\n") for end in ends]).tobytes()


def line_starts(view: memoryview, starts: array[int], line: int, at: int, ascii: bool) -> tuple[int, int]:
    """Write down where the line after each newline starts, in characters; the next line's and character's number."""
    text = str(view, "utf-8")
    for number, char in enumerate(text, at + 1):
        if char == "\n":
            starts[line] = number
            line += 1
    return line, at + len(text)
