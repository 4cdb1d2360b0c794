"""peek and scan on loaded texts."""

import json

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
async def agent(connect):
    """An agent with the text `log`: a thousand lines, an error on every hundredth."""
    lines = [f"line {n}" if n % 100 else f"ERROR: failure {n}" for n in range(1000)]
    async with connect() as agent:
        await agent("load_context", name="log", content="\n".join(lines), content_type="log")
        yield agent


async def test_a_page_has_the_documented_fields(agent) -> None:
    """K-2: offset is 0-based; has_more comes with where to go on."""
    assert await agent("peek", name="log", offset=998, limit=1) == {
        "name": "log",
        "offset": 998,
        "limit": 1,
        "total_lines": 1000,
        "returned": 1,
        "has_more": True,
        "content": "line 998",
        "next_offset": 999,
    }


async def test_the_list_of_variables_says_how_large_a_text_is(attach) -> None:
    """`%whos` told of a text only that it is one, and of a table its rows and columns."""
    async with attach("listed") as agent:
        await agent("load_context", name="log", content="line 1\n" * 1000)
        assert "<ContextVariable: 7,000 bytes, 1,000 lines>" in str(await agent.run("%whos"))


async def test_a_variable_with_the_lines_of_a_text_is_read_whole(attach) -> None:
    """Code often begins with `lines = log['lines']`. What it prints short is searched, read and loaded whole."""
    text = "\n".join(f"line {n}" if n % 100 else f"ERROR: failure {n}" for n in range(1000))
    async with attach("lines") as agent:
        await agent("load_context", name="log", content=text)
        await agent.run("lines = log['lines']")
        found = await agent("scan", name="lines", pattern="ERROR")
        assert [match["line"] for match in found["results"]] == list(range(0, 1000, 100))
        page = await agent("peek", name="lines", offset=998, limit=1)
        assert (page["total_lines"], page["content"]) == (1000, "line 998")
        assert (await agent("load_context", name="copy", variable="lines"))["line_count"] == 1000
        assert (await agent("peek", name="copy", offset=500, limit=1))["content"] == "ERROR: failure 500"
        told = await agent("var_info", name="lines")
        assert (told["line_count"], told["preview"]) == (1000, "<Lines: 1000 lines>")
        await agent("end_session")


async def test_the_last_page_says_so_and_beyond_it_is_nothing(agent) -> None:
    """K-2: has_more is false at the end; an offset past the end is an empty page."""
    assert not (await agent("peek", name="log", offset=999))["has_more"]
    beyond = await agent("peek", name="log", offset=5000)
    assert (beyond["returned"], beyond["content"], beyond["has_more"]) == (0, "", False)


async def test_limits_are_clamped_and_defaulted(agent) -> None:
    """K-2: 2,000 lines unless told, 20,000 at most; what lies before the first line begins with it."""
    await agent("load_context", name="short", content="line\n" * 500)
    assert (await agent("peek", name="short"))["limit"] == 2000
    assert (await agent("peek", name="short", limit=50000))["limit"] == 20000
    assert (await agent("peek", name="log", offset=-7000, limit=2))["content"] == "ERROR: failure 0\nline 1"
    assert (await agent("peek", name="log", offset=-7000, limit=2))["offset"] == 0


async def test_a_long_page_stops_at_a_whole_line_within_the_answers_limit(agent) -> None:
    """K-2: no answer is longer than 8,000 characters; paging by next_offset misses nothing."""
    content = "\n".join('"quoted"\t\\ é日 ' + "x" * (n % 300) for n in range(2000))
    await agent("load_context", name="wide", content=content)
    pages, offset = [], 0
    while True:
        page = await agent("peek", name="wide", offset=offset)
        assert len(agent.text) <= 8000
        pages.append(page["content"])
        if not page["has_more"]:
            break
        assert page["next_offset"] == offset + page["returned"]
        offset = page["next_offset"]
    assert "\n".join(pages) == content


async def test_max_chars_asks_for_a_larger_or_smaller_page(agent) -> None:
    """K-2: a caller with room takes more at once, up to a million characters."""
    await agent("load_context", name="wide", content="\n".join("x" * 99 for _ in range(20_000)))
    await agent("load_context", name="far", content="\n".join("x" * 999 for _ in range(2000)))
    assert len((await agent("peek", name="far", max_chars=1_000_000))["content"]) > 900_000
    assert len((await agent("peek", name="far", max_chars=9_000_000))["content"]) < 1_000_000
    every = await agent("peek", name="wide", limit=20000, max_chars=1_000_000)
    assert (every["returned"], every["cut_lines"], len(every["content"]) > 900_000) == (20000, 20000, True)
    assert (await agent("peek", name="wide", max_chars=400))["returned"] < 4


