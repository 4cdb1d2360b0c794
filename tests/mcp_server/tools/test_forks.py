"""Forks and rollbacks through the tools: what the agent is told, what is in the rows, what ends with what."""

import asyncio
from pathlib import Path

import pytest
from waiting import until

pytestmark = pytest.mark.anyio


async def test_a_fork_is_a_session_of_its_own(connect_own) -> None:
    """Its name is told; variables and texts are there, and what either does the other does not see."""
    async with connect_own("tree") as agent:
        await agent("load_context", name="log", content="one\ntwo\n")
        await agent.run("n = 1")
        told = await agent("fork_session")
        assert (told["session"], told["forked_from"], told["source"]) == ("tree-f1", "tree", "live")
        assert told["contexts"] == ["log"]
        assert Path(told["connection_file"]).is_file()
        fork = told["session"]
        assert (await agent.run("n += 10; print(n, log['line_count'])", session=fork))["stdout"] == "11 2\n"
        assert (await agent.run("n"))["result"] == "1"
        assert (await agent("peek", name="log", session=fork))["content"] == "one\ntwo"
        await agent("load_context", name="more", content="x", session=fork)
        assert [v["name"] for v in (await agent("list_vars"))["variables"]] == ["log", "n"]
        again = await agent("fork_session", session=fork)
        assert again["session"] == "tree-f2"


async def test_a_fork_ends_alone_and_outlives_its_parent(connect_own) -> None:
    """Texts and scratch files stay as long as one of the two is there."""
    async with connect_own("parent") as agent:
        await agent("load_context", name="log", content="one\n")
        written = await agent.run("with open('kept.txt', 'w') as file: file.write('kept')")
        assert written["error"] is None
        await agent("fork_session", name="child")
        await agent("fork_session", name="other")
        assert await agent("end_session", session="other") == {"ended": "other", "unloaded": ["log"]}
        scratch = Path((await agent("status"))["kernel"]["scratch"])
        await agent("end_session")
        answer = await agent.run("print(open('kept.txt').read(), log['content'])", session="child")
        assert answer["stdout"] == "kept one\n\n"
        await agent("end_session", session="child")
        assert not scratch.exists()


async def pending(agent, *names: str) -> list[list[str]]:
    """The pending queries of sessions, by their ids."""
    return [(await agent("status", session=name))["pending_llm_queries"] for name in names]


async def test_an_open_query_is_asked_once_and_its_answer_reaches_every_fork(connect_own) -> None:
    """It belongs to the session that asked it; forks, and theirs, find the answer in their placeholders."""
    async with connect_own("asks") as agent:
        await agent.run("a = llm_query('why?')")
        told = await agent("fork_session", name="fork")
        assert (told["pending_llm_queries"], told["inherited_llm_queries"]) == ([], ["q_000"])
        await agent("fork_session", name="below", session="fork")
        assert await pending(agent, "asks", "fork", "below") == [["q_000"], [], []]
        await agent("answer_queries", answers=["because"])
        for name in ("asks", "fork", "below"):
            assert (await agent.run("print(a)", session=name))["stdout"] == "because\n"
        assert "inherited_llm_queries" not in await agent("fork_session", name="later")


async def test_a_fork_may_answer_for_itself(connect_own) -> None:
    """Numbers are not used twice, its answer is not its parent's, and its parent's does not take its place."""
    async with connect_own("asks") as agent:
        await agent.run("a = llm_query('why?')")
        await agent("fork_session", name="fork")
        assert (await agent("answer_queries", answers={"q_000": "because"}, session="fork"))["answered"] == ["q_000"]
        code = "b = llm_query('and?'); print(a)"
        answer = await agent.run(code, session="fork")
        assert answer["stdout"] == "because\n"
        assert [query["id"] for query in answer["pending_llm_queries"]] == ["q_001"]
        assert await pending(agent, "asks", "fork") == [["q_000"], ["q_001"]]
        await agent("answer_queries", answers={"q_000": "since"})
        assert (await agent.run("print(a)"))["stdout"] == "since\n"
        assert (await agent.run("print(a)", session="fork"))["stdout"] == "because\n"


async def test_a_query_whose_session_ends_goes_to_its_oldest_fork(connect_own) -> None:
    """Somebody can still answer it, once, and the other fork finds the answer, too."""
    async with connect_own("asks") as agent:
        await agent.run("a = llm_query('why?')")
        for name in ("older", "younger"):
            await agent("fork_session", name=name)
        await agent("end_session")
        assert await pending(agent, "older", "younger") == [["q_000"], []]
        await agent("answer_queries", answers=["because"], session="older")
        assert (await agent.run("print(a)", session="younger"))["stdout"] == "because\n"


async def test_a_query_that_is_rolled_back_stays_with_the_fork_that_holds_it(connect_own) -> None:
    """The fork still has the placeholder that its parent has no more."""
    async with connect_own("asks") as agent:
        await agent.run("n = 1")
        await until(lambda: agent("status"), lambda told: told["kernel"]["checkpoint"])
        await agent.run("a = llm_query('why?')")
        await agent("fork_session", name="fork")
        assert (await agent("rollback"))["cancelled_llm_queries"] == ["q_000"]
        assert await pending(agent, "asks", "fork") == [[], ["q_000"]]


async def test_a_restarted_daemon_knows_which_queries_are_inherited(connect_own, reopen) -> None:
    """The kernel of a fork tells it again of all that are pending: none is asked a second time."""
    async with connect_own("asks") as agent:
        await agent.run("a = llm_query('why?')")
        await agent("fork_session", name="fork")
        async with reopen() as connect, connect("asks") as later:
            assert await pending(later, "asks", "fork") == [["q_000"], []]


