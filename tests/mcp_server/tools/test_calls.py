"""How tools are listed and called: tiers, schemas, bad arguments, prompts, both protocol eras."""

import json

import pytest
from mcp.shared.exceptions import MCPError

from rlm_mcp.daemon.prompts import CONTEXT_KERNEL, INSTRUCTIONS
from rlm_mcp.tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio

CORE = [
    *("load_context", "peek", "scan", "list_vars", "var_info", "unload", "register_handle", "resolve_handle"),
    *("eval_code", "answer_queries", "wait", "interrupt", "status"),
    *("plan", "push", "pop", "frame"),
]
ALL = [
    *CORE,
    "work",
    "handoff",
    "lock",
    "fork_session",
    "rollback",
    "view_images",
    "budget",
    "restart_session",
    "end_session",
    "query",
    "refresh",
    "cite",
    "check_citation",
]
COMPAT = [*ALL, "llm_query", "llm_query_batched", "flame_status", "flame_navigate", "jcode.lock"]


async def listed(connect, **env: str) -> list[dict]:
    async with connect(**env) as agent:
        tools = (await agent.client.list_tools()).tools
    return [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools]


@pytest.mark.parametrize(("tier", "names"), [("core", CORE), ("all", ALL), ("compat", COMPAT)])
async def test_a_tier_lists_its_tools(connect, tier, names) -> None:
    """K-22: the tier is the client's choice; compat has every tool of the original."""
    assert [tool["name"] for tool in await listed(connect, RLM_KERNEL_TOOLS=tier)] == names


async def test_without_a_choice_the_policy_decides_the_tier(connect) -> None:
    """A value that is no tier is no choice."""
    assert [tool["name"] for tool in await listed(connect)] == CORE
    assert [tool["name"] for tool in await listed(connect, RLM_KERNEL_TOOLS="everything")] == CORE


async def test_the_core_list_costs_at_most_1400_tokens(connect) -> None:
    """K-25: an agent pays for the list on every turn; measured as characters of its JSON by four."""
    text = json.dumps(await listed(connect), separators=(",", ":"))
    assert len(text) / 4 <= 1400


async def test_every_tool_is_one_sentence_or_few_and_takes_a_session() -> None:
    """Descriptions are short, schemas are plain objects without references."""
    for tool in TOOLS.tools("compat"):
        schema = tool.schema
        assert len(tool.description) <= 180, tool.name
        assert schema["type"] == "object"
        assert "$ref" not in json.dumps(schema)
        assert '"null"' not in json.dumps(schema)
        assert schema["properties"]["session"] == {"type": "string"}


async def test_a_tool_outside_the_tier_can_still_be_called(connect) -> None:
    """The tier saves tokens, it forbids nothing."""
    async with connect() as agent:
        assert (await agent("llm_query", prompt="why?"))["status"] == "deferred"


async def test_an_unknown_tool_is_told_with_those_there_are(connect) -> None:
    """K-10: unknown_tool."""
    async with connect() as agent:
        answer = await agent("peak", name="x")
        assert agent.is_error
        assert (answer["error"], answer["name"]) == ("unknown_tool", "peak")
        assert answer["available"] == COMPAT


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("peek", {"name": "x", "lines": 3}, "lines: unknown argument"),
        ("peek", {}, "name: Field required"),
        ("peek", {"name": 3}, "name: Input should be a valid string"),
        ("peek", {"name": "x", "offset": "many"}, "offset: Input should be a valid integer"),
        ("peek", {"name": "x", "limit": 0}, "limit: Input should be greater than or equal to 1"),
        ("scan", {"name": "x", "pattern": ""}, "pattern: String should have at least 1 character"),
        ("load_context", {"name": "x"}, "give exactly one of content, path and variable (got none)"),
        ("load_context", {"name": "x", "content": "", "path": "y"}, "(got content and path)"),
        (
            "load_context",
            {"name": "x", "content": "", "metadata": []},
            "metadata: Input should be a valid dict",
        ),
        ("load_context", {"name": "x", "content": "", "metadata": {"a": "x" * 20_000}}, "metadata is longer"),
        ("answer_queries", {"answers": "yes"}, "answers"),
        ("wait", {"run": "r1", "sesion": "s"}, "sesion: unknown argument"),
    ],
)
async def test_bad_arguments_are_refused_with_the_accepted_ones(connect, tool, arguments, said) -> None:
    """K-10: invalid_arguments says what is wrong and lists what the tool takes."""
    async with connect() as agent:
        answer = await agent(tool, **arguments)
        assert agent.is_error
        assert answer["error"] == "invalid_arguments"
        assert said in answer["message"]
        assert set(answer["accepted"]) == set(TOOLS.tools("compat")[COMPAT.index(tool)].schema["properties"])