async def test_a_line_longer_than_the_answer_is_cut_and_says_so(agent) -> None:
    """K-2: one endless line neither floods the client nor stops the paging."""
    await agent("load_context", name="long", content="a" * 5_000_000 + "\nend")
    page = await agent("peek", name="long")
    assert len(agent.text) <= 8000
    assert (page["returned"], page["has_more"], page["next_offset"]) == (1, True, 1)
    assert (page["cut"], page["cut_lines"], "max_chars" in page["rest"]) == (True, 1, True)
    assert page["content"].endswith("a…[of 5,000,000 characters]")
    assert (await agent("peek", name="long", offset=1))["content"] == "end"


async def test_a_scan_finds_lines_by_number(agent) -> None:
    """K-3: case-insensitive; peek(line, 1) returns the match."""
    found = await agent("scan", name="log", pattern="error|fatal", max_matches=3)
    assert (found["name"], found["pattern"], found["matches"]) == ("log", "error|fatal", 3)
    assert [set(row) for row in found["results"]] == [{"line", "text", "context"}] * 3
    row = found["results"][1]
    assert (await agent("peek", name="log", offset=row["line"], limit=1))["content"] == row["text"]


async def test_exactly_max_matches_is_not_truncated(agent) -> None:
    """K-3: truncated means that there are more, not that the limit was met."""
    exact = await agent("scan", name="log", pattern="^error", max_matches=10)
    assert (exact["matches"], exact["truncated"]) == (10, False)
    more = await agent("scan", name="log", pattern="^error", max_matches=9)
    assert (more["matches"], more["truncated"], more["total"]) == (9, True, 10)


async def test_matches_default_to_50_and_stop_at_200(agent) -> None:
    """K-3: the default and the cap."""
    assert (await agent("scan", name="log", pattern="line"))["matches"] == 50
    assert (await agent("scan", name="log", pattern="line", max_matches=5000))["matches"] == 200


async def test_lines_around_a_match_stop_at_200(connect_own) -> None:
    """K-3: an endless number of them is no reason to send a whole text with each match, loaded or made by code."""
    lines = [f"line {n}" for n in range(1000)]
    async with connect_own() as agent:
        await agent("load_context", name="log", content="\n".join(lines))
        await agent.run("made = list(log['lines'])")
        for name in ("log", "made"):
            endless = await agent("scan", name=name, pattern="line 500", context_lines=10**9)
            exact = await agent("scan", name=name, pattern="line 500", context_lines=200)
            assert [result["context"] for result in endless["results"]] == [lines[300:701]]
            assert exact["results"] == endless["results"]


async def test_context_lines_surround_the_match(agent) -> None:
    """K-3: the lines before and after, the match among them."""
    found = await agent("scan", name="log", pattern="failure 100$", context_lines=1)
    assert found["results"] == [
        {"line": 100, "text": "ERROR: failure 100", "context": ["line 99", "ERROR: failure 100", "line 101"]}
    ]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", "(?P<a>x)(?P<a>y)", "\\"])
async def test_a_bad_pattern_is_refused_with_the_reason(agent, pattern) -> None:
    """K-3: invalid_regex."""
    refused = await agent("scan", name="log", pattern=pattern)
    assert (refused["error"], refused["pattern"]) == ("invalid_regex", pattern)
    assert ("with a backslash" in refused["message"], "with a backslash" in refused["hint"]) == (False, True)  # once


async def test_a_catastrophic_pattern_ends_in_an_error_or_a_result(agent, monkeypatch) -> None:
    """K-3: backtracking without end is stopped; the next search works."""
    await agent("load_context", name="evil", content="a" * 40 + "!\n" + "b")
    with monkeypatch.context() as patch:
        patch.setattr("rlm_mcp.service.contexts.reading.SCAN_SECONDS", 1.0)
        answer = await agent("scan", name="evil", pattern=r"(?=(a+)+$)(a+)+\1$")
    assert answer.get("error") == "scan_timeout" or answer["matches"] == 0
    assert (await agent("scan", name="evil", pattern="b"))["matches"] == 1


