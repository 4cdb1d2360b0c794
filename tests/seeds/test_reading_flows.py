"""Load once, reference many: the flows of the first phase, each answer whole."""

import asyncio
import json
from typing import Any

import pytest
from programs import SkillMcp, load_context, peek, production_log, scan

pytestmark = pytest.mark.anyio


async def test_the_basic_pattern(skill_mcp, call_omo_agent, session) -> None:
    """K-1, K-4, K-3, K-2: a root loads, a sub-agent lists, searches and reads; what it gets is what stands there."""
    lines = production_log()
    content = "\n".join(lines)
    loaded = await load_context(
        skill_mcp,
        "prod_log",
        content,
        content_type="log",
        metadata={"path": "production.log", "size": len(content)},
    )
    assert loaded == {
        "name": "prod_log",
        "line_count": 100_000,
        "size": len(content.encode()),
        "type": "log",
        "expires_in": "5 minutes if not accessed",
    }

    async def sub_agent(skill_mcp: SkillMcp, prompt: str) -> str:
        assert "'prod_log'" in prompt
        known = json.loads(await skill_mcp(mcp_name="context_kernel", tool_name="list_vars"))
        assert known["session"] == session
        (row,) = known["variables"]
        assert (row["name"], row["line_count"], row["type"]) == ("prod_log", 100_000, "log")
        assert known["total_size"] == row["size"] == len(content.encode())
        errors = await scan(skill_mcp, "prod_log", "ERROR|FATAL", context_lines=2, max_matches=50)
        assert (errors["matches"], errors["truncated"], len(errors["results"])) == (50, True, 50)
        for match in errors["results"]:
            at = match["line"]
            assert match == {"line": at, "text": lines[at], "context": lines[max(at - 2, 0) : at + 3]}
        first = await peek(skill_mcp, "prod_log", 0, 100)
        assert (first["has_more"], first["total_lines"], first["returned"]) == (True, 100_000, 100)
        assert first["content"] == "\n".join(lines[:100])
        return f"Found {errors['matches']} critical errors at lines {errors['results'][0]['line']}, ..."

    insight = await call_omo_agent(sub_agent, "Analyze errors in variable 'prod_log'.")
    assert insight == "Found 50 critical errors at lines 3, ..."


async def test_sub_agents_in_parallel(skill_mcp, call_omo_agent) -> None:
    """K-9, K-25: three agents search one text at once, and each finds everything that there is."""
    lines = production_log(10_000)
    await load_context(skill_mcp, "prod_log", "\n".join(lines), content_type="log", metadata={"date": "2026-01-07"})

    async def sub_agent(skill_mcp: SkillMcp, pattern: str) -> list[int]:
        found = await scan(skill_mcp, "prod_log", pattern, context_lines=1, max_matches=200)
        assert found["truncated"] is False
        assert all(match["text"] == lines[match["line"]] for match in found["results"])
        return [match["line"] for match in found["results"]]

    prompts = ["ERROR|FATAL", "slow query|timeout", "\\b40[13]$"]
    seen = await asyncio.gather(*(call_omo_agent(sub_agent, prompt) for prompt in prompts))
    assert seen[0] == [n for n in range(10_000) if n % 1000 == 3 or n % 100 == 42]
    assert seen[1] == [n for n, line in enumerate(lines) if "slow query" in line or "timeout" in line]
    assert seen[2] == [n for n in range(10_000) if n % 100 == 90]


async def test_two_hundred_matches_with_their_context(skill_mcp) -> None:
    """K-3: the most that a search returns is returned whole, and more than that is told."""
    lines = production_log()
    await load_context(skill_mcp, "log", "\n".join(lines))
    found = await scan(skill_mcp, "log", "error", context_lines=10, max_matches=200)
    assert (found["matches"], found["truncated"], len(found["results"])) == (200, True, 200)
    assert all(match["context"] == lines[max(match["line"] - 10, 0) : match["line"] + 11] for match in found["results"])
    few = await scan(skill_mcp, "log", "FATAL: Checksum")
    assert (few["matches"], few["truncated"]) == (14, False)


async def test_scan_before_peek(skill_mcp) -> None:
    """K-24: the lines around a match are read from ten before it, wherever it stands."""
    lines = ["start", "ERROR in the database", *production_log(5000), "ERROR: the database has gone"]
    await load_context(skill_mcp, "log", "\n".join(lines))
    matches = await scan(skill_mcp, "log", "ERROR.*database")
    around = await peek(skill_mcp, "log", matches["results"][0]["line"] - 10, 20)
    assert around["content"] == "\n".join(lines[:20])
    around = await peek(skill_mcp, "log", matches["results"][1]["line"] - 10, 20)
    assert around["content"] == "\n".join(lines[-11:])


