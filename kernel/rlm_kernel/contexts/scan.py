"""Search a text line by line, exactly as `re.search(pattern, line, re.I)` would, at the speed of RE2.

Works on what a kernel or the daemon has at hand: a Text, a context variable, its lines, a string, or a
sequence of strings.  Nothing is copied for the first three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from .deadline import Deadline, Expired, can_interrupt, interrupting
from .errors import BadRange, NotSearchable, ScanTimeout
from .finder import Finder, Found, InvertedFinder
from .lines import Lines
from .plan import USUAL, Plan, Syntax, compile_pattern, may_backtrack, plan_for, searches
from .text import Text
from .variable import ContextVariable

MAX_MATCHES = 200
"""Most matches one call returns; larger requests are clamped."""


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches.

    Attributes:
        line: its 0-based number, as `peek(line, 1)` takes it.
        text: the line; when it has more than line_chars characters, a part around the match.
        context: the lines around it, itself included, in order; empty when no context was asked for.
        clipped: text is only a part.
    """

    line: int
    text: str
    context: tuple[str, ...] = ()
    clipped: bool = False


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a search found.

    Attributes:
        matches: the first matching lines, at most max_matches.
        truncated: more lines match than are in `matches`.
        total: lines known to match, from the start line on.
        exact: no others match; otherwise `total` is a lower bound.
        next_line: where a further search would go on; None when not truncated.
        part_counts: when parts were asked for, the lines known to match in each; complete when `exact`.
    """

    matches: tuple[Match, ...]
    truncated: bool
    total: int
    exact: bool
    next_line: int | None
    part_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `scan` besides the source; see there."""

    pattern: str
    context_lines: int = 0
    max_matches: int = 50
    seconds: float = 10.0
    count_seconds: float = 0.0
    start_line: int = 0
    line_chars: int = 2000
    syntax: Syntax = USUAL
    invert: bool = False
    parts: tuple[int, ...] = ()

    def checked(self) -> Request:
        """Itself, clamped.  Raises: BadRange."""
        if self.max_matches < 1 or self.context_lines < 0 or self.start_line < 0 or self.line_chars < 1:
            raise BadRange("max_matches and line_chars start at 1, context_lines and start_line at 0")
        if not self.seconds > 0:
            raise BadRange("a search needs more than 0 seconds")
        if any(part < 0 for part in self.parts) or any(a > b for a, b in pairwise(self.parts)):
            raise BadRange("parts begin at line 0 or later, in ascending order")
        return replace(self, max_matches=min(self.max_matches, MAX_MATCHES))


def scan(
    source: Text | ContextVariable | Lines | str | Sequence[str],
    pattern: str,
    *,
    context_lines: int = 0,
    max_matches: int = 50,
    seconds: float = 10.0,
    count_seconds: float = 0.0,
    start_line: int = 0,
    line_chars: int = 2000,
    case_sensitive: bool = False,
    fixed: bool = False,
    word: bool = False,
    invert: bool = False,
    parts: Sequence[int] = (),
) -> ScanResult:
    """The lines on which a regular expression matches, ignoring case unless told otherwise.

    Args:
        source: what to search; the items of a plain sequence are its lines, whatever they contain.
        pattern: for Python's `re`.
        context_lines: how many lines before and after each match to return with it.
        max_matches: return at most so many, clamped to MAX_MATCHES.
        seconds: for finding them.
        count_seconds: for counting further matches when there are more.
        start_line: begin here.
        line_chars: longer lines are clipped.
        case_sensitive: upper and lower case differ.
        fixed: the pattern is a plain string.
        word: what it matches begins and ends at a word boundary.
        invert: find the lines that do not match.
        parts: of a text, the first lines of its parts: count the matches of each, in count_seconds.

    Raises: InvalidRegex, BadRange, NotSearchable; ScanTimeout, with the matches found until then.  Outside
    the main
        thread `re` cannot be interrupted, so a pattern that needs it to backtrack is a ScanTimeout at once:
        see workers.
    """
    request = Request(
        pattern, context_lines, max_matches, seconds, count_seconds, start_line, line_chars,
        Syntax(case_sensitive, fixed, word), invert, tuple(parts),
    ).checked()  # fmt: skip
    text = as_text(source)
    if text is not None:
        return _scan_text(text, request)
    return _scan_items(source, request)  # type: ignore[arg-type]


def as_text(source: object) -> Text | None:
    """The Text behind a source, or a private one made of it; None for other sequences of strings.

    Raises: NotSearchable.
    """
    if isinstance(source, Text):
        return source
    if isinstance(source, ContextVariable):
        return source.text
    if isinstance(source, Lines):
        return source.as_text()
    if isinstance(source, str):
        return Text.from_bytes(source.encode("utf-8", "replace"))
    if isinstance(source, Sequence) and not isinstance(source, (bytes, bytearray, memoryview)):
        return None
    raise NotSearchable(f"a {type(source).__name__} has no lines; use a context, a string or a list of strings")


def _scan_text(text: Text, request: Request) -> ScanResult:
    plan = plan_for(request.pattern, text.facts.ascii, text.facts.crlf, request.syntax)
    finder = _finder(text.view, plan, request, text.index.start_of(request.start_line), request.seconds)
    hits: list[Found] = []
    try:
        with _guard(plan.backtracks, request.seconds):
            hits.extend(islice(finder, request.max_matches))
            more = next(iter(finder), None) is not None
    except Expired:
        return _out_of_time(text, hits, finder, request)
    next_line = text.index.line_of(hits[-1].start) + 1 if more else None
    result = ScanResult(tuple(_matches(text, hits, request)), more, len(hits) + more, True, next_line)
    if request.parts:
        counts, exact = _count_parts(text, plan, request)
        return replace(result, total=max(sum(counts), result.total), exact=exact, part_counts=tuple(counts))
    further, exact = _count(finder, plan, request) if more else (0, True)
    return replace(result, total=result.total + further, exact=exact)


