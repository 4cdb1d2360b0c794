"""Which characters a regular-expression atom matches, according to Python's own `re`.

Case folding, Unicode classes and their combinations are not re-implemented: the atom is compiled by `re` and run over
every existing character.  The result is a set of code points that can be given to any other engine literally.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

Ranges = tuple[tuple[int, int], ...]
"""Code points as (first, last) pairs, ascending."""

_SURROGATES = 0xD800
_AFTER_SURROGATES = 0xE000
_ASCII = "".join(map(chr, range(128)))


@lru_cache(maxsize=512)
def matched_by(atom: str, flags: int, ascii_text: bool) -> Ranges:
    """Return the characters that a one-character pattern matches.

    Args: the pattern; re.I and re.A as they apply to it; whether only ASCII characters are of interest.
    """
    found = re.compile(f"(?:{atom})+", flags | re.DOTALL).finditer(_ASCII if ascii_text else _everything())
    return tuple(piece for match in found for piece in _code_points(match.start(), match.end() - 1))


@lru_cache(maxsize=2048)
def equal_ignoring_case(code: int, flags: int, ascii_text: bool) -> Ranges:
    """Return the characters that the literal `code` matches under `flags`, which include re.I."""
    universe = _ASCII if ascii_text else _cased() + chr(code)
    return ranges_of(map(ord, set(re.findall(re.escape(chr(code)), universe, flags))))


def ranges_of(codes: Iterable[int]) -> Ranges:
    """Return single code points as ranges."""
    ranges: list[tuple[int, int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return tuple(ranges)


def _code_points(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield a run of positions in _everything() as code points: the surrogates are not in it."""
    gap = _AFTER_SURROGATES - _SURROGATES
    if last < _SURROGATES:
        yield first, last
    elif first >= _SURROGATES:
        yield first + gap, last + gap
    else:
        yield first, _SURROGATES - 1
        yield _AFTER_SURROGATES, last + gap


@cache
def _everything() -> str:
    """Return all characters that a valid UTF-8 text can hold."""
    codes = array("I", range(_SURROGATES))
    codes.extend(range(_AFTER_SURROGATES, 0x110000))
    return codes.tobytes().decode("utf-32")  # in the machine's own order of bytes, as the array has it


@cache
def _cased() -> str:
    """Return every character that has another case, and those other cases."""
    found: set[str] = set()
    everything = _everything()
    for start in range(0, len(everything), 256):
        block = everything[start : start + 256]
        if block.lower() == block == block.upper() == block.casefold():
            continue
        for char in block:
            cases = {*char.lower(), *char.upper(), *char.title(), *char.casefold()}
            if cases != {char}:
                found |= {char, *cases}
    return "".join(sorted(found))
