"""Patterns of paths that a hostile repository may have written, matched in bounded time."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

_MOST_STARS = 3
_LONGEST = 500


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern: ``*`` and ``?`` within one name, ``**`` for any number of folders."""
    if len(pattern) > _LONGEST:
        return False
    return _fits(tuple(part for part in pattern.split("/") if part not in ("", ".")), tuple(path.split("/")))


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Walk over the path once, with the set of possible positions in the pattern."""
    places = _opened({0}, pattern)
    for part in parts:
        kept = {place for place in places if place < len(pattern) and pattern[place] == "**"}
        moved = {place + 1 for place in places - kept if place < len(pattern) and _fits_name(pattern[place], part)}
        places = _opened(kept | moved, pattern)
        if not places:
            return False
    return len(pattern) in places


def _opened(places: set[int], pattern: Sequence[str]) -> set[int]:
    """Return the positions with those after each ``**``, which may match nothing."""
    for place in sorted(places):
        after = place
        while after < len(pattern) and pattern[after] == "**":
            after += 1
            places = places | {after}
    return places


def _fits_name(pattern: str, name: str) -> bool:
    """Return whether one name matches: patterns with more stars than anyone writes could take too long."""
    return pattern.count("*") <= _MOST_STARS and fnmatch.fnmatchcase(name, pattern)
