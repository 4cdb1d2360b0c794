"""Pages, lines and content are what plain Python makes of the same text."""

import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_loops import split_lines

from rlm_contexts import errors
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.model import BLOCK
from rlm_contexts.text.text import Text
from rlm_contexts.view.variable import ContextVariable

TEXTS = st.lists(
    st.one_of(
        st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\0", "a", "error ", "\x85", "\u2028", "\U0001f600"]),
        st.text(st.characters(codec="utf-8"), max_size=8),
    ),
    max_size=30,
).map("".join)

RUNS = st.tuples(st.integers(0, 6000), st.sampled_from([1, 2, 12, 70]), st.sampled_from([1, 2, 40, 500]))
"""Where a run through lines starts, how many it looks at, and how far from each other."""


def long_text() -> str:
    """Many blocks, lines of all lengths, some longer than a block."""
    rng = random.Random(5)
    lengths = [rng.choice([0, 1, 20, 80, 200]) for _ in range(6000)] + [BLOCK + 3, 3 * BLOCK]
    rng.shuffle(lengths)
    return "\n".join(chr(97 + at % 26) * length for at, length in enumerate(lengths)) + "\nend"


LONG = long_text()
KINDS = {"ascii": LONG, "crlf": LONG.replace("\n", "\r\n") + "\r", "wide": LONG.replace("b", "\u0431\U0001f600")}
"""The same text in each form that is looked at differently."""


@pytest.fixture(scope="module")
def long() -> Text:
    return Text.from_bytes(LONG.encode())


@pytest.fixture(scope="module", params=list(KINDS))
def some(
    request: pytest.FixtureRequest, shared_store: ContextStore, attach_text: Callable[..., ContextVariable]
) -> tuple[Lines, list[str]]:
    """Lines of a text as a kernel has it, and the plain list."""
    return attach_text(shared_store, KINDS[request.param])["lines"], split_lines(KINDS[request.param])


@given(TEXTS)
def test_lines_equal_the_plain_list(text: str) -> None:
    """K-16: length, iteration, indexing, slices, membership and comparison are those of a list."""
    lines, plain = Lines(Text.from_bytes(text.encode())), split_lines(text)
    assert (len(lines), list(lines), lines == plain) == (len(plain), plain, True)
    assert list(reversed(lines)) == plain[::-1]
    assert [lines[at] for at in range(-len(plain), len(plain))] == [plain[at] for at in range(-len(plain), len(plain))]
    assert (lines[1:], lines[::2], lines[-3:-1], lines[::-1]) == (
        plain[1:],
        plain[::2],
        plain[-3:-1],
        plain[::-1],
    )
    assert ("a" in lines, lines.count("a"), "" in lines) == ("a" in plain, plain.count("a"), "" in plain)
    more = ["x"]
    assert (lines + more, more + lines, lines * 2, lines.copy()) == (
        plain + more,
        more + plain,
        plain * 2,
        plain,
    )


@given(st.data())
def test_long_lines_are_the_plain_list_under_any_access(long: Text, data: st.DataObject) -> None:
    """Across blocks, and with the caches any order of accesses leaves behind."""
    lines, plain = Lines(long), LONG.split("\n")
    at = st.integers(-len(plain), len(plain) - 1)
    for index in data.draw(st.lists(at, min_size=1, max_size=20)):
        assert lines[index] == plain[index]
        assert list(islice(lines, 3)) == plain[:3]
    low, high = data.draw(at), data.draw(at)
    assert lines[low:high] == plain[low:high]
    target = plain[data.draw(at)]
    assert lines.index(target) == plain.index(target)


@given(st.data())
def test_any_order_of_looking_gives_the_lines_of_the_plain_list(
    some: tuple[Lines, list[str]], data: st.DataObject
) -> None:
    """K-16: runs, jumps and steps backwards, with whatever they leave cached; also in a view of a part."""
    lines, plain = some
    low, high = data.draw(st.sampled_from([(0, len(plain)), (1000, 5000)]))
    view, part = Lines(lines.as_text(), low, high), plain[low:high]
    for start, length, step in data.draw(st.lists(RUNS, min_size=1, max_size=30)):
        for at in range(start % len(part), len(part), step)[:length]:
            assert view[at] == part[at]
            assert view[at - len(part)] == part[at]
    for beyond in (len(part), -len(part) - 1):
        with pytest.raises(IndexError, match="out of range"):
            view[beyond]


