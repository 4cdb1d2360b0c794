"""The policy `compat`: who gets it, and what every tier says of what it cuts."""

import json
import secrets

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def session() -> str:
    return f"s{secrets.token_hex(4)}"


async def test_the_tools_of_the_first_kernel_bring_its_answers(connect, session) -> None:
    """K-28: a client that names no policy gets `compat` with these tools, and one that names a policy gets that."""
    async with connect(session, RLM_KERNEL_TOOLS="compat") as agent:
        assert (await agent("status"))["policy"] == "compat"
    async with connect(f"{session}-named", RLM_KERNEL_TOOLS="compat", RLM_KERNEL_POLICY="default") as agent:
        assert (await agent("status"))["policy"] == "default"
    async with connect(f"{session}-all", RLM_KERNEL_TOOLS="all") as agent:
        assert (await agent("status"))["policy"] == "default"
    async with connect(f"{session}-policy", RLM_KERNEL_POLICY="compat") as agent:
        listed = [tool.name for tool in (await agent.client.list_tools()).tools]
        assert {"llm_query", "llm_query_batched"} <= set(listed)


async def test_sessions_of_both_policies_are_shared_unless_a_client_says_no(connect, session) -> None:
    """K-28: the session's policy says how long answers are; only who states a stricter one is refused."""
    async with connect(session, RLM_KERNEL_TOOLS="compat") as first:
        await first("load_context", name="log", content="x" * 20_000)
        async with connect(session) as other:
            assert (await other("peek", name="log"))["content"] == "x" * 20_000
        async with connect(session, RLM_KERNEL_POLICY="default") as strict:
            refused = await strict("peek", name="log")
            assert (refused["error"], "limits.answer_chars" in refused["message"]) == ("policy_conflict", True)
    async with connect(f"{session}-b") as first, connect(f"{session}-b", RLM_KERNEL_TOOLS="compat") as other:
        await first("load_context", name="log", content="x" * 20_000)
        assert (await other("peek", name="log"))["cut"] is True


async def test_every_pending_query_is_listed_and_read_by_its_id(attach, session) -> None:
    """K-22: 100 of 100 under `default`; a prompt is whole, or the item says how long it is and how to get it."""
    code = "asked = llm_query_batched([f'{n}: ' + 'line\\n' * 5000 for n in range(100)])\nprint('o' * 9000)"
    async with attach(session) as agent:
        told = await agent.run(code)
        assert len(agent.text) <= 8000
        ids = [f"q_{n:03d}" for n in range(100)]
        assert [query["id"] for query in told["pending_llm_queries"]] == ids
        prompts = [f"{n}: " + "line\n" * 5000 for n in range(100)]
        for query, prompt in zip(told["pending_llm_queries"], prompts, strict=True):
            rest = {"cut": True, "chars": len(prompt), "rest": f"peek('{query['id']}')"}
            assert query == {"id": query["id"], **rest}
        assert (told["cut"], "truncated" in told) == (True, False)
        page = await agent("peek", name="q_073", limit=5000, max_chars=60_000)
        assert (page["content"], page["has_more"]) == (prompts[73].removesuffix("\n"), False)
        every = await agent("peek", name="q_073", offset=10, limit=100)
        assert every["content"] == "\n".join(["line"] * 100)
        waiting = await agent.run("llm_query('x' * 30_000, mode='blocking')")
        (query,) = waiting["pending_llm_queries"]
        assert (waiting["status"], "prompt" in query, query["chars"]) == ("waiting", False, 30_000)
        page = await agent("peek", name=query["id"], max_chars=40_000)
        assert page["content"] == "x" * 30_000
        assert (await agent.answered(**{query["id"]: "y"}))["result"] == "'y'"


async def test_more_queries_than_an_answer_can_name_are_told(attach, session) -> None:
    """K-22: a thousand do not fit by their ids; the answer says that some are missing, and where all are."""
    async with attach(session) as agent:
        told = await agent.run("asked = llm_query_batched([f'{n}: ' + 'x' * 300 for n in range(1000)])")
        assert told["truncated"] is True
        assert 50 < len(told["pending_llm_queries"]) < 1000
        assert (await agent("peek", name=told["full_output"], limit=1))["total_lines"] == 1000


