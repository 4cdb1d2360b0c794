"""The request and the result of a search of lines."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from rlm_contexts.errors import BadRange
from rlm_ipc.late_dataclasses import dataclass

MAX_MATCHES = 200
"""Maximum number of matches that one call returns; larger requests are clamped."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a pattern is to be read.

    Attributes:
        case_sensitive: upper and lower case differ.
        fixed: the pattern is a plain string.
        word: what it matches begins and ends at a word boundary.
    """

    case_sensitive: bool = False
    fixed: bool = False
    word: bool = False


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search for in a source. Its lines are those of a text, or the items of a sequence, whatever they hold.

    Attributes:
        pattern: for Python's `re`.
        context_lines: how many lines before and after each match to return with it.
        max_matches: the maximum number to return, clamped to MAX_MATCHES.
        seconds: for finding them.
        count_seconds: for counting further matches when there are more.
        start_line: begin here.
        line_chars: longer lines are clipped.
        case_sensitive: upper and lower case differ.
        fixed: the pattern is a plain string.
        word: what it matches begins and ends at a word boundary.
        invert: find the lines that do not match.
        parts: of a text, the first lines of its parts: count the matches of each, in count_seconds.
    """

    pattern: str
    context_lines: int = 0
    max_matches: int = 50
    seconds: float = 10.0
    count_seconds: float = 0.0
    start_line: int = 0
    line_chars: int = 2000
    case_sensitive: bool = False
    fixed: bool = False
    word: bool = False
    invert: bool = False
    parts: tuple[int, ...] = ()

    @property
    def syntax(self) -> Syntax:
        """How the pattern is to be read."""
        return Syntax(self.case_sensitive, self.fixed, self.word)

    def checked(self) -> SearchRequest:
        """Return the request, clamped.  Raises: BadRange."""
        if self.max_matches < 1 or self.context_lines < 0 or self.start_line < 0 or self.line_chars < 1:
            raise BadRange("max_matches and line_chars start at 1, context_lines and start_line at 0")
        if not self.seconds > 0:
            raise BadRange("the time of a search must be more than 0 seconds")
        if any(part < 0 for part in self.parts) or any(a > b for a, b in pairwise(self.parts)):
            raise BadRange("parts begin at line 0 or later, in ascending order")
        return replace(self, max_matches=min(self.max_matches, MAX_MATCHES))


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A matching line.

    Attributes:
        line: its 0-based number, as `peek(line, 1)` takes it.
        text: the line; when it has more than line_chars characters, a part around the match.
        context: the lines around it, itself included, in order; empty when no context was requested. One with more than
            line_chars characters is followed by its length.
        chars: characters of the line.
        context_cut: whether lines around it are cut.
    """

    line: int
    text: str
    context: tuple[str, ...]
    chars: int
    context_cut: bool

    @property
    def clipped(self) -> bool:
        """Whether text is only a part of the line."""
        return len(self.text) < self.chars


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a search.

    Attributes:
        matches: the first matching lines, at most max_matches.
        truncated: more lines match than are in `matches`.
        total: lines known to match, from the start line on.
        exact: no others match; otherwise `total` is a lower bound.
        next_line: where a further search would continue; None when not truncated.
        part_counts: when parts were requested, the lines known to match in each; complete when `exact`.
    """

    matches: tuple[LineMatch, ...]
    truncated: bool
    total: int
    exact: bool
    next_line: int | None
    part_counts: tuple[int, ...] = ()