async def test_a_long_result_is_a_preview_and_the_name_of_the_whole(agent) -> None:
    """K-3: what does not fit is in a context of its own, one result a line."""
    await agent("load_context", name="wide", content="\n".join(f"ERROR {n} " + "x" * 300 for n in range(200)))
    found = await agent("scan", name="wide", pattern="error", max_matches=200)
    assert len(agent.text) <= 8000
    assert (found["matches"], found["truncated"], found["cut"]) == (200, True, True)
    assert 5 < len(found["results"]) < 200
    assert {(row["cut"], row["rest"]) for row in found["results"]} == {(True, "full_output")}
    assert all(row["text"].endswith("x…[of 308 characters]") for row in found["results"][:10])
    whole = await agent("peek", name=found["full_output"], max_chars=500_000)
    assert [json.loads(line)["line"] for line in whole["content"].split("\n")] == list(range(200))


async def test_kept_outputs_are_listed_and_bounded(agent) -> None:
    """K-4: out_N is a context like any other; the oldest of many make room."""
    await agent("load_context", name="wide", content="\n".join("ERROR " + "x" * 500 for n in range(50)))
    names = [(await agent("scan", name="wide", pattern="error"))["full_output"] for _ in range(20)]
    assert names == [f"out_{n}" for n in range(1, 21)]
    listed = [row["name"] for row in (await agent("list_vars"))["variables"]]
    assert [name for name in listed if name.startswith("out_")] == names[-16:]


async def test_scan_takes_flags_and_a_cursor(agent) -> None:
    """K-3: by default the fields are those of the seed; what is asked for in addition comes in addition."""

    async def lines(**given) -> list[int]:
        return [match["line"] for match in (await agent("scan", name="log", **given))["results"]]

    plain = await agent("scan", name="log", pattern="error")
    assert list(plain) == ["name", "pattern", "matches", "truncated", "results"]
    assert await lines(pattern="error", flags=["case"]) == []
    assert await lines(pattern="failure .00", flags=["fixed"]) == []
    assert await lines(pattern="fail", flags=["word"]) == []
    assert await lines(pattern="line", flags=["invert"]) == list(range(0, 1000, 100))
    assert await lines(pattern="error", start_line=301, max_matches=2) == [400, 500]
    assert "notice" not in await agent("scan", name="log", pattern="no match", start_line=999)
    past = await agent("scan", name="log", pattern="error", start_line=1000)
    assert past["notice"] == "nothing was searched: log has 1,000 lines, and start_line counts from 0"
    counted = await agent("scan", name="log", pattern="line", max_matches=1, flags=["count"])
    assert (counted["total"], counted["truncated"]) == (990, True)
    refused = await agent("scan", name="log", pattern="line", flags=["per_file"])
    assert refused["error"] == "invalid_arguments"
    assert "load a directory" in str(refused)


@pytest.mark.parametrize(
    ("pattern", "flags", "told"),
    [
        ("line 1\nline 2", [], True),
        (r"line 1\n+line 2", [], True),
        ("line 1\nline 2", ["fixed"], True),
        (r"line 1\nline 2", ["fixed"], False),
        (r"C:\\new", [], False),
        (r"none[^\n]*", [], False),
        (r"line 1$|\n", [], False),
    ],
)
async def test_a_search_for_a_newline_says_that_lines_have_none(
    agent, pattern: str, flags: list[str], told: bool
) -> None:
    """K-10: without a word, the reader would take it that the text does not have these lines."""
    found = await agent("scan", name="log", pattern=pattern, flags=flags)
    assert (found["results"] == []) is (pattern != r"line 1$|\n")
    assert ("lines are searched one by one" in found.get("notice", "")) is told


async def test_citations_are_checked_against_the_text_they_name(agent) -> None:
    """Ours: a quotation stands, stands elsewhere, or was of another text."""
    cited = await agent("cite", name="log", lines="99-100")
    assert (cited["lines"], cited["text"]) == ("99-100", "line 99\nERROR: failure 100")
    quote = {"name": "log", "quote": "failure 100"}
    true = await agent("check_citation", **quote, lines="99-100", hash=cited["hash"])
    assert true == {"name": "log", "stands": True, "hash": cited["hash"], "found_at": "100"}
    assert (await agent("check_citation", **quote, lines=7)) == {**true, "stands": False}
    assert "found_at" not in await agent("check_citation", name="log", quote="failure 101")
    await agent("load_context", name="log", content="failure 100")
    stale = await agent("check_citation", **quote, hash=cited["hash"])
    assert (stale["stands"], stale["found_at"]) == (False, "0")
    assert "another text" in stale["note"]
    assert (await agent("cite", name="log", lines="5"))["error"] == "invalid_arguments"
    missing = await agent("cite", name="none", lines="5")
    assert (missing["error"], missing["name"], missing["available"]) == ("variable_not_found", "none", ["log"])
