"""The life of sessions: idle time, ends, crashes of kernels and supervisors, restarts of the daemon."""

import asyncio
import os
import signal

import psutil
import pytest
from session_processes import kill_with_keeper
from waiting import SECONDS, until

pytestmark = [pytest.mark.anyio, pytest.mark.policy("compat")]  # its sessions idle for five minutes and then end
IDLE = 301.0


async def pid_of(agent) -> int:
    """The kernel process of the agent's session."""
    return (await agent("status"))["kernel"]["pid"]


async def test_after_five_idle_minutes_everything_of_the_session_is_gone(connect_own, clock, gone) -> None:
    """K-14: names, handles and kernel, checked before every call, whichever session makes it."""
    async with connect_own("idle") as idle, connect_own("busy") as busy:
        await idle("load_context", name="log", content="x")
        handle = (await idle("register_handle", name="log", share_with=["*"]))["handle"]
        await idle.run("kept = 1")
        pid = await pid_of(idle)
        clock.now += IDLE - 2
        assert (await busy("peek", name=handle))["content"] == "x"
        clock.now += 2
        assert (await busy("peek", name=handle))["error"] == "handle_not_found"
        await gone(pid)
        missing = await idle("peek", name="log")
        assert missing["error"] == "variable_not_found"
        assert "was idle for 5 minutes and expired at" in missing["message"]
        assert "NameError" in (await idle.run("kept"))["error"]


async def test_the_end_of_a_session_that_held_nothing_says_so(connect_own) -> None:
    """An agent that mistypes a name would else believe that the session it meant has ended."""
    async with connect_own("meant") as agent:
        await agent.run("kept = 1")
        ended = await agent("end_session", session="ment")
        assert (ended["ended"], ended["unloaded"]) == ("ment", [])
        assert "held neither texts nor variables" in ended["notice"]
        assert await agent("end_session") == {"ended": "meant", "unloaded": []}


async def test_use_keeps_a_session_alive(connect_own, clock) -> None:
    """K-14: the clock starts anew with every call."""
    async with connect_own() as agent:
        await agent("load_context", name="log", content="x")
        for _ in range(3):
            clock.now += IDLE - 2
            assert (await agent("peek", name="log"))["content"] == "x"


async def test_a_session_with_pending_queries_keeps_its_rows(connect_own, clock, gone) -> None:
    """K-14, K-23: its kernel goes, but a late answer still finds its question, and code finds the answer."""
    async with connect_own("waits") as agent, connect_own("other") as other:
        await agent("load_context", name="log", content="x")
        await agent.run("note = llm_query('why?')")
        pid = await pid_of(agent)
        clock.now += IDLE
        await other("list_vars")
        await gone(pid)
        assert (await agent("answer_queries", answers={"q_000": "because"}))["answered"] == ["q_000"]
        assert (await agent("peek", name="log"))["content"] == "x"
        answer = await agent.run("print(llm_answers['q_000'], log['content'], llm_query('again'))")
        assert answer["stdout"] == "because x [DEFERRED:q_001] LLM query queued\n"