async def test_the_accepted_arguments_are_told_with_choices_and_defaults(connect) -> None:
    """K-10: whoever is refused learns what to write, and what happens without it."""
    async with connect() as agent:
        accepted = (await agent("pop", status="done"))["accepted"]
        assert accepted["status"] == "completed | failed | blocked, default completed"
        assert accepted["id"] == "string, default none"
        assert (await agent("peek", line=3))["accepted"]["offset"] == "integer, default 0"


@pytest.mark.parametrize("as_list", [False, True])
async def test_a_malformed_answer_fails_alone(connect, as_list) -> None:
    """K-23: the well-formed items of a batch are taken, whatever the others are."""
    async with connect() as agent:
        good, bad = [(await agent("llm_query", prompt="p"))["id"] for _ in range(2)]
        given: object = {good: "yes", bad: {"err": "x"}, "z" * 9000: 3}
        if as_list:
            given = [{"id": good, "answer": "yes"}, {"id": bad}, "nonsense", {"id": bad, "answer": "a", "error": "b"}]
        taken = await agent("answer_queries", answers=given)
        assert not agent.is_error
        assert taken["answered"] == [good]
        assert {item["error"] for item in taken["failed"]} == {"invalid_answer"}
        assert all(len(item["message"]) < 100 for item in taken["failed"])
        assert taken["still_pending"] == [bad]


async def test_numbers_and_objects_may_come_as_text(connect) -> None:
    """Several clients send JSON inside JSON; what is meant is clear."""
    async with connect() as agent:
        await agent("load_context", name="x", content="a\nb", metadata='{"path": "p"}')
        assert (await agent("var_info", name="x"))["metadata"] == {"path": "p"}
        assert (await agent("peek", name="x", offset="1"))["content"] == "b"
        assert (await agent("register_handle", name="x", share_with='["*"]'))["shared_with"] == ["*"]


async def test_null_stands_for_an_argument_that_is_not_given(connect) -> None:
    """Models that are held to a strict schema send every argument of a tool."""
    async with connect() as agent:
        await agent("load_context", name="log", content="one\ntwo\n", path=None, metadata=None, content_type=None)
        page = await agent("peek", name="log", offset=None, limit=None, max_chars=None, session=None)
        assert (page["offset"], page["returned"]) == (0, 2)
        assert (await agent("scan", name="log", pattern="o", flags=None, max_matches=None))["matches"] == 2
        missing = await agent("peek", name=None)
        assert (missing["error"], missing["message"]) == ("invalid_arguments", "peek: name: Field required")


async def test_an_error_with_many_names_stays_readable(connect) -> None:
    """K-10: a thousand names do not flood the answer."""
    async with connect() as agent:
        for n in range(60):
            await agent("load_context", name=f"x{n:03d}", content="x")
        answer = await agent("peek", name="y")
        assert len(answer["available"]) == 51
        assert answer["available"][-1] == "… and 10 more"


async def test_the_prompt_teaches_the_practices(connect) -> None:
    """K-26: insights not data, scan before peek, unload when done, as a prompt and in the instructions."""
    async with connect() as agent:
        prompt, *_ = (await agent.client.list_prompts()).prompts
        assert prompt.name == "context-kernel"
        (message,) = (await agent.client.get_prompt("context-kernel")).messages
        assert message.content.text == CONTEXT_KERNEL
        assert agent.client.instructions == INSTRUCTIONS
        with pytest.raises(MCPError, match="there is no prompt 'other'; available: context-kernel"):
            await agent.client.get_prompt("other")
    for words in ("insights, not data", "unload"):
        assert words in CONTEXT_KERNEL
        assert words in INSTRUCTIONS
    assert "Scan before you peek" in CONTEXT_KERNEL


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_both_protocol_eras_are_served(connect, mode) -> None:
    """One text block of compact JSON, nothing structured beside it."""
    async with connect(mode=mode) as agent:
        await agent("load_context", name="x", content="é")
        result = await agent.client.call_tool("peek", {"name": "x"})
        assert result.structured_content is None
        assert result.content[0].text.startswith('{"name":"x","offset":0,')
        assert "é" in result.content[0].text


async def test_a_fault_of_ours_is_told_and_logged(connect, monkeypatch, caplog) -> None:
    """What nobody expected is an answer, and the daemon goes on."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    async with connect() as agent:
        with monkeypatch.context() as patch:
            patch.setattr("rlm_mcp.service.contexts.reading.Reading.list_vars", broken)
            answer = await agent("list_vars")
        assert answer["error"] == "internal_error"
        assert "ZeroDivisionError: oh" in answer["message"]
        assert "ZeroDivisionError" in caplog.text
        assert (await agent("list_vars"))["variables"] == []


async def test_without_a_kernel_host_code_fails_and_texts_go_on(connect) -> None:
    """K-10: what cannot start is told; loaded texts do not need it."""
    async with connect() as agent:
        await agent("load_context", name="x", content="a")
        answer = await agent("eval_code", code="1")
        assert answer["error"] == "kernel_died"
        assert "there is no supervisor in this test" in answer["message"]
        assert (await agent("peek", name="x"))["content"] == "a"
