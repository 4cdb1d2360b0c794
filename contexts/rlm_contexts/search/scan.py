"""Search a text line by line, exactly as `re.search(pattern, line, re.I)` would, at the speed of RE2.

It works on what a kernel or the daemon has: a Text, a context variable, its lines, a string, or a sequence of strings.
Nothing is copied for the first three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

from rlm_contexts.errors import NotSearchable, ScanTimeout
from rlm_contexts.search.deadline import Deadline, Expired, can_interrupt, interrupting
from rlm_contexts.search.finder import Finder, FoundSpan, InvertedFinder
from rlm_contexts.search.strategy import Plan, compile_pattern, may_backtrack, plan_for, searches
from rlm_contexts.searches import LineMatch, ScanResult, SearchRequest
from rlm_contexts.shares import ShownShare
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.text import Text
from rlm_contexts.view.variable import ContextVariable


def scan(source: Text | ContextVariable | Lines | str | Sequence[str], pattern: str, **options: Any) -> ScanResult:
    """Return the lines on which a regular expression matches, ignoring case by default.

    Args: source, what to search; pattern, for Python's `re`; options, the other fields of a `SearchRequest`.

    Raises: InvalidRegex, BadRange, NotSearchable; ScanTimeout, with the matches found until then.  Outside the main
        thread `re` cannot be interrupted, so a pattern that needs it to backtrack is a ScanTimeout at once:
        see pool.
    """
    return search(source, SearchRequest(pattern, **options).checked())


def search(source: Text | ContextVariable | Lines | str | Sequence[str], request: SearchRequest) -> ScanResult:
    """Do what `scan` does, with a checked request.  Raises: the same, except BadRange."""
    text = as_text(source)
    if text is not None:
        return _scan_text(text, request)
    return _scan_items(source, request)  # type: ignore[arg-type]


def as_text(source: object) -> Text | None:
    """Return the Text behind a source, or a private one made from it; None for other sequences of strings.

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


def _scan_text(text: Text, request: SearchRequest) -> ScanResult:
    plan = plan_for(request.pattern, text.facts.ascii, text.facts.crlf, request.syntax)
    finder = _finder(text.view, plan, request, text.index.start_of(request.start_line), Deadline(request.seconds))
    hits: list[FoundSpan] = []
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


def _finder(
    view: memoryview, plan: Plan, request: SearchRequest, position: int, deadline: Deadline
) -> Finder | InvertedFinder:
    finder = Finder(view, plan, position, deadline)
    return InvertedFinder(finder) if request.invert else finder


def _count_parts(text: Text, plan: Plan, request: SearchRequest) -> tuple[list[int], bool]:
    """Return the matching lines of each part, and whether that is all; a part reaches to the next one, or the end."""
    counts = [0] * len(request.parts)
    bounds = [text.start_of(line) for line in request.parts] + [text.size]
    deadline = Deadline(request.count_seconds)
    try:
        with _guard(plan.backtracks, request.count_seconds):
            for at, (low, high) in enumerate(pairwise(bounds)):
                finder = _finder(text.view[low:high], plan, request, 0, deadline)
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


def _count(finder: Finder | InvertedFinder, plan: Plan, request: SearchRequest) -> tuple[int, bool]:
    """Return the number of matching lines beyond those found, and whether that is all."""
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


def _out_of_time(
    text: Text, hits: list[FoundSpan], finder: Finder | InvertedFinder, request: SearchRequest
) -> ScanResult:
    """Return the result so far. The page may already be full; whether there is more is then not known."""
    matches = tuple(_matches(text, hits, request))
    if len(hits) == request.max_matches:
        return ScanResult(matches, False, len(hits), False, None)
    raise ScanTimeout(request.seconds, matches, text.index.line_of(finder.position))


def _matches(text: Text, hits: list[FoundSpan], request: SearchRequest) -> Iterator[LineMatch]:
    known: dict[int, ShownShare] = {}  # lines around several matches
    for found in hits:
        line = text.index.line_of(found.start)
        near = _around(line, text.line_count, request)
        for at in near:
            if at not in known:
                start = text.index.start_of(at)
                known[at] = text.clip(start, text.end_of_line(start), request.line_chars)
        shown = text.clip(found.start, found.stop, request.line_chars, found.at)
        yield _match(line, shown, [known[at] for at in near])


def _around(line: int, lines: int, request: SearchRequest) -> range:
    """Return the numbers of the lines around a match, itself included; none when none are requested."""
    if not request.context_lines:
        return range(0)
    return range(max(0, line - request.context_lines), min(lines, line + request.context_lines + 1))


def _match(line: int, shown: ShownShare, context: Sequence[ShownShare]) -> LineMatch:
    return LineMatch(line, shown.text, tuple(map(str, context)), shown.chars, any(near.cut for near in context))


def _scan_items(items: Sequence[Any], request: SearchRequest) -> ScanResult:
    """Search items, which are not split: one that holds a newline is searched as it is."""
    regex = compile_pattern(request.pattern, request.syntax)
    deadline = Deadline(request.seconds)
    matches: list[LineMatch] = []
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


def _item_match(items: Sequence[Any], at: int, request: SearchRequest) -> LineMatch:
    near = [_shown(_item(items, number), request) for number in _around(at, len(items), request)]
    return _match(at, _shown(_item(items, at), request), near)


def _shown(item: str, request: SearchRequest) -> ShownShare:
    return ShownShare(item[: request.line_chars], len(item))
