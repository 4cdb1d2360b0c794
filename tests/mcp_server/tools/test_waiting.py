"""Blocking queries through the tools: eval_code tells what the code waits for, answer_queries what comes of it."""

import asyncio
import os
import secrets
import signal

import pytest
from waiting import until

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.kernel_reports import AskedQuery
from rlm_memory import queries
from rlm_memory.queries import QueryState

pytestmark = pytest.mark.anyio

BLOCKING = "extends: default\nllm: {mode: blocking}\n"


@pytest.fixture
def blocking(tmp_path) -> str:
    """A policy of the blocking mode."""
    path = tmp_path / "blocking.yaml"
    path.write_text(BLOCKING)
    return str(path)


@pytest.fixture
async def agent(attach, blocking):
    """An agent in a session of its own under the blocking mode, ended afterwards."""
    async with attach(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY=blocking) as agent:
        yield agent
        await agent("end_session")


async def test_the_complex_log_analysis_runs_in_one_cell(agent, live) -> None:
    """K-22, K-23: one eval_code, a question and a batch, and each answer_queries returns what comes next."""
    await agent("load_context", name="log", content="ok\nERROR: disk\nok\nERROR: net\n")
    code = """
errors = [line for line in log['lines'] if 'ERROR' in line]
print(len(errors), 'errors')
kind = llm_query('What is common to ' + ' and '.join(errors), model='flash')
notes = llm_query_batched([f'{kind}: {error}' for error in errors])
print('|'.join(notes))
kind
"""
    asked = await agent.run(code)
    assert (asked["status"], asked["stdout"]) == ("waiting", "2 errors\n")
    prompt = "What is common to ERROR: disk and ERROR: net"
    assert asked["pending_llm_queries"] == [{"id": "q_000", "prompt": prompt, "model": "flash"}]
    assert "answer_queries" in asked["hint"]
    assert await agent("wait", run=asked["run"]) == asked  # nothing happens until somebody answers
    again = await agent.answered(q_000="Hardware", q_777="?")
    assert (again["answered"], [row["id"] for row in again["failed"]]) == (["q_000"], ["q_777"])
    assert (again["status"], again["run"]) == ("waiting", asked["run"])
    assert [row["prompt"] for row in again["pending_llm_queries"]] == ["Hardware: ERROR: disk", "Hardware: ERROR: net"]
    half = await agent.answered(q_002="cable")
    assert ([row["id"] for row in half["pending_llm_queries"]], half["still_pending"]) == (["q_001"], ["q_001"])
    done = await agent.answered(q_001="replace it")
    assert (done["answered"], done["still_pending"]) == (["q_001"], [])
    assert (done["success"], done["stdout"], done["result"]) == (True, "2 errors\nreplace it|cable\n", "'Hardware'")
    assert done["pending_llm_queries"] == []
    assert (await agent("wait", run=asked["run"]))["result"] == "'Hardware'"
    rows = queries.of_session(live._store, live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"]).key)
    assert {(row.id, row.state) for row in rows} == {(f"q_00{n}", QueryState.ANSWERED) for n in range(3)}


async def test_a_long_result_is_kept_whole_and_fits_with_what_was_answered(agent) -> None:
    """K-19: the answer of answer_queries is cut like any other, and wait tells the same once more."""
    asked = await agent.run("llm_query('p')\nfor n in range(1500): print('line', n)")
    done = await agent.answered(q_000="go")
    assert len(agent.text) <= 8000
    assert (done["answered"], done["success"]) == (["q_000"], True)
    whole = done["full_output"]
    assert (await agent("peek", name=whole, offset=1499, limit=1))["content"] == "line 1499"
    assert (await agent("wait", run=asked["run"]))["full_output"] == whole


async def test_code_that_goes_on_for_long_is_running_again(agent) -> None:
    """K-18: an answer does not make a call block longer than it may."""
    asked = await agent.run(f"llm_query('p')\n{agent.HELD}'awake'")
    going = await agent("answer_queries", answers={"q_000": "go"})
    assert (going["answered"], going["status"], going["run"]) == (["q_000"], "running", asked["run"])
    await agent.let_go()
    assert (await agent.finished(going))["result"] == "'awake'"


async def test_code_after_an_interrupt_of_a_cell_that_waits_runs_at_once(agent) -> None:
    """It is not told to answer what nobody waits for any more."""
    for _ in range(5):
        assert (await agent.run("llm_query('who?')"))["status"] == "waiting"
        await agent("interrupt")
        assert (await agent("eval_code", code="6 * 7")).get("result") == "42"


async def test_a_cell_that_waits_is_interrupted_and_what_it_asked_can_be_answered_later(agent) -> None:
    """K-18: the run ends with its error; its query is pending like a deferred one."""
    asked = await agent.run("kept = 1\nllm_query('p')")
    assert (await agent("interrupt"))["interrupted"] == [asked["run"]]
    ended = await agent.run("kept")
    assert ended["result"] == "1"
    stopped = await agent("wait", run=asked["run"])
    assert "CellInterrupted" in stopped["error"]
    assert [row["id"] for row in stopped["pending_llm_queries"]] == ["q_000"]
    assert (await agent.answered(q_000="late"))["still_pending"] == []
    assert (await agent.run("llm_answers['q_000']"))["result"] == "'late'"


async def test_code_that_is_queued_behind_a_waiting_cell_is_told_so(agent) -> None:
    """K-17: it is told at once, with the query; the second cell runs after the first; texts can be loaded meanwhile."""
    asked = await agent.run("first = llm_query('p')")
    queued = await agent("eval_code", code="first + log['content']")
    assert (queued["status"], [row["id"] for row in queued["pending_llm_queries"]]) == ("queued", ["q_000"])
    assert f"run {asked['run']} of this session waits" in queued["hint"]
    assert (await agent("status"))["runs"] == {asked["run"]: "waiting", queued["run"]: "queued"}
    hint = (await agent("wait", run=queued["run"]))["hint"]
    assert "for other code of this session, which waits for answer_queries: q_000; push" in hint
    await agent("load_context", name="log", content="!")
    assert (await agent.answered(q_000="A"))["success"] is True
    assert (await agent.finished(queued))["result"] == "'A!'"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("peek", {"name": "kept"}),
        ("var_info", {"name": "kept"}),
        ("scan", {"name": "kept", "pattern": "o"}),
        ("load_context", {"name": "text", "variable": "kept"}),
        ("unload", {"name": "kept"}),
    ],
)
async def test_what_needs_a_variable_is_refused_while_code_waits(agent, tool, arguments) -> None:
    """K-18: the caller may be who has to answer. Nothing has changed, and the call works afterwards."""
    await agent.run("kept = 'one'")
    await agent.run("llm_query('p')")
    refused = await agent(tool, **arguments)
    assert (refused["error"], refused["message"]) == ("busy", "the session's code waits for answers to q_000")
    assert refused["hint"] == "call answer_queries, then call again"
    await agent.answered(q_000="A")
    assert "error" not in await agent(tool, **arguments)


