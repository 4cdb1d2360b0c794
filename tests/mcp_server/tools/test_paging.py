"""Pages of lines: a program that goes on at `next_offset`, and one that adds its `limit`, both see every line."""

import json
import re
import secrets
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm_contexts.shares import ShownShare, fair_share
from rlm_contexts.text.text import Text
from rlm_mcp.service.contexts.pages import fitting, pieces
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.tool_answers import encoded_length

pytestmark = pytest.mark.anyio

MARK = re.compile(r"…\[of ([\d,]+) characters\]$")
LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=60),
        st.builds(str.__mul__, st.sampled_from(["x", "é", "日本", '"\\', "\x00", "\U0001f600"]), st.integers(0, 3000)),
    ),
    min_size=1,
    max_size=60,
)


def is_seen(shown: str, line: str) -> bool:
    """Whether a line stands in a page as it is, or as its beginning with its length."""
    mark = MARK.search(shown)
    if shown == line or mark is None:
        return shown == line
    return line.startswith(shown[: mark.start()]) and int(mark[1].replace(",", "")) == len(line)


@given(st.lists(st.integers(0, 5000), max_size=50), st.integers(0, 20_000))
def test_a_fair_share_uses_the_room_and_not_more(lengths: list[int], room: int) -> None:
    """The largest length to which all can be cut."""
    share = fair_share(lengths, room)
    assert sum(min(length, share) for length in lengths) <= room
    assert all(length <= share for length in lengths) or sum(min(length, share + 1) for length in lengths) > room


@given(LINES, st.integers(64, 9000))
def test_every_line_of_a_page_is_whole_or_says_that_it_is_cut(lines: list[str], room: int) -> None:
    """K-2: whatever the lines are, they fit, in their order, none is left out; refused is only what leaves nothing."""
    try:
        shown = pieces([ShownShare(line, len(line)) for line in lines], room)
    except ToolFault as fault:
        refused = fault
    else:
        refused = None
    if refused is not None:
        assert refused.code == "page_too_long"
        assert pieces([ShownShare(line, len(line)) for line in lines[: refused.fields["limit"]]], room)
        assert len(fitting(lines, room)) < len(lines)
        return
    assert encoded_length("\n".join(map(str, shown))) <= room
    assert len(shown) == len(lines)
    assert all(is_seen(str(one), line) for one, line in zip(shown, lines, strict=True))
    assert [one.cut for one in shown] == [str(one) != line for one, line in zip(shown, lines, strict=True)]


@given(LINES, st.integers(0, 70), st.integers(1, 70), st.integers(1, 9000), st.sampled_from(["\n", "\r\n"]))
def test_a_text_gives_every_line_within_the_room(
    lines: list[str], offset: int, limit: int, room: int, end: str
) -> None:
    """K-2: the text is not decoded beyond what is shown; lengths are those of the whole lines."""
    shown = Text.from_bytes((end.join(lines) + end).encode()).peek_every(offset, limit, room)
    wanted = lines[offset : offset + limit]
    assert [one.chars for one in shown] == [len(line) for line in wanted]
    assert all(line.startswith(one.text) for one, line in zip(shown, wanted, strict=True))
    assert sum(len(one.text) for one in shown) <= room * 4
    if sum(len(line.encode()) + 1 for line in wanted) <= room:
        assert not any(one.cut for one in shown)


async def loop(agent: Any, name: str, *, step: int | None, by_limit: bool) -> list[str]:
    """Read a text to its end as programs do; returns the lines that they see."""
    seen: list[str] = []
    offset, more = 0, True
    while more:
        page = await agent("peek", name=name, offset=offset, **({} if step is None else {"limit": step}))
        if page.get("error") == "page_too_long":  # it says how many there is room for
            step = page["limit"]
            continue
        assert len(agent.text) <= 8000
        lines = page["content"].split("\n") if page["returned"] else []
        assert page["returned"] == len(lines)
        assert page.get("cut", False) == any(MARK.search(line) for line in lines)
        seen += lines
        more = page["has_more"]
        offset = offset + (step or page["limit"]) if by_limit else page.get("next_offset", offset)
    return seen


@pytest.mark.parametrize("by_limit", [True, False])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, times=st.integers(1, 20), step=st.none() | st.integers(1, 700))
async def test_no_line_is_skipped(connect, lines, times, step, by_limit) -> None:
    """K-2: in the default tier, over random texts, with the program's own limit and without one."""
    text = [*lines * times, "end"]
    async with connect(f"s{secrets.token_hex(4)}") as agent:
        await agent("load_context", name="log", content="\n".join(text))
        seen = await loop(agent, "log", step=step, by_limit=by_limit)
        assert len(seen) == len(text)
        assert all(is_seen(shown, line) for shown, line in zip(seen, text, strict=True))
        assert step is not None or seen == text or any(len(line) > 1000 for line in text)


@pytest.mark.parametrize("step", [1, 30, 100, None])
@pytest.mark.parametrize("by_limit", [True, False])
async def test_no_item_of_a_variable_is_skipped(attach, step, by_limit) -> None:
    """K-2: what code has made is paged like a text; an item with newlines is one line."""
    async with attach(f"s{secrets.token_hex(4)}") as agent:
        assert (await agent.run("rows = [f'{n} ' + '\"' * (n * 37 % 400) for n in range(300)]"))["success"]
        rows = [f"{n} " + '"' * (n * 37 % 400) for n in range(300)]
        seen = await loop(agent, "rows", step=step, by_limit=by_limit)
        assert all(is_seen(shown, line) for shown, line in zip(seen, rows, strict=True))
        assert (await agent.run("rows = ['a\\nb' * 50] * 200"))["success"]
        page = await agent("peek", name="rows")
        assert json.loads(agent.text)["content"] == "\n".join(["a\nb" * 50] * page["returned"])
        assert (page["next_offset"], page["limit"]) == (page["returned"], page["returned"])


async def test_the_documents_loop_skips_nothing(connect) -> None:
    """K-2: pages of a hundred ordinary lines hold a hundred, in the default tier too."""
    lines = [f"2026-01-07T10:{n % 60:02d}:00 INFO worker {n} " + "x" * 60 for n in range(1000)]
    async with connect() as agent:
        await agent("load_context", name="log", content="\n".join(lines))
        for offset in range(0, 1000, 100):
            page = await agent("peek", name="log", offset=offset, limit=100)
            assert (page["returned"], page["limit"]) == (100, 100)
            shown = page["content"].split("\n")
            assert all(is_seen(one, line) for one, line in zip(shown, lines[offset : offset + 100], strict=True))
            assert page["cut_lines"] == sum(MARK.search(one) is not None for one in shown)


async def test_what_leaves_nothing_of_a_line_is_refused_with_what_would_not(connect) -> None:
    """K-10: nobody gets a part of the lines that looks like all of them."""
    async with connect() as agent:
        await agent("load_context", name="log", content="\n".join("x" * 99 for _ in range(3000)))
        refused = await agent("peek", name="log", limit=3000)
        assert (agent.is_error, refused["error"]) == (True, "page_too_long")
        assert (await agent("peek", name="log", limit=refused["limit"]))["returned"] == refused["limit"] > 100
        whole = await agent("peek", name="log")
        assert (whole["content"], "cut" in whole) == ("\n".join(["x" * 99] * whole["returned"]), False)
