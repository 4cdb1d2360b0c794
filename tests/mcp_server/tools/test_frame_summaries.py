"""A model's summary in the place of an extract: asked by the policy, answered by an agent or by a real endpoint."""

import secrets

import pytest
from model_endpoint import Reply
from waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def policy(isolation):
    """Write a policy and name it."""

    def write(llm, more=""):
        name = f"p{secrets.token_hex(4)}"
        folder = isolation.config / "policies"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(f"extends: default\nllm: {{summaries: true, {llm}}}\n{more}\n")
        return name

    return write


async def test_a_provider_summarizes_a_frame_that_ended_without_a_summary(
    connect_own, policy, endpoint, isolation
) -> None:
    """F-7: it is asked by the completion prompt with what ran; its answer is in the context and in the kernel above."""
    endpoint.configure(isolation.config, retries=0)
    endpoint.reply = lambda _: Reply("Seventeen errors, all in db.py:42.")
    async with connect_own("root", RLM_KERNEL_POLICY=policy("mode: provider")) as agent:
        await agent("push", goal="count the errors")
        await agent.run("print('FACT 17')", session="f2")
        popped = await agent("pop", id="f2")
        assert (popped["source"], popped.get("pending_llm_queries")) == ("extract", None)

        async def summarized():
            return (await agent("frame", id="f2"))["summary_by"] == "model"

        await until(summarized)
        shown = await agent("frame", id="f1")
        assert "<summary>Seventeen errors, all in db.py:42.</summary>" in shown["context"]
        assert (await agent.run("frames['f2']['summary']"))["result"] == "'Seventeen errors, all in db.py:42.'"
        assert (await agent("budget"))["calls"]["used"] == 1
        (asked,) = endpoint.requests
        assert asked.prompt.startswith("A frame, which is a goal in a tree of goals, has ended.")
        assert "goal of f2: count the errors" in asked.prompt
        assert "FACT 17" in asked.prompt
        await agent("push", goal="say it")
        await agent("pop", summary="Said by the caller.")
        assert len(endpoint.requests) == 1


async def test_an_agent_is_asked_for_the_summary_by_the_answer_to_its_pop(connect_own, policy) -> None:
    """F-7: the query is pending in the session above, and its answer replaces the extract, in the same place."""
    async with connect_own("root", RLM_KERNEL_POLICY=policy("mode: deferred")) as agent:
        await agent("push", goal="story")
        await agent("push", goal="task", session="f2")
        await agent.run("print('half')", session="f3")
        popped = await agent("pop", id="f2", children="fail", summary="given up")
        assert "pending_llm_queries" not in popped  # its own summary was said; that of f3 was not
        (asked,) = (await agent("status"))["pending_llm_queries"]
        assert "goal of f3: task" in (await agent("peek", name=asked))["content"]
        assert (await agent("answer_queries", answers={asked: "Half was done."}))["answered"] == [asked]
        shown = await agent("frame", id="f3")
        assert (shown["summary"], shown["summary_by"]) == ("Half was done.", "model")
        await agent("push", goal="another")
        again = await agent("pop")
        (asked,) = again["pending_llm_queries"]
        assert (await agent("pop", id="f4"))["pending_llm_queries"] == [asked]
        before = (await agent("frame", id="f1"))["context"]
        extract = "<summary>completed: another (no cell ran)</summary>"
        assert extract in before
        await agent("answer_queries", answers={asked["id"]: "Nothing to do."})
        assert (await agent("frame"))["context"] == before.replace(extract, "<summary>Nothing to do.</summary>")
        assert "pending_llm_queries" not in await agent("pop", id="f4")


async def test_the_extract_stays_when_nobody_can_say_more(connect_own, policy, endpoint, isolation) -> None:
    """A provider that fails, a budget that is used up, and a policy that asks nobody."""
    endpoint.configure(isolation.config, retries=0)
    endpoint.reply = lambda _: Reply("no", status=400)
    failing = policy("mode: provider", "limits: {queries: 1}")
    async with connect_own("root", RLM_KERNEL_POLICY=failing) as agent:
        for goal in ("one", "two"):
            await agent("push", goal=goal)
            await agent("pop")

        async def told():
            return not (await agent("status"))["pending_llm_queries"] and endpoint.requests

        await until(told)
        assert len(endpoint.requests) == 1
        assert [(await agent("frame", id=frame))["summary_by"] for frame in ("f2", "f3")] == ["extract", "extract"]
    async with connect_own("other") as agent:
        await agent("push", goal="goal")
        assert "pending_llm_queries" not in await agent("pop")
        assert (await agent("status"))["pending_llm_queries"] == []


async def test_what_is_asked_survives_the_daemon(connect_own, reopen, policy, endpoint, isolation) -> None:
    """F-7, F-11: an agent answers the next daemon; a provider is asked again, though the kernel is gone."""
    endpoint.configure(isolation.config, retries=0)
    endpoint.reply = lambda _: Reply("too late", delay=60)
    async with connect_own("root", RLM_KERNEL_POLICY=policy("mode: provider")) as agent:
        await agent("push", goal="task")
        await agent("pop")
        await until(lambda: endpoint.requests)
    endpoint.reply = lambda _: Reply("In time.")
    async with reopen() as connect, connect("root") as agent:

        async def summarized():
            return (await agent("frame", id="f2"))["summary"] == "In time."

        await until(summarized)
        await agent("end_session")