async def test_a_query_without_code_echoes_its_prompt_whole_or_not_at_all(connect, session) -> None:
    """K-22: by both tools."""
    async with connect(session) as agent:
        told = await agent("llm_query", prompt="p" * 9000)
        assert ("prompt" in told, told["id"], told["chars"]) == (False, "q_t000", 9000)
        assert (await agent("peek", name="q_t000", max_chars=10_000))["content"] == "p" * 9000
        told = await agent("llm_query_batched", prompts=["short", "p" * 9000])
        assert told["queries"][0]["prompt"] == "short"
        assert ("prompt" in told["queries"][1], told["queries"][1]["rest"]) == (False, "peek('q_t002')")


@pytest.mark.parametrize("tools", ["core", "compat"])
async def test_a_search_says_what_it_cuts_of_a_line(attach, session, tools) -> None:
    """K-3: the match stands in what is shown, and the item says how long the line is and how to read it."""
    async with attach(session, RLM_KERNEL_TOOLS=tools) as agent:
        lines = ["before " + "b" * 90_000, "a" * 90_000 + " needle " + "a" * 90_000, "after"]
        await agent("load_context", name="log", content="\n".join(lines))
        assert (await agent.run("rows = [line for line in log['lines']]"))["success"]
        shown = {"core": 2000, "compat": 80_000}[tools]
        (found,) = (await agent("scan", name="log", pattern="needle", context_lines=1))["results"]
        assert (found["line"], found["cut"], found["chars"]) == (1, True, 180_008)
        assert found["rest"] == "peek('log', 0, 3)"
        assert found["text"].endswith("a…[of 180,008 characters]")
        assert [line.rpartition("…")[2] for line in found["context"]] == [
            "[of 90,007 characters]",
            "[of 180,008 characters]",
            "after",
        ]
        assert shown < len(found["context"][0]) <= shown + 30
        (alone,) = (await agent("scan", name="log", pattern="needle"))["results"]
        assert (alone["rest"], " needle " in alone["text"]) == ("peek('log', 1, 1)", True)
        (row,) = (await agent("scan", name="rows", pattern="needle"))["results"]
        assert (row["line"], row["cut"], row["chars"], row["rest"]) == (1, True, 180_008, "peek('rows', 1, 1)")
        (short,) = (await agent("scan", name="rows", pattern="after", context_lines=1))["results"]
        assert (short["text"], short["cut"]) == ("after", True)


async def test_what_a_running_cell_has_printed_says_that_it_is_cut(attach, session) -> None:
    """K-18: the end of it, and how much stands before."""
    async with attach(session) as agent:
        told = await agent("eval_code", code=f"print('o' * 5000, flush=True)\n{agent.HELD}")
        while not told["stdout"]:
            told = await agent("wait", run=told["run"])
        assert (told["status"], told["cut"]) == ("running", True)
        assert told["stdout"].startswith("…[3,001 earlier characters, which come with the result]…\n")
        await agent.let_go()
        done = await agent.finished(told)
        assert done["stdout"] == "o" * 5000 + "\n"


async def test_rows_that_are_left_out_are_told(attach, session) -> None:
    """K-19: `truncated` for every list that lost items for its size, also that of the variables."""
    async with attach(session) as agent:
        for number in range(120):
            await agent("load_context", name=f"text_with_a_long_name_{number:03d}", content="x")
        listed = await agent("list_vars")
        assert (listed["truncated"], len(listed["variables"]) < 120) == (True, True)
        kept = await agent("peek", name=listed["full_output"], max_chars=100_000)
        assert len([json.loads(line) for line in kept["content"].split("\n")]) == 120


async def test_the_daemon_keeps_few_answers_that_are_long(live, attach, session) -> None:
    """K-25: the latest is asked for again as it was, those beyond a bound of characters are gone."""
    async with attach(session, RLM_KERNEL_TOOLS="compat") as agent:
        for _ in range(20):
            assert len((await agent.run("print('o' * 1_000_000)"))["stdout"]) == 1_000_001
        (kept,) = (ids for held in live.runs._runs.values() if len(ids := [run.id for run in held]) > 10)
        assert len(kept) == 16
        assert (await agent("wait", run=kept[0]))["stdout"] == "o" * 1_000_000 + "\n"
        gone = f"r{int(kept[0][1:]) - 1}"
        assert (await agent("wait", run=gone))["error"] == "run_not_found"