def test_threads_find_their_lines_while_others_look_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has decoded for its line is no answer to another."""
    monkeypatch.setattr("rlm_contexts.text.lines._STRETCH", 200)
    monkeypatch.setattr("rlm_contexts.text.lines._SCATTERED", 10**9)
    lines, plain = Lines(Text.from_bytes(LONG.encode())), LONG.split("\n")

    def look(seed: int) -> None:
        rng = random.Random(seed)
        for start in rng.choices(range(5900), k=1000):
            for at in range(start, start + rng.choice([1, 5, 30])):
                assert lines[at] == plain[at]

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(look, range(8))] == [None] * 8
    finally:
        sys.setswitchinterval(usual)


def test_scattered_access_to_many_lines_is_right_throughout(some: tuple[Lines, list[str]]) -> None:
    """After enough far jumps line starts come from an array; nothing else changes."""
    lines, plain = some
    order = list(range(len(plain)))
    random.Random(1).shuffle(order)
    assert [lines[at] for at in order] == [plain[at] for at in order]
    assert [lines[at] for at in range(len(lines))] == plain
    assert [lines[at] for at in range(-1, -len(lines) - 1, -1)] == plain[::-1]
    for at in (*range(100, 120), 3):  # a run, and a jump out of it
        assert lines[at] == plain[at]
    with pytest.raises(IndexError, match="out of range"):
        lines[len(plain)]


@given(st.integers(-7000, 7000), st.integers(-7000, 7000), st.sampled_from([1, 2, 3, 64, 65, 1000, -1, -2, -65]))
def test_slices_of_any_step_are_those_of_the_plain_list(
    some: tuple[Lines, list[str]], low: int, high: int, step: int
) -> None:
    """K-16: whether the lines between are decoded or left out."""
    lines, plain = some
    assert lines[low:high:step] == plain[low:high:step]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@given(st.lists(st.sampled_from(["", "a", "b", "ab", "a\r", "\xe9", "\U0001f600"]), max_size=12), st.booleans())
def test_a_line_is_found_where_the_plain_list_finds_it(ending: str, rows: list[str], closed: bool) -> None:
    """K-16: `in`, `count` and `index`, of the whole and of a part, for what may and what cannot be a line."""
    text = ending.join(rows) + ending * closed
    lines, plain = Lines(Text.from_bytes(text.encode())), split_lines(text)
    for line in ["", "a", "b", "a\r", "\r", "\xe9", "a\nb", "\ud800", 7, None]:
        assert (line in lines, lines.count(line)) == (line in plain, plain.count(line))
        for low, high in ((0, len(plain)), (1, 5), (-3, -1)):
            where = plain.index(line, low, high) if line in plain[low:high] else None
            if where is None:
                with pytest.raises(ValueError, match="not one of the lines"):
                    lines.index(line, low, high)
            else:
                assert lines.index(line, low, high) == where


def test_a_line_is_found_wherever_in_a_long_text_it_stands(some: tuple[Lines, list[str]]) -> None:
    """K-16: the search goes piece by piece, and counts the lines before each."""
    lines, plain = some
    for at in range(0, len(plain), 97):
        assert lines.index(plain[at], at) == at
    assert [lines.count(line) for line in plain[:50]] == [plain.count(line) for line in plain[:50]]
    assert plain[-1] in lines
    assert plain[5][:-1] + "!" not in lines


def test_a_view_of_many_lines_is_itself_a_sequence_of_lines() -> None:
    """Slices up to 100,000 lines are lists; larger ones are views that behave the same."""
    plain = [str(number) for number in range(250_000)]
    lines = Lines(Text.from_bytes("\n".join(plain).encode()))
    assert type(lines[:100_000]) is list
    view = lines[10:240_000]
    assert isinstance(view, Lines)
    assert (len(view), view[0], view[-1], view[5:8]) == (239_990, "10", "239999", ["15", "16", "17"])
    assert list(view) == plain[10:240_000]
    assert view.index("239999") == 239_989
    assert view.as_text().line_count == len(view)


@pytest.mark.parametrize("wrong", [5, -6, 10**9])
def test_an_index_beyond_the_lines_is_an_index_error(wrong: int) -> None:
    """As for a list."""
    lines = Lines(Text.from_bytes(b"a\nb\nc\nd\ne"))
    with pytest.raises(IndexError, match="out of range"):
        lines[wrong]
    with pytest.raises(TypeError, match="integers or slices"):
        lines["x"]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="not one of the lines"):
        lines.index("z")


def test_lines_say_that_they_cannot_be_changed() -> None:
    """The message names the way out: a copy."""
    lines = Lines(Text.from_bytes(b"a\nb"))
    for name in ("append", "sort", "pop"):
        assert not hasattr(lines, name)
        with pytest.raises(AttributeError, match=rf"no {name}\(\); work on a copy: list\(lines\)"):
            getattr(lines, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lines.nonsense  # noqa: B018
    with pytest.raises(TypeError):
        hash(lines)


@given(TEXTS, st.integers(1, 5))
def test_pages_reassemble_the_text(text: str, limit: int) -> None:
    """K-2: following next_offset to the end gives every line once."""
    context, plain = Text.from_bytes(text.encode()), split_lines(text)
    pages, offset = [], 0
    while offset < len(plain):
        page = context.peek(offset, limit)
        assert (page.offset, page.total_lines) == (offset, len(plain))
        assert page.text == "\n".join(plain[offset : offset + limit])
        assert (page.returned, page.has_more) == (
            min(limit, len(plain) - offset),
            offset + limit < len(plain),
        )
        pages.append(page.text)
        offset = page.next_offset
    assert "\n".join(pages) == "\n".join(plain)


@given(TEXTS, st.integers(1, 40))
def test_pages_never_exceed_their_characters_and_lose_nothing_uncut(text: str, max_chars: int) -> None:
    """A page holds whole lines; only a line that alone is too long is cut, and that is said."""
    context, plain = Text.from_bytes(text.encode()), split_lines(text)
    seen, offset = 0, 0
    while offset < len(plain):
        page = context.peek(offset, 10, max_chars)
        assert len(page.text) <= max_chars
        assert page.returned >= 1
        if page.cut_line:
            assert (page.returned, page.text) == (1, plain[offset][:max_chars])
            assert len(plain[offset]) > max_chars
        else:
            assert page.text == "\n".join(plain[offset : offset + page.returned])
        seen += page.returned
        offset = page.next_offset
        assert page.has_more == (offset < len(plain))
    assert seen == len(plain)


def test_a_limit_beyond_the_most_is_clamped() -> None:
    """K-2: a limit of 50,000 gives 20,000 lines; the last page says that there is no more."""
    context = Text.from_bytes(b"line\n" * 25_000)
    page = context.peek(0, 50_000)
    assert (page.returned, page.has_more, page.next_offset) == (20_000, True, 20_000)
    last = context.peek(page.next_offset, 50_000)
    assert (last.returned, last.has_more) == (5_000, False)
    assert context.peek(25_000).returned == context.peek(10**12).returned == 0


@pytest.mark.parametrize("arguments", [(-1, 1), (0, 0), (0, -5), (0, 1, 0)])
def test_impossible_page_bounds_are_refused(arguments: tuple[int, ...]) -> None:
    """The message says what is counted from where."""
    with pytest.raises(errors.BadRange):
        Text.from_bytes(b"a").peek(*arguments)


def test_one_huge_line_is_cut_without_being_decoded_whole() -> None:
    """A page of a text that is one line of 50 MB."""
    context = Text.from_bytes(b"x" * 50_000_000)
    page = context.peek(0, 10, 100)
    assert (page.text, page.cut_line, page.has_more) == ("x" * 100, True, False)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("unit", ["x", "\n", "ab\n"])
def test_offsets_and_line_numbers_are_inverse_at_block_edges(size: int, unit: str) -> None:
    """Texts that end just before, at and after a block of the index."""
    text = (unit * size)[:size]
    context, plain = Text.from_bytes(text.encode()), split_lines(text)
    assert context.line_count == len(plain)
    probes = sorted({0, 1, len(plain) // 2, max(0, len(plain) - 1)} & set(range(len(plain))))
    for line in probes:
        start = context.index.start_of(line)
        assert text[:start].count("\n") == line == context.index.line_of(start)


def test_a_private_text_normalises_like_a_stored_one(texts: object, attach_text: Callable[..., object]) -> None:
    """Text.from_bytes replaces what is not UTF-8."""
    assert Text.from_bytes(b"a\xffb").content == "a\ufffdb"
    assert Text.from_bytes(b"").content == ""
