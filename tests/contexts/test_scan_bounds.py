"""Where a search and a page begin and end: each bound met exactly, on a text and on a list of strings alike."""

from collections.abc import Sequence
from typing import Any

import pytest

from rlm_kernel.contexts.errors import BadRange, NotSearchable
from rlm_kernel.contexts.scan import MAX_MATCHES, Match, ScanResult, scan
from rlm_kernel.contexts.text import Text

LINES = [f"line {number} {'x' if number % 2 else 'y'}" for number in range(10)]
"""The odd ones have an x."""


@pytest.fixture(params=["text", "items"])
def source(request: pytest.FixtureRequest) -> Any:
    """The lines, as a text or as a list."""
    return "\n".join(LINES) if request.param == "text" else LINES


def numbers(result: ScanResult) -> list[int]:
    return [match.line for match in result.matches]


def test_a_search_that_is_told_nothing_finds_all_ignoring_case(source) -> None:
    """Whole lines without others around them."""
    result = scan(source, "X$")
    assert result == ScanResult(tuple(Match(at, LINES[at], chars=8) for at in (1, 3, 5, 7, 9)), False, 5, True, None)
    assert scan(source, "X$", case_sensitive=True) == ScanResult((), False, 0, True, None)
    assert numbers(scan(source, "x.", fixed=True)) == []
    assert numbers(scan(source, "x$", invert=True)) == [0, 2, 4, 6, 8]


def test_fifty_matches_are_found_unless_told_otherwise_and_200_at_most() -> None:
    """The request is clamped, and the next page begins after the last match."""
    many = "x\n" * (MAX_MATCHES + 1)
    assert MAX_MATCHES == 200
    assert (len(scan(many, "x").matches), scan(many, "x").next_line) == (50, 50)
    for asked in (200, 201, 10_000):
        assert (len(scan(many, "x", max_matches=asked).matches), scan(many, "x", max_matches=asked).next_line) == (
            200,
            200,
        )
    assert not scan("x\n" * 200, "x", max_matches=1000).truncated


@pytest.mark.parametrize(
    ("most", "found", "next_line"),
    [(1, [1], 2), (4, [1, 3, 5, 7], 8), (5, [1, 3, 5, 7, 9], None), (6, [1, 3, 5, 7, 9], None)],
)
def test_more_is_said_only_when_there_is_more(source, most: int, found: list[int], next_line: int | None) -> None:
    """Of exactly as many as were asked for nothing is said to be left out."""
    result = scan(source, "x$", max_matches=most)
    assert (numbers(result), result.next_line, result.truncated) == (found, next_line, next_line is not None)
    assert result.total == len(found) + result.truncated
    if isinstance(source, str):
        counted = scan(source, "x$", max_matches=most, count_seconds=10.0)
        assert (counted.total, counted.exact) == (5, True)
    if next_line is not None:
        rest = scan(source, "x$", start_line=next_line)
        assert numbers(result) + numbers(rest) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(("start", "found"), [(0, 5), (1, 5), (2, 4), (9, 1), (10, 0), (11, 0), (1000, 0)])
def test_a_search_begins_on_its_first_line(source, start: int, found: int) -> None:
    """And beyond the last there is nothing."""
    result = scan(source, "x$", start_line=start)
    assert (len(result.matches), result.total, result.exact) == (found, found, True)


@pytest.mark.parametrize("around", [0, 1, 2, 20])
def test_the_lines_around_a_match_end_with_the_text(source, around: int) -> None:
    """As many before as after, the match among them; none when none were asked for."""
    for match in scan(source, "line [0459]", context_lines=around).matches:
        near = LINES[max(0, match.line - around) : match.line + around + 1] if around else []
        assert list(match.context) == near


