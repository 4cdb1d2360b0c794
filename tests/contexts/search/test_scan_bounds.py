"""Where a search and a page begin and end: each bound met exactly, on a text and on a list of strings alike."""

from collections.abc import Sequence
from typing import Any

import pytest

from rlm_contexts.errors import BadRange, NotSearchable
from rlm_contexts.search.scan import scan
from rlm_contexts.searches import MAX_MATCHES, LineMatch, ScanResult
from rlm_contexts.text.text import Text, TextPage

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
    assert result == ScanResult(
        tuple(LineMatch(at, LINES[at], (), 8, False) for at in (1, 3, 5, 7, 9)), False, 5, True, None
    )
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


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("pattern", ["x", "x$", "[x]"])
def test_further_matches_are_counted_only_in_a_time_of_its_own(pattern: str, invert: bool) -> None:
    """None without one, though it would be quick; all in a second; and the time for finding is not used up for it."""
    few = scan("x\ny\n" * 5, pattern, max_matches=1, invert=invert)
    assert (few.total, few.exact) == (2, False)
    few = scan("x\ny\n" * 5, pattern, max_matches=1, invert=invert, count_seconds=1.0)
    assert (few.total, few.exact) == (5, True)
    many = Text.from_bytes(b"x\ny\n" * 20_000)
    spent = scan(many, pattern, max_matches=1, invert=invert, seconds=1000.0, count_seconds=1e-9)
    assert (spent.truncated, spent.exact) == (True, False)
    parts = scan(many, pattern, max_matches=1, invert=invert, seconds=1000.0, count_seconds=1e-9, parts=(0, 1000))
    assert (parts.exact, len(parts.part_counts)) == (False, 2)


@pytest.mark.parametrize("source", ["x", ["x"]])
def test_the_last_match_of_all_is_known_to_be_the_last(source: Any) -> None:
    """Without time for counting."""
    assert scan(source, "x", max_matches=1) == ScanResult((LineMatch(0, "x", (), 1, False),), False, 1, True, None)


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
    page = text.peek(1000, 1, 1)
    assert (page.offset, page.cut_line) == (1000, False)


@pytest.mark.parametrize("letter", ["a", "é", "漢", "😀"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_page_of_one_cut_line_says_so_and_whether_others_follow(letter: str, end: str) -> None:
    """A character is never cut in two, and nothing follows the last line."""
    for length in (1, 2, 9, 10):
        whole = Text.from_bytes((letter * length + end).encode()).peek(0, 1, 10)
        assert whole == TextPage(letter * length, 0, 1, 1, False, 1, False)
    for length in (11, 12, 50, 1000):
        line = letter * length
        cut = Text.from_bytes(f"{line}{end}".encode()).peek(0, 5, 10)
        assert cut == TextPage(letter * 10, 0, 1, 1, False, 1, True)
        cut = Text.from_bytes(f"{line}{end or chr(10)}next".encode()).peek(0, 5, 10)
        assert cut == TextPage(letter * 10, 0, 1, 2, True, 1, True)


@pytest.mark.parametrize("letter", ["é", "漢", "😀"])
def test_a_page_of_wide_characters_ends_with_its_lines(letter: str) -> None:
    """Its bytes are more than the characters that it may have; what follows would fit, and was not asked for."""
    text = Text.from_bytes(f"{letter * 8}\nnext".encode())
    for chars in (8, 9, 13, 14, 100):
        assert text.peek(0, 1, chars) == TextPage(letter * 8, 0, 1, 2, True, 1, False)
    assert text.peek(0, 2, 13).text == f"{letter * 8}\nnext"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_page_of_every_line_has_each_cut_to_its_share(end: str) -> None:
    """All of the lines that were asked for, of a text whose characters take several bytes too."""
    for letter in "a漢":
        text = Text.from_bytes(end.join([letter, letter * 30, "", letter * 40]).encode())
        assert [(str(line.text), line.chars) for line in text.peek_every(0, 4, 1000)] == [
            (letter, 1),
            (letter * 30, 30),
            ("", 0),
            (letter * 40, 40),
        ]
        assert [line.chars for line in text.peek_every(1, 2, 1000)] == [30, 0]
        assert [line.chars for line in text.peek_every(3, 2, 1000)] == [40]
        assert text.peek_every(4, 1, 1000) == []
        short = text.peek_every(0, 4, 21)
        assert [line.chars for line in short] == [1, 30, 0, 40]
        assert [line.cut for line in short] == [False, True, False, True]
    assert [line.chars for line in Text.from_bytes(b"\n" * 30_000).peek_every(5, 25_000, 1)] == [0] * 20_000
    assert Text.from_bytes(b"").peek_every(0, 1, 1) == []


def test_a_page_without_bounds_has_two_thousand_lines_and_none_more_than_twenty_thousand() -> None:
    """As the documents say."""
    text = Text.from_bytes(b"\n" * 30_000)
    assert text.peek().returned == 2000
    assert text.peek(0, 20_000).returned == text.peek(0, 20_001).returned == 20_000


@pytest.mark.parametrize(
    ("arguments", "said"), [((-1, 1, 1), "offset is -1"), ((0, 0, 1), "limit is 0"), ((0, 1, 0), "max_chars is 0")]
)
def test_the_least_of_a_page_is_taken_and_one_less_is_refused(arguments: tuple[int, int, int], said: str) -> None:
    """With what was wrong."""
    text = Text.from_bytes(b"x")
    assert text.peek(0, 1, 1).text == "x"
    with pytest.raises(BadRange, match=said):
        text.peek(*arguments)
    with pytest.raises(BadRange, match=said):
        text.peek_every(*arguments)