@pytest.mark.parametrize("step", [100, 2000, 20_000])
async def test_reading_everything_sequentially(skill_mcp, step) -> None:
    """K-2: a loop that adds its own limit sees every line, up to the most lines that a page has."""
    lines = production_log(1000 if step == 100 else 100_000)
    await load_context(skill_mcp, "log", "\n".join(lines))
    seen: list[str] = []
    for i in range(0, len(lines), step):
        page = await peek(skill_mcp, "log", i, None if step == 2000 else step)
        assert (page["offset"], page["limit"], page["returned"]) == (i, step, step)
        seen += page["content"].split("\n")
    assert seen == lines


async def test_explicit_cleanup(skill_mcp, call_omo_agent) -> None:
    """K-6, K-10: load, use, clean up; then the text is not there, and the answer says what is."""
    await load_context(skill_mcp, "kept", "one line")
    await load_context(skill_mcp, "temp", "\n".join(production_log(20_000)))

    async def sub_agent(skill_mcp: SkillMcp, prompt: str) -> int:
        return (await scan(skill_mcp, "temp", "fatal"))["matches"]

    assert await call_omo_agent(sub_agent, "Process 'temp'") == 20
    assert json.loads(await skill_mcp(tool_name="unload", arguments=json.dumps({"name": "temp"}))) == {
        "unloaded": "temp"
    }
    gone = await peek(skill_mcp, "temp")
    assert (gone["error"], gone["name"], gone["available"]) == ("variable_not_found", "temp", ["kept"])


async def test_the_manual_tests(skill_mcp) -> None:
    """K-1 ... K-5: the five lines of the documentation, call by call, with its fields."""
    loaded = await load_context(
        skill_mcp, "test", "line 1\nline 2\nline 3\nERROR: test error\nline 5", content_type="test"
    )
    assert (loaded["line_count"], loaded["type"]) == (5, "test")
    (row,) = json.loads(await skill_mcp(tool_name="list_vars"))["variables"]
    assert row.keys() >= {"name", "line_count", "size", "type", "created"}
    found = await scan(skill_mcp, "test", "ERROR")
    assert found == {
        "name": "test",
        "pattern": "ERROR",
        "matches": 1,
        "truncated": False,
        "results": [{"line": 3, "text": "ERROR: test error", "context": []}],
    }
    page = await peek(skill_mcp, "test", 0, 3)
    assert page.pop("next_offset") == 3
    assert page == {
        "name": "test",
        "offset": 0,
        "limit": 3,
        "total_lines": 5,
        "returned": 3,
        "has_more": True,
        "content": "line 1\nline 2\nline 3",
    }
    info = json.loads(await skill_mcp(tool_name="var_info", arguments=json.dumps({"name": "test"})))
    assert info.keys() >= {"name", "line_count", "size", "type", "metadata", "created", "last_accessed"}


async def test_a_sub_agent_reads_a_text_of_one_line(skill_mcp, call_omo_agent) -> None:
    """K-2: the integration test: 50,000 characters without a newline are one line, and it is whole."""
    big_file = "x" * 50_000
    await load_context(skill_mcp, "big", big_file)

    async def sub_agent(skill_mcp: SkillMcp, prompt: str) -> Any:
        found = await scan(skill_mcp, "big", "x+")
        assert found["results"] == [{"line": 0, "text": big_file, "context": []}]
        page = await peek(skill_mcp, "big")
        assert page["content"] == big_file
        return page["content"][:100]

    assert await call_omo_agent(sub_agent, "Use peek() to read the first 100 chars of 'big'.") == "x" * 100


async def test_a_handle_crosses_sessions(skill_mcp, start_agent, session) -> None:
    """K-7, K-9: what one session has registered another one reads by the variable's name."""
    lines = production_log()
    await load_context(skill_mcp, "data", "\n".join(lines), content_type="log")
    registered = json.loads(await skill_mcp(tool_name="register_handle", arguments=json.dumps({"name": "data"})))
    assert (registered["var_name"], registered["type"]) == ("data", "log")
    assert registered["handle"].startswith(f"ctx_{session[:8]}_log_")
    async with start_agent(f"{session}-b") as other:
        asked = json.dumps({"handle": registered["handle"]})
        resolved = json.loads(await other(tool_name="resolve_handle", arguments=asked))
        assert (resolved["handle"], resolved["session"], resolved["type"]) == (registered["handle"], session, "log")
        page = await peek(other, resolved["var_name"], 0, 100)
        assert page["content"] == "\n".join(lines[:100])
        await other("end_session")


async def test_the_quota(skill_mcp) -> None:
    """K-13: what goes over 100 MB is refused in the words of the documentation, and what is there stays."""
    await load_context(skill_mcp, "data", "x" * 60_000_000)
    refused = await load_context(skill_mcp, "more", "y" * 60_000_000)
    assert refused["error"] == "quota_exceeded"
    assert "would exceed 100MB limit" in refused["message"]
    assert (await peek(skill_mcp, "more"))["available"] == ["data"]
