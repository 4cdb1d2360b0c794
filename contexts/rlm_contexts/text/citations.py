"""Citations: a span of lines with the hash of its text, and whether a quotation is really there."""

from __future__ import annotations

import re

import re2

from rlm_contexts.errors import BadRange
from rlm_contexts.text.text import Text
from rlm_ipc.late_dataclasses import dataclass

_MOST_LINES = 2000
"""Maximum lines of one citation."""
_LINES = re.compile(r"\s*(\d{1,15})\s*(?:-\s*(\d{1,15})\s*)?")
_RE2 = re2._re2.RE2  # the module's own functions copy every text they search


@dataclass(frozen=True, slots=True)
class Span:
    """Some lines of a text.

    Attributes: hash, the digest of the whole text; first and last, 0-based, both included; text, the lines.
    """

    hash: str
    first: int
    last: int
    text: str

    @property
    def lines(self) -> str:
        """The range as it is written: "12", or "12-15"."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class CitationCheck:
    """Whether a quotation is where it is said to be.

    Attributes:
        stands: it is within the named lines, or anywhere if none were named.
        found: its lines, the first occurrence if several; None when it is nowhere.
    """

    stands: bool
    found: Span | None


def parse_lines(lines: str | int) -> tuple[int, int]:
    """Return first and last line of 12, "12" or "12-15", counted from 0.  Raises: BadRange."""
    match = _LINES.fullmatch(str(lines))
    if match is None:
        raise BadRange(f"lines must be given as 12 or '12-15', counted from 0, not {str(lines)[:80]!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < first + _MOST_LINES:
        raise BadRange(f"lines {first}-{last} are not 1 to {_MOST_LINES:,} lines in ascending order")
    return first, last


def cite(text: Text, lines: str | int) -> Span:
    """Return the span of some lines. Raises: BadRange, also if the text has fewer lines."""
    first, last = parse_lines(lines)
    if last >= text.line_count:
        raise BadRange(f"the text has {text.line_count:,} lines, counted from 0, so there is no line {last}")
    return Span(text.facts.digest, first, last, "\n".join(text.decoded(first, last + 1)))


def check(text: Text, quote: str, lines: str | int | None = None) -> CitationCheck:
    """Look for a quotation, exact except for line ends, in some lines or everywhere.

    Raises: BadRange when there is nothing to look for, or the lines are not a range.
    """
    quotation = quote.replace("\r\n", "\n").strip("\n")
    if not quotation:
        raise BadRange("the quotation is empty; quote at least one character")
    if lines is not None:
        first, last = parse_lines(lines)
        decoded = text.decoded(min(first, text.line_count), min(last + 1, text.line_count))
        at = "\n".join(decoded).find(quotation)
        if at >= 0:
            begin = first + "\n".join(decoded).count("\n", 0, at)
            return CitationCheck(True, cite(text, f"{begin}-{begin + quotation.count(chr(10))}"))
    place = _anywhere(text, quotation)
    return CitationCheck(place is not None and lines is None, place)


def _anywhere(text: Text, wanted: str) -> Span | None:
    options = re2.Options()
    options.literal, options.log_errors = True, False
    spellings = [wanted, wanted.replace("\n", "\r\n")] if text.facts.crlf and "\n" in wanted else [wanted]
    for spelling in spellings:
        program = _RE2(spelling.encode("utf-8", "replace"), options)
        if not program.ok():
            raise BadRange("the quotation is too long to search for; check a part of it")
        start, _ = program.Match(_RE2.Anchor.UNANCHORED, text.view, 0, text.size)[0]
        if start >= 0:
            first = text.index.line_of(start)
            return cite(text, f"{first}-{first + wanted.count(chr(10))}")
    return None