async def test_a_session_that_waits_for_many_answers_names_a_few_queries(agent) -> None:
    """A batch asks up to a thousand: the sentence that names them all is longer than most answers."""
    await agent.run("llm_query_batched(['p'] * 40)")
    said = "q_000, q_001, q_002, q_003, q_004, q_005 and 34 more"
    assert (await agent("peek", name="kept"))["message"].endswith(f"answers to {said}")
    queued = await agent("eval_code", code="1")
    assert f"answer_queries: {said}; push" in (await agent("wait", run=queued["run"]))["hint"]


async def test_a_call_that_waits_for_a_cell_is_refused_when_the_cell_begins_to_wait(agent, live) -> None:
    """K-18: the refused call holds nothing: the cell goes on, and the next one runs."""
    await agent.run("kept = 1")
    going = await agent("eval_code", code=f"{agent.HELD}llm_query('p')")
    call = asyncio.create_task(agent("unload", name="kept"))
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    await until(lambda: session.kernel.turn.cells == 2)
    await agent.let_go()
    assert (await call)["error"] == "busy"
    assert (await agent("wait", run=going["run"]))["status"] == "waiting"
    assert (await agent.answered(q_000="A"))["result"] == "'A'"
    assert (await agent.run("kept"))["result"] == "1"


async def test_a_kernel_that_dies_while_it_waits_is_told_and_its_queries_are_cancelled(agent, live) -> None:
    """K-18: nobody waits for the answer any more; the next cell runs. What earlier cells asked is still pending."""
    await agent.run("kept = llm_query('earlier', mode='deferred')")
    asked = await agent.run("llm_query('p')")
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    info = await session.kernel.ask(lambda client, kernel_id: client.kernel_info(kernel_id))
    os.kill(info.pid, signal.SIGKILL)
    died = await until(
        lambda: agent("wait", run=asked["run"]), lambda told: told.get("status") not in ("waiting", "running")
    )
    assert (died["error"], died["cancelled_llm_queries"]) == ("kernel_died", ["q_001"])
    assert (await agent("status"))["pending_llm_queries"] == ["q_000"]
    assert (await agent.answered(q_001="?"))["answered"] == []
    asked = await agent.run("llm_query('again')")
    assert [row["id"] for row in asked["pending_llm_queries"]] == ["q_002"]
    assert (await agent.answered(q_002="yes"))["result"] == "'yes'"


