"""Lines that a cell goes through again and again are kept as a list until it ends, if the session has room."""

import random
from collections import deque
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_kernel.contexts.keeping import KEEPER
from rlm_kernel.contexts.lines import Lines
from rlm_kernel.contexts.text import Text

PLAIN = [f"{number} {'x' * (number % 90)}" for number in range(20_000)]
TEXTS = {form: "".join(line + end for line in PLAIN) for form, end in {"unix": "\n", "dos": "\r\n"}.items()}
TEXTS["wide"] = TEXTS["unix"].replace("xx", "x\U0001f600")
ROOM = 1 << 30


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    """What a session has told; nothing is kept beyond a test."""
    KEEPER.allow(ROOM)
    yield
    KEEPER.release()
    KEEPER.allow(0)


def go_through(lines: Lines, times: int) -> None:
    """Look at every line, and keep none."""
    for _ in range(times):
        deque(lines, maxlen=0)


def kept(lines: Lines) -> bool:
    """Whether the strings are there already, so that looking twice gives the same ones."""
    first, again = (next(islice(lines, 15_000, None)) for _ in range(2))
    return first is again


@pytest.fixture(params=list(TEXTS))
def some(request: pytest.FixtureRequest) -> tuple[Lines, list[str]]:
    """Lines of a text, and the plain list."""
    text = TEXTS[request.param]
    return Text.from_bytes(text.encode()).lines, text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def test_lines_are_kept_from_the_third_time_on_until_they_are_released(some: tuple[Lines, list[str]]) -> None:
    """Who goes through them once or twice pays no memory."""
    lines, plain = some
    go_through(lines, 2)
    held = list(lines)
    assert kept(lines)
    assert held == plain
    assert lines[5:7][0] is held[5]
    KEEPER.release()
    assert not kept(lines)
    assert list(lines) == plain


def test_a_loop_over_indexes_counts_as_going_through() -> None:
    """However the strings were made, it pays to keep them."""
    lines = Text.from_bytes(TEXTS["unix"].encode()).lines
    for _ in range(3):
        assert [lines[at] for at in range(len(lines))] == PLAIN
    assert kept(lines)


@given(st.data())
def test_kept_lines_are_those_of_the_plain_list_under_any_access(data: st.DataObject) -> None:
    """K-16: before, while and after they are kept, also by numbers from the end, and scattered."""
    lines = Text.from_bytes(TEXTS["dos"].encode()).lines
    at = st.integers(-len(PLAIN), len(PLAIN) - 1)
    for event in data.draw(st.lists(st.sampled_from(["pass", "release", "scatter", "look"]), min_size=1, max_size=12)):
        if event == "pass":
            go_through(lines, 2)
        elif event == "release":
            KEEPER.release()
        order = (
            [random.Random(3).randrange(len(PLAIN)) for _ in range(100)]
            if event == "scatter"
            else data.draw(st.lists(at))
        )
        assert [lines[index] for index in order] == [PLAIN[index] for index in order]
        low, high = data.draw(at), data.draw(at)
        step = data.draw(st.integers(-70, 70).filter(bool))
        assert lines[low:high] == PLAIN[low:high]
        assert lines[low:high:step] == PLAIN[low:high:step]
        assert list(islice(reversed(lines), 5)) == PLAIN[:-6:-1]
    for beyond in (len(PLAIN), -len(PLAIN) - 1):
        with pytest.raises(IndexError, match="out of range"):
            lines[beyond]


def test_a_part_is_kept_by_itself() -> None:
    """A view that is gone through again and again, in a text that is not."""
    lines = Text.from_bytes(TEXTS["unix"].encode()).lines
    part = Lines(lines.as_text(), 1000, 19_000)
    go_through(part, 3)
    assert list(part) == PLAIN[1000:19_000]
    assert kept(part)
    assert not kept(lines)


def test_nothing_is_kept_where_there_is_no_room_for_it() -> None:
    """A quarter of the memory is the most, of all lists together; a process without a session keeps none."""
    text = Text.from_bytes(TEXTS["unix"].encode())
    size = text.size + 72 * len(PLAIN)
    for memory, most in ((4 * size - 4, 0), (4 * size, 1), (8 * size, 2), (0, 0)):
        KEEPER.release()
        KEEPER.allow(memory)
        views = [Lines(text), Lines(text), Lines(text)]
        for view in views:
            go_through(view, 4)
        assert sum(map(kept, views)) == most


def test_strings_take_no_more_than_was_reckoned() -> None:
    """What is asked for covers what the strings and their list really take."""
    taken = sum(line.__sizeof__() for line in PLAIN) + 8 * len(PLAIN)
    assert taken <= Text.from_bytes(TEXTS["unix"].encode()).size + 72 * len(PLAIN)
