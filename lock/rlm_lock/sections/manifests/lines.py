"""Small bounded readers for manifests that are programs or XML: their words are found, nothing is interpreted."""

from __future__ import annotations

from collections.abc import Iterator

_LONGEST_LINE = 2000


def lines_of(source: str, comment: str = "") -> Iterator[str]:
    """Yield the lines without their comments; lines longer than anyone writes are left out."""
    for line in source.splitlines():
        if len(line) <= _LONGEST_LINE:
            yield (line.partition(comment)[0] if comment else line).strip()


def between(source: str, start: str, end: str) -> Iterator[str]:
    """Yield the text between each pair of marks, in one pass."""
    place = 0
    while (begin := source.find(start, place)) >= 0 and (close := source.find(end, begin + len(start))) >= 0:
        yield source[begin + len(start) : close]
        place = close + len(end)


def without(source: str, start: str, end: str) -> str:
    """Return the text without the parts between two marks; an unclosed mark removes the rest."""
    kept: list[str] = []
    place = 0
    while (begin := source.find(start, place)) >= 0:
        kept.append(source[place:begin])
        close = source.find(end, begin + len(start))
        if close < 0:
            return "".join(kept)
        place = close + len(end)
    return "".join(kept) + source[place:]