def _finder(view: memoryview, plan: Plan, request: Request, position: int, seconds: float) -> Finder | InvertedFinder:
    finder = Finder(view, plan, position, Deadline(seconds))
    return InvertedFinder(finder) if request.invert else finder


def _count_parts(text: Text, plan: Plan, request: Request) -> tuple[list[int], bool]:
    """Matching lines of each part, and whether these are all; parts reach to the next one, the last to the end."""
    counts = [0] * len(request.parts)
    bounds = [text.start_of(line) for line in request.parts] + [text.size]
    deadline = Deadline(request.count_seconds)
    try:
        with _guard(plan.backtracks, request.count_seconds):
            for at, (low, high) in enumerate(pairwise(bounds)):
                finder = _finder(text.view[low:high], plan, request, 0, request.count_seconds)
                finder.deadline = deadline
                deadline.check()
                for number in finder.counts():
                    counts[at] += number
    except Expired:
        return counts, False
    return counts, True


def _guard(backtracks: bool, seconds: float) -> AbstractContextManager[None]:
    if not backtracks:
        return nullcontext()
    if not can_interrupt():
        raise ScanTimeout(seconds)
    return interrupting(seconds)


def _count(finder: Finder | InvertedFinder, plan: Plan, request: Request) -> tuple[int, bool]:
    """Matching lines beyond those found, and whether that are all."""
    counted = 0
    if request.count_seconds <= 0:
        return 0, finder.position >= finder.size
    finder.deadline = Deadline(request.count_seconds)
    try:
        with _guard(plan.backtracks, request.count_seconds):
            for number in finder.counts():
                counted += number
    except Expired:
        return counted, False
    return counted, True


def _out_of_time(text: Text, hits: list[Found], finder: Finder | InvertedFinder, request: Request) -> ScanResult:
    """The page may be full already; whether there is more is then not known."""
    matches = tuple(_matches(text, hits, request))
    if len(hits) == request.max_matches:
        return ScanResult(matches, False, len(hits), False, None)
    raise ScanTimeout(request.seconds, matches, text.index.line_of(finder.position))


def _matches(text: Text, hits: list[Found], request: Request) -> Iterator[Match]:
    for found in hits:
        line = text.index.line_of(found.start)
        shown, clipped = _clip(text, found, request.line_chars)
        yield Match(line, shown, _context(text, line, request), clipped)


def _clip(text: Text, found: Found, line_chars: int) -> tuple[str, bool]:
    """The line, or line_chars characters of it from a little before the match on."""
    view, start, stop = text.view, found.start, found.stop
    if stop > start and view[stop - 1] == 0x0D:
        stop -= 1
    if stop - start <= 4 * line_chars:  # a character takes at most 4 bytes: a longer line has more of them
        line = str(view[start:stop], "utf-8")
        if len(line) <= line_chars:
            return line, False
    # Decode a window that surely holds enough characters; ignore those cut at its ends.
    low = max(start, min(found.at - line_chars // 4, stop - line_chars))
    return str(view[low : min(stop, low + 4 * line_chars + 4)], "utf-8", "ignore")[:line_chars], True


def _context(text: Text, line: int, request: Request) -> tuple[str, ...]:
    if not request.context_lines:
        return ()
    low, high = max(0, line - request.context_lines), min(text.line_count, line + request.context_lines + 1)
    return tuple(_clip(text, _line(text, at), request.line_chars)[0] for at in range(low, high))


def _line(text: Text, number: int) -> Found:
    start = text.index.start_of(number)
    return Found(start, text.end_of_line(start), start)


def _scan_items(items: Sequence[Any], request: Request) -> ScanResult:
    """Items are not split: one that holds a newline is searched as it is."""
    regex = compile_pattern(request.pattern, request.syntax)
    deadline = Deadline(request.seconds)
    matches: list[Match] = []
    at = request.start_line
    try:
        with _guard(may_backtrack(regex), request.seconds):
            for at in range(request.start_line, len(items)):
                deadline.check()
                if searches(regex, _item(items, at)) == request.invert:
                    continue
                if len(matches) == request.max_matches:
                    return ScanResult(tuple(matches), True, len(matches) + 1, False, matches[-1].line + 1)
                matches.append(_item_match(items, at, request))
    except Expired:
        raise ScanTimeout(request.seconds, tuple(matches), at) from None
    return ScanResult(tuple(matches), False, len(matches), True, None)


def _item(items: Sequence[Any], at: int) -> str:
    item = items[at]
    if not isinstance(item, str):
        raise NotSearchable(
            f"item {at} is a {type(item).__name__}; only strings can be searched: convert them with str()"
        )
    return item


def _item_match(items: Sequence[Any], at: int, request: Request) -> Match:
    low, high = max(0, at - request.context_lines), min(len(items), at + request.context_lines + 1)
    context = tuple(_item(items, near)[: request.line_chars] for near in range(low, high) if request.context_lines)
    item = _item(items, at)
    return Match(at, item[: request.line_chars], context, len(item) > request.line_chars)