async def test_an_ended_session_starts_empty_when_it_is_used_again(connect_own, gone) -> None:
    """K-6: kernel, contexts, handles and pending queries go; ids go on."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="x")
        first = (await agent("register_handle", name="log"))["handle"]
        await agent.run("note = llm_query('why?')")
        pid = await pid_of(agent)
        assert await agent("end_session") == {"ended": "s", "unloaded": ["log"]}
        await gone(pid)
        assert (await agent("list_vars"))["variables"] == []
        assert (await agent("answer_queries", answers={"q_000": "x"}))["failed"][0]["error"] == "query_not_found"
        await agent("load_context", name="log", content="x")
        assert (await agent("register_handle", name="log"))["handle"] != first


async def test_a_cell_that_runs_when_its_session_ends_is_told_so(connect_own) -> None:
    """K-6: it did begin, and its session is gone."""
    async with connect_own() as agent:
        call = asyncio.create_task(agent.run("import time\ntime.sleep(60)"))
        async with asyncio.timeout(SECONDS):
            await until(lambda: agent("status"), lambda told: told["kernel"]["state"] == "busy")
            await agent("end_session")
            answer = await call
        assert answer["error"] == "interrupted"
        assert answer["message"].endswith("was aborted because its session ended")


async def test_a_restarted_kernel_has_the_contexts_and_no_variables(connect_own) -> None:
    """K-17: restart_session is how an agent begins anew."""
    async with connect_own() as agent:
        await agent("load_context", name="log", content="x")
        await agent.run("mine = 1")
        assert (await agent("restart_session"))["contexts"] == ["log"]
        answer = await agent.run("print(log['content'])\nmine")
        assert answer["stdout"] == "x\n"
        assert "NameError" in answer["error"]


async def test_a_killed_kernel_is_told_to_the_waiting_call_and_the_next_works(connect_own) -> None:
    """K-20: kernel_died says what was lost; contexts are there again."""
    async with connect_own() as agent:
        await agent("load_context", name="log", content="x")
        await agent.run("kept = 1")
        pid = await pid_of(agent)
        call = asyncio.create_task(agent.run("import time\nprint('up', flush=True)\ntime.sleep(60)"))
        await until(lambda: agent("status", session=None), lambda told: told["kernel"]["state"] == "busy")
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            died = await call
        assert died["error"] == "kernel_died"
        assert "SIGKILL" in died["message"]
        assert "variables are as they were before this cell" in died["message"]
        assert "anew" not in died["hint"]
        answer = await agent.run("log['content']")
        assert answer["result"] == "'x'"


async def test_a_killed_supervisor_is_not_noticed(connect_alone, alone) -> None:
    """K-20: the cell goes on under another supervisor, and so do its pending queries and contexts."""
    async with connect_alone() as agent:
        await agent("load_context", name="log", content="x")
        await agent.run("kept = llm_query('why?')")
        call = asyncio.create_task(agent.run("import time\nprint('up')\ntime.sleep(1)\nlog['content']"))
        client = await alone.gateway.client()
        await until(lambda: agent("status"), lambda told: told["kernel"]["state"] == "busy")
        os.kill(client.pid, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            answer = await call
        assert (answer["stdout"], answer["result"]) == ("up\n", "'x'")
        assert "notice" not in answer
        await agent("answer_queries", answers={"q_000": "because"})
        assert (await agent.run("print(kept)"))["stdout"] == "because\n"


async def test_a_supervisor_killed_with_its_keeper_is_told_and_the_next_call_works(connect_alone, alone) -> None:
    """K-20: every kernel of it is lost, no context is; a new supervisor serves the next call."""
    async with connect_alone() as agent:
        await agent("load_context", name="log", content="x")
        await agent.run("kept = 1")
        call = asyncio.create_task(agent.run("import time\ntime.sleep(60)"))
        client = await alone.gateway.client()
        await until(lambda: agent("status"), lambda told: told["kernel"]["state"] == "busy")
        kill_with_keeper(client.pid)
        async with asyncio.timeout(SECONDS):
            died = await call
        assert died["error"] == "kernel_died"
        assert "supervisor" in died["message"]
        answer = await agent.run("(log['content'], 'kept' in dir())")
        assert answer["result"] == "('x', False)"


async def test_the_next_daemon_takes_over_sessions_and_live_kernels(connect_own, own, reopen) -> None:
    """K-17: rows are the truth after a restart; a kernel that lives goes on with its variables."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="x")
        await agent.run("kept = llm_query('why?')")
        pid = await pid_of(agent)
    async with reopen() as connect_again, connect_again("s") as agent:
        assert (await agent("peek", name="log"))["content"] == "x"
        assert await pid_of(agent) == pid
        await agent("answer_queries", answers={"q_000": "because"})
        await agent("load_context", name="more", content="y")
        answer = await agent.run("print(kept, log['content'], more['content'])")
        assert answer["stdout"] == "because x y\n"


async def test_a_kernel_whose_session_has_ended_is_not_left_behind(connect_own, own, reopen, clock, gone) -> None:
    """K-14: a daemon that starts ends kernels that no session owns."""
    async with connect_own("s") as agent:
        await agent.run("1")
        pid = await pid_of(agent)
    session = own.sessions.get("s")
    session.kernel.forget()
    await own.sessions.end(session)
    assert psutil.pid_exists(pid)
    async with reopen():
        await gone(pid)


async def test_an_idle_session_ends_after_a_restart_too(connect_own, reopen, clock, gone) -> None:
    """K-14: the time of the last use is in the row."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="x")
        await agent.run("1")
        pid = await pid_of(agent)
    clock.now += IDLE + 20
    async with reopen() as connect_again, connect_again("other") as other:
        await other("list_vars")
        await gone(pid)


async def test_status_shows_policy_walls_limits_and_where_to_attach(connect_own) -> None:
    """K-28: the connection file is a real Jupyter kernel's; the walls that stand are listed."""
    async with connect_own() as agent:
        assert (await agent("status"))["kernel"] == {"state": "not started"}
        await agent.run("1")
        status = await agent("status")
    assert status["policy"] == "compat"
    assert status["limits"]["content_bytes"] == 100 * 1024 * 1024
    assert os.path.exists(status["kernel"]["connection_file"])
    assert status["kernel"]["walls"]["language"]["standing"] in (True, False)


async def test_many_first_calls_at_once_make_one_session_and_one_kernel(connect_own, own) -> None:
    """K-11: creation happens once."""
    async with connect_own("s") as agent:
        answers = await asyncio.gather(*(agent.client.call_tool("eval_code", {"code": "1"}) for _ in range(8)))
        assert not any(answer.is_error for answer in answers)
        client = await own.gateway.client()
        mine = [info for info in await client.kernels() if info.label.get("owner") == own.gateway.owner]
        assert len(mine) == 1


async def test_a_clock_that_jumps_ends_no_session(quiet, connect, clock) -> None:
    """K-14: somebody sets the clock by a day, either way: only time that has passed counts as idle."""
    passed = type(clock)()
    quiet.sessions._steady = passed
    async with connect("s") as agent:
        await agent("load_context", name="log", content="x")
        for jump in (86_400.0, -2 * 86_400.0, 86_400.0):
            clock.now += jump
            assert await quiet.sweep() == []
        clock.now += IDLE - 2
        passed.now += IDLE - 2
        assert await quiet.sweep() == []
        clock.now += 4
        passed.now += 4
        assert await quiet.sweep() == ["s"]
