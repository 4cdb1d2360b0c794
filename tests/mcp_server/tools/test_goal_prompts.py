"""Goals as a client's user sees them: slash commands, and resources to read."""

import pytest
from mcp.shared.exceptions import MCPError

from rlm_memory.frames.prompts import COMPLETION, OVERFLOW

pytestmark = pytest.mark.anyio


async def test_the_verbs_of_goals_are_prompts(connect) -> None:
    """F-3, E-16: each names its tool; what the user types behind the command is in the text, as it is."""
    async with connect() as agent:
        listed = {prompt.name: prompt for prompt in (await agent.client.list_prompts()).prompts}
        tools = {
            "plan": "plan(",
            "push": "push(",
            "pop": "pop(",
            "frame-completion": "pop(",
            "overflow-compaction": "frame(note=",
            "status": "frame(",
            "work": 'work(do="next"',
            "frame": "frame(",
        }
        assert list(listed) == ["context-kernel", *tools]
        for name, tool in tools.items():
            taken = listed[name].arguments or []
            given = {argument.name: "{id} the {goal} %s" for argument in taken}
            (message,) = (await agent.client.get_prompt(name, given)).messages
            assert f"`{tool}" in message.content.text
            assert message.content.text.endswith("{id} the {goal} %s") == bool(taken)
            (message,) = (await agent.client.get_prompt(name)).messages
            assert message.content.text.endswith(".")


async def test_an_end_and_an_overflow_are_condensed_by_different_prompts(connect) -> None:
    """F-7: one asks for what came of a goal, the other for what is needed to go on with it."""
    async with connect() as agent:
        told = [
            (await agent.client.get_prompt(name)).messages[0].content.text
            for name in ("frame-completion", "overflow-compaction")
        ]
    for text, template in zip(told, (COMPLETION, OVERFLOW), strict=True):
        assert text.startswith(template.partition("{record}")[0])
    assert ["the outcome of the goal" in text for text in told] == [True, False]
    assert ["the immediate next step" in text for text in told] == [False, True]


async def test_the_tree_a_context_and_a_log_are_resources(connect_own) -> None:
    """F-9: what the tools tell, to be read without a call, and without a change of the current frame."""
    async with connect_own("root") as agent:
        await agent("plan", goal="story", children=["read", "write"])
        await agent("push", goal="f3")
        await agent.run("print('FACT')", session="f3")
        context = (await agent("frame"))["context"]
        tree = next(found for found in (await agent.client.list_resources()).resources if found.name == "tree")
        assert await _read(agent, tree.uri) == "\n".join((await agent("frame"))["tree"])
        by_name = {found.name: found for found in (await agent.client.list_resource_templates()).resource_templates}
        assert await _read(agent, by_name["context"].uri_template.replace("{id}", "f3")) == context
        log = by_name["log"].uri_template.replace("{id}", "f3")
        with pytest.raises(MCPError, match="frame f3 is in_progress and has no log; pop it"):
            await _read(agent, log)
        await agent("pop", summary="Done.")
        told = await _read(agent, log)
        assert told.startswith("---\nframe: f3\n")
        assert "FACT" in told
        await _read(agent, "rlm-kernel://frames/f4/context")
        assert (await agent("frame"))["current"] == "f2"


async def test_what_is_no_resource_is_said(connect) -> None:
    """An address of another form, and a frame that there is not."""
    async with connect("root") as agent:
        for uri in ("rlm-kernel://other", "rlm-kernel://frames/f1/../../etc", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="there is nothing at"):
                await _read(agent, uri)
        with pytest.raises(MCPError, match="no frame 'f9'"):
            await _read(agent, "rlm-kernel://frames/f9/context")


async def _read(agent, uri: str) -> str:
    (content,) = (await agent.client.read_resource(uri)).contents
    return content.text