@pytest.mark.parametrize("letter", ["a", "é", "漢", "😀"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\nnext"])
def test_a_line_of_the_greatest_length_is_whole_and_a_longer_one_is_clipped(letter: str, end: str) -> None:
    """Characters are counted, whatever they take in bytes, and a line end is none."""
    for length in (1, 2, 9, 10, 11, 12, 50):
        line = letter * length
        for given in (f"{line}{end}", [line]):
            (match,) = scan(given, f"{letter}$", line_chars=10).matches
            assert (match.clipped, match.chars) == (length > 10, length)
            assert match.text == letter * min(length, 10, len(match.text))
            assert len(match.text) == length if not match.clipped else match.text
            (match,) = scan(given, f"^{letter}", line_chars=10, context_lines=1).matches
            told = f"…[of {length} characters]" if length > 10 else ""
            assert match.context[0] == letter * min(length, 10) + told
            assert match.context_cut is (length > 10)


@pytest.mark.parametrize("letter", ["a", "漢"])
@pytest.mark.parametrize("at", [0, 3, 30, 55, 99])
def test_what_is_shown_of_a_long_line_holds_the_match(letter: str, at: int) -> None:
    """With a little of what comes before it."""
    line = letter * at + "!" + letter * (99 - at)
    (match,) = scan(line, "!", line_chars=20).matches
    assert match.clipped
    assert "!" in match.text
    assert len(match.text) <= 20
    if letter == "a" and 20 <= at <= 80:
        assert (len(match.text), match.text.index("!")) == (20, 5)


def test_two_thousand_characters_of_a_line_are_shown_unless_told_otherwise() -> None:
    """More is clipped."""
    assert not scan("x" * 2000, "x").matches[0].clipped
    assert scan("x" * 2001, "x").matches[0].clipped
    assert not scan(["x" * 2000], "x").matches[0].clipped
    assert scan(["x" * 2001], "x").matches[0].clipped


@pytest.mark.parametrize(
    ("name", "least", "wrong"),
    [("max_matches", 1, 0), ("context_lines", 0, -1), ("start_line", 0, -1), ("line_chars", 1, 0)],
)
def test_the_least_of_each_argument_is_taken_and_one_less_is_refused(source, name: str, least: int, wrong: int) -> None:
    """With what it starts at."""
    scan(source, "x$", **{name: least})
    with pytest.raises(BadRange, match="start at"):
        scan(source, "x$", **{name: wrong})


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_search_without_time_is_refused(source, seconds: float) -> None:
    """Rather than answered with nothing."""
    with pytest.raises(BadRange, match="more than 0 seconds"):
        scan(source, "x", seconds=seconds)


@pytest.mark.parametrize(
    ("parts", "counts"),
    [((0,), (5,)), ((0, 5), (2, 3)), ((0, 1, 2), (0, 1, 4)), ((1, 1, 9), (0, 4, 1)), ((0, 10), (5, 0)), ((3,), (4,))],
)
def test_the_matches_of_each_part_are_counted(parts: Sequence[int], counts: tuple[int, ...]) -> None:
    """From its first line to that of the next, the last to the end; beyond those that are returned too."""
    text = Text.from_bytes("\n".join(LINES).encode())
    result = scan(text, "x$", parts=parts, count_seconds=10.0, max_matches=2)
    assert (result.part_counts, result.exact) == (counts, True)
    assert (len(result.matches), result.total) == (2, max(sum(counts), 3))


@pytest.mark.parametrize("parts", [(-1,), (0, -1), (2, 1)])
def test_parts_out_of_order_are_refused(parts: Sequence[int]) -> None:
    """They could not be told apart."""
    with pytest.raises(BadRange, match="parts"):
        scan("x", "x", parts=parts)


@pytest.mark.parametrize("wrong", [b"x", bytearray(b"x"), memoryview(b"x"), 5, None, {"x": 1}])
def test_what_has_no_lines_is_named(wrong: object) -> None:
    """Bytes are not text."""
    with pytest.raises(NotSearchable, match=type(wrong).__name__):
        scan(wrong, "x")  # type: ignore[arg-type]
    with pytest.raises(NotSearchable, match="item 1 is a int"):
        scan(["x", 5], "x")  # type: ignore[list-item]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_page_ends_at_each_of_its_bounds(end: str) -> None:
    """At its lines, at its characters, and at the text; where the next one begins is told."""
    text = Text.from_bytes(end.join(["ab", "cd", "efg", "h"]).encode())
    whole = "ab\ncd\nefg\nh"
    for chars in (len(whole), len(whole) + 1, None):
        page = text.peek(max_chars=chars)
        assert (page.text, page.returned, page.has_more, page.next_offset) == (whole, 4, False, 4)
    for chars, content, next_offset in (
        (len(whole) - 1, "ab\ncd\nefg", 3),
        (9, "ab\ncd\nefg", 3),
        (8, "ab\ncd", 2),
        (5, "ab\ncd", 2),
        (4, "ab", 1),
        (2, "ab", 1),
    ):
        page = text.peek(max_chars=chars)
        assert (page.text, page.next_offset, page.has_more) == (content, next_offset, True)
        assert page.returned == next_offset
    page = text.peek(max_chars=1)
    assert (page.text, page.returned, page.next_offset, page.has_more) == ("a", 1, 1, True)
    page = text.peek(2, 1, 2)
    assert (page.text, page.returned, page.next_offset, page.has_more) == ("ef", 1, 3, True)
    for offset, limit, content in ((0, 1, "ab"), (1, 2, "cd\nefg"), (3, 1, "h"), (3, 2, "h")):
        page = text.peek(offset, limit)
        assert (page.text, page.offset, page.total_lines) == (content, offset, 4)
        assert (page.returned, page.next_offset) == (content.count("\n") + 1, offset + content.count("\n") + 1)
        assert page.has_more is (page.next_offset < 4)
    for offset in (4, 5, 1000):
        page = text.peek(offset)
        assert (page.text, page.returned, page.next_offset, page.has_more) == ("", 0, 4, False)
    page = text.peek(3, 1, 1)
    assert (page.text, page.has_more) == ("h", False)


def test_a_page_without_bounds_has_two_thousand_lines_and_none_more_than_twenty_thousand() -> None:
    """As the documents say."""
    text = Text.from_bytes(b"\n" * 30_000)
    assert text.peek().returned == 2000
    assert text.peek(0, 20_000).returned == text.peek(0, 20_001).returned == 20_000


@pytest.mark.parametrize(
    ("arguments", "said"), [((-1,), "offset is -1"), ((0, 0), "limit is 0"), ((0, 1, 0), "max_chars is 0")]
)
def test_the_least_of_a_page_is_taken_and_one_less_is_refused(arguments: tuple[int, ...], said: str) -> None:
    """With what was wrong."""
    text = Text.from_bytes(b"x")
    assert text.peek(0, 1, 1).text == "x"
    with pytest.raises(BadRange, match=said):
        text.peek(*arguments)