async def test_a_notebooks_cell_is_answered_by_an_agent(agent) -> None:
    """K-22: its question is in the same table; the notebook goes on when the agent has answered."""
    await agent.run("1")
    client = await agent.front_end()
    replied = asyncio.ensure_future(client.execute("got = llm_query('p')", reply=True, timeout=60))
    await until(lambda: agent("status"), lambda told: told["pending_llm_queries"] == ["q_000"])
    await agent("load_context", name="log", content="!")
    assert (await agent.answered(q_000="A"))["answered"] == ["q_000"]
    assert (await replied)["content"]["status"] == "ok"
    client.stop_channels()
    assert (await agent.run("got"))["result"] == "'A'"


async def test_a_list_says_what_it_leaves_out_while_a_notebooks_cell_runs(agent) -> None:
    """K-4: the kernel cannot be asked for its variables then."""
    await agent.run("mine = 1")
    client = await agent.front_end()
    replied = asyncio.ensure_future(client.execute(agent.HELD, reply=True, timeout=60))
    await until(lambda: agent("status"), lambda told: told["kernel"]["state"] == "busy")
    assert "code is running" in (await agent("list_vars"))["note"]
    await agent.let_go()
    await replied
    client.stop_channels()
    listed = await agent("list_vars")
    assert ("mine" in {row["name"] for row in listed["variables"]}, "note" in listed) == (True, False)


async def test_a_daemon_that_comes_later_answers_a_cell_that_waits(connect_own, own, reopen, blocking) -> None:
    """K-23: the kernel goes on waiting while no daemon is there."""
    async with connect_own("s", RLM_KERNEL_POLICY=blocking) as agent:
        await agent.run("got = llm_query('p')")
    async with reopen() as connect, connect("s", RLM_KERNEL_POLICY=blocking) as agent:
        assert (await agent("status"))["pending_llm_queries"] == ["q_000"]
        assert (await agent.answered(q_000="A"))["answered"] == ["q_000"]
        assert (await agent.run("got"))["result"] == "'A'"


async def test_a_fork_asks_as_its_own_policy_says(agent, attach) -> None:
    """K-22: the mode is the session's, not that of the one it comes from."""
    await agent.run("1")
    fork = (await agent("fork_session", policy="default"))["session"]
    async with attach(fork) as other:
        assert (await other.run("print(llm_query('p'))"))["stdout"] == "[DEFERRED:q_000] LLM query queued\n"
        await other("end_session")
    assert (await agent.run("llm_query('p')"))["status"] == "waiting"
    assert (await agent.answered(q_000="A"))["result"] == "'A'"


async def test_a_cell_that_waits_says_what_for_in_the_same_moment(agent, live) -> None:
    """K-23: whoever looks between two turns of the event loop sees the question of a cell that is seen to wait."""
    await agent.run("1")
    kernel = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"]).kernel
    query = AskedQuery(7, "why?", None, "blocking", None, recursive=False)
    kernel._on_event(protocol.QueriesAsked((query,)))
    kernel._on_event(protocol.WaitsFor(("q_007",)))
    assert kernel.queries.of_agent == {row.id for row in queries.pending(live._store, kernel.session.key)} == {"q_007"}
    kernel._on_event(protocol.WaitsFor(()))
