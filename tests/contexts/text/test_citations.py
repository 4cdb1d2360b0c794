"""A citation is checked to the letter, in the lines it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_contexts import errors
from rlm_contexts.text.citations import check, cite, parse_lines
from rlm_contexts.text.text import Text

TEXT = Text.from_bytes("one\r\ntwo \xe9 (two)\r\nthree\r\ntwo".encode())


def test_a_citation_has_the_lines_and_their_range() -> None:
    """Both ends are included; carriage returns belong to line ends."""
    span = cite(TEXT, "1-2")
    assert (span.first, span.last, span.lines, span.text) == (1, 2, "1-2", "two \xe9 (two)\nthree")
    assert cite(TEXT, 3).lines == "3"
    assert parse_lines(" 4 - 7 ") == (4, 7)


@pytest.mark.parametrize("lines", ["4", "2-1", "x", "-1", "1-", "0-2000", "", "1-2-3", "9" * 20])
def test_lines_that_are_not_there_cannot_be_cited(lines: str) -> None:
    """The message says how they are counted."""
    with pytest.raises(errors.BadRange):
        cite(TEXT, lines)


@pytest.mark.parametrize(
    ("quote", "lines", "stands", "found"),
    [
        ("two", None, True, "1"),
        ("two", "3", True, "3"),
        ("two \xe9 (two)\nthree\n", "1-2", True, "1-2"),
        ("two \xe9 (two)\r\nthree", None, True, "1-2"),
        ("three", "0-1", False, "2"),
        ("(two)", "100-200", False, "1"),
        ("Two", None, False, None),
        ("t.o", None, False, None),
    ],
)
def test_a_quotation_is_found_where_it_stands(quote: str, lines: str | None, stands: bool, found: str | None) -> None:
    """Case and every character count; one that stands elsewhere is told with its place."""
    result = check(TEXT, quote, lines)
    assert result.stands is stands
    assert (result.found.lines if result.found else None) == found


def test_an_empty_quotation_proves_nothing() -> None:
    """It would stand everywhere."""
    with pytest.raises(errors.BadRange, match="empty"):
        check(TEXT, "\n")


@given(st.lists(st.text("ab\xe9 ", max_size=4), min_size=1, max_size=8), st.data())
def test_what_is_cited_stands(lines: list[str], data: st.DataObject) -> None:
    """Any citation passes its own check, and any quotation is found exactly when the text holds it."""
    text = Text.from_bytes("\n".join(lines).encode())
    if text.line_count:
        first = data.draw(st.integers(0, text.line_count - 1))
        span = cite(text, f"{first}-{data.draw(st.integers(first, text.line_count - 1))}")
        if span.text.strip("\n"):
            assert check(text, span.text, span.lines).stands
    quote = data.draw(st.text("ab\xe9 ", min_size=1, max_size=3))
    assert check(text, quote).stands == any(quote in line for line in lines)