async def test_policies_of_forks(connect_own) -> None:
    """A stricter one is in force, a looser one is refused with its fields, and nothing is left of the refused."""
    async with connect_own("rules") as agent:
        await agent.run("import os, math")
        told = await agent("fork_session", policy="strict", name="careful")
        assert told["policy"] == "strict"
        assert told["modules_not_admitted"] == ["os"]
        refused = await agent.run("import os", session="careful")
        assert "not available under policy" in refused["error"] or "os" in refused["error"]
        assert (await agent.run("math.sqrt(4)", session="careful"))["result"] == "2.0"
        looser = await agent("fork_session", policy="trusted", name="free")
        assert looser["error"] == "policy_looser"
        assert any(field.startswith("network: ") for field in looser["fields"])
        assert "network" not in looser["message"]  # the fields are dozens, and an agent pays for each word
        up_again = await agent("fork_session", policy="default", session="careful")
        assert up_again["error"] == "policy_looser"
        taken = await agent("fork_session", name="careful")
        assert taken["error"] == "session_exists"


async def test_a_fork_while_code_runs(connect_own, clock) -> None:
    """It comes from the checkpoint, says so, and the running code is not touched."""
    async with connect_own("busy") as agent, connect_own("busy") as other:
        await agent.run("n = 1")
        await until(lambda: agent("status"), lambda told: told["kernel"]["checkpoint"])
        running = asyncio.create_task(agent.run(f"n = 2\n{agent.HELD}n"))
        await until(lambda: other("status"), lambda told: told["kernel"]["state"] == "busy")
        told = await other("fork_session", name="before")
        assert told["source"] == "checkpoint"
        assert "as they were before it" in told["notice"]
        assert (await other.run("n", session="before"))["result"] == "1"
        assert not running.done()
        await other.let_go()
        assert (await running)["result"] == "2"


async def test_forks_of_a_running_session_at_once(connect_own) -> None:
    """They come from one copy, one after the other; of two with one name the second is refused, and leaves nothing."""
    async with connect_own("many") as agent, connect_own("many") as other:
        await agent.run("n = 1")
        await until(lambda: agent("status"), lambda told: told["kernel"]["checkpoint"])
        running = asyncio.create_task(agent.run(f"{agent.HELD}n"))
        await until(lambda: other("status"), lambda told: told["kernel"]["state"] == "busy")
        names = [f"m{number}" for number in range(5)] + ["m0"]
        told = await asyncio.gather(*(other("fork_session", name=name) for name in names))
        assert [answer.get("source") for answer in told].count("checkpoint") == 5, told
        assert [answer.get("error") for answer in told].count("session_exists") == 1, told
        for name in names[:5]:
            answer = await other.run("n", session=name)
            assert answer.get("result") == "1", answer
            assert await other("end_session", session=name) == {"ended": name, "unloaded": []}
        await other.let_go()
        assert (await running)["result"] == "1"


SLOW = """
import os, time
class Slow:
    def __repr__(self):
        open('begun', 'w').close()
        while not os.path.exists('go-on'): time.sleep(0.01)
        return 'slow'
s = Slow()
"""


async def test_a_session_that_cannot_be_forked_yet_keeps_no_other_from_it(connect_own) -> None:
    """While the fork of one waits for what its kernel does, others are forked."""
    async with connect_own("stuck") as agent, connect_own("free") as free:
        await agent.run(SLOW)
        await free.run("n = 1")
        looking = asyncio.create_task(agent("peek", name="s"))
        begun = Path((await free("status", session="stuck"))["kernel"]["scratch"], "begun")
        await until(begun.exists)
        forking = asyncio.create_task(agent("fork_session", name="later"))
        assert (await free("fork_session", name="now"))["source"] == "live"
        assert not looking.done()
        assert not forking.done()
        begun.with_name("go-on").touch()
        assert (await forking)["session"] == "later"
        await looking


async def test_a_restarted_daemon_finds_forks_again(connect_own, reopen) -> None:
    """The rows and the kernel's label are those of any session."""
    async with connect_own("first") as agent:
        await agent.run("n = 5")
        await agent("fork_session", name="second", policy="strict")
        async with reopen() as connect, connect("second") as later:
            assert (await later.run("n"))["result"] == "5"
            assert (await later("status"))["policy"] == "strict"


async def test_a_rollback_tells_what_it_undid_and_what_not(connect_own) -> None:
    """Variables go back, a query of the undone cell is cancelled, texts stay; too many cells are refused."""
    async with connect_own("undo") as agent:
        assert (await agent("rollback"))["error"] == "nothing_to_undo"
        await agent("load_context", name="log", content="one")
        await agent.run("n = 1")
        await until(lambda: agent("status"), lambda told: told["kernel"]["checkpoint"])
        await agent.run("n = 2; new = llm_query('why?')")
        told = await agent("rollback")
        assert told["undone"] == ["n = 2; new = llm_query('why?')"]
        assert (told["variables_restored"], told["variables_gone"]) == (["n"], ["new"])
        assert told["cancelled_llm_queries"] == ["q_000"]
        assert "files" in told["not_undone"]
        answer = await agent.run("print(n, log['content'], 'new' in dir())")
        assert answer["stdout"] == "1 one False\n"
        assert answer["pending_llm_queries"] == []
        refused = await agent("rollback", cells=16)
        assert refused["error"] == "cannot_undo"
        assert "cannot be undone" in refused["message"]
        assert "status says in can_undo" in refused["hint"]
