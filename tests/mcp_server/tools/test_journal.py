"""The journal of a session: every cell of agents and notebooks, also those that ran while no daemon was there."""

import asyncio
from dataclasses import replace

import pytest
from waiting import until

from rlm_client.rlm.prompts import SETUP
from rlm_ipc.daemon_rows import JournalCell
from rlm_ipc.kernel_reports import CellNote

pytestmark = pytest.mark.anyio


async def journal_of(service, session: str, count: int) -> tuple[JournalCell, ...]:
    """The session's journal once it has ``count`` cells."""
    return await until(lambda: service.list_journal(session), lambda told: len(told) >= count)


async def test_cells_of_agents_are_written_with_what_came_of_them(connect_own, own) -> None:
    """Who reads the journal later sees code, output, value, error and queries of each cell, in order."""
    async with connect_own("s") as agent:
        await agent.run("print('hello')\n6 * 7")
        await agent.run("1 / 0")
        await agent.run("answer = llm_query('why?')")
    handshake, failed, asked = await journal_of(own, "s", 3)
    assert (handshake.code, handshake.output, handshake.status) == ("print('hello')\n6 * 7", "hello\n42", "ok")
    assert (failed.status, failed.output) == ("error", "ZeroDivisionError: division by zero")
    assert asked.queries == ("q_000",)
    assert {row.author for row in (handshake, failed, asked)} == {"agent"}


async def test_an_empty_cell_takes_no_number_and_no_place(connect_own, own) -> None:
    """Two cells of one number could not be told apart by it."""
    async with connect_own("s") as agent:
        for code in ("1", "", " \n", "2"):
            await agent.run(code)
    assert [(cell.code, cell.count) for cell in await journal_of(own, "s", 2)] == [("1", 1), ("2", 2)]


async def test_the_cell_that_a_run_begins_with_is_nobodys(connect_own, own) -> None:
    """It is the plumbing of `ask` and `RLM`; exports keep it, because a replay needs it."""
    async with connect_own("s") as agent:
        await agent.run(SETUP)
        await agent.run("FINAL(7)")
    (cell,) = await journal_of(own, "s", 1)
    assert (cell.code, cell.count) == ("FINAL(7)", 2)
    assert [cell.code for cell in (await own.record("s")).cells] == [SETUP, "FINAL(7)"]


async def test_a_long_session_keeps_its_latest_thousand_cells(connect_own, own) -> None:
    """The journal of a session is held to its bound while it goes on, at every fiftieth cell."""
    async with connect_own("s") as agent:
        await agent.run("0")
    (session,) = own.sessions
    await journal_of(own, "s", 1)
    note = CellNote(0, "notebook", "0", "", 1.0, 2.0, "ok", "", (), ())
    for number in range(1, 1051):
        own.journal.told(session.key, "another", replace(note, code=str(number), serial=number))
        if number % 10 == 0:
            own.journal.flush()
    kept = [row.code for row in own.list_journal("s")]
    assert kept[-1] == "1050"
    assert 1000 <= len(kept) < 1050


async def test_a_cell_that_kills_its_kernel_is_in_the_journal(connect_own, own) -> None:
    """The cell that did the harm is the one that somebody looks for."""
    async with connect_own("s", RLM_KERNEL_POLICY="trusted") as agent:
        await agent("eval_code", code="import os; os._exit(3)")
    (row,) = await journal_of(own, "s", 1)
    assert (row.status, "exited with 3" in row.output) == ("died", True)


async def test_cells_of_a_notebook_are_written_as_its(connect_own, own) -> None:
    """An agent that shares a session with a person can see what the person ran."""
    async with connect_own("s") as agent:
        await agent.run("x = 1")
        client = await agent.front_end()
        await client.execute("print(x + 1)", reply=True, timeout=60)
        await client.execute("hidden = 1", silent=True, reply=True, timeout=60)
        await client.execute("missing", reply=True, timeout=60)
        rows = await journal_of(own, "s", 3)
        client.stop_channels()
    assert [(row.author, row.code, row.status) for row in rows] == [
        ("agent", "x = 1", "ok"),
        ("notebook", "print(x + 1)", "ok"),
        ("notebook", "missing", "error"),
    ]
    assert [row.output for row in rows] == ["", "2", "NameError: name 'missing' is not defined"]


async def test_what_ran_while_no_daemon_was_there_is_told_to_the_next(connect_own, own, reopen) -> None:
    """K-17: cells of a notebook, the end of a cell whose daemon left, and the queries that they asked."""
    async with connect_own("s") as agent:
        await agent.run("x = 1")
        client = await agent.front_end()
        code = "print('begun')\nimport time\ntime.sleep(1.5)\ny = llm_query('agent?')\nprint('orphan')"
        slow = asyncio.create_task(agent("eval_code", code=code))
        [run] = await until(lambda: own.runs.active(own.sessions.get("s")))
        await until(run.stdout_so_far)
        own.gateway.close()  # as if the daemon had been killed
        await client.execute("z = llm_query('person?')", reply=True, timeout=60)
        await asyncio.wait({slow})
        client.stop_channels()
    async with reopen() as connect_again, connect_again("s") as agent:
        status = await agent("status")
        assert status["pending_llm_queries"] == ["q_000", "q_001"]
        rows = await journal_of(own, "s", 4)
    told = [(row.author, row.code.splitlines()[-1], row.output) for row in rows if row.status == "ok"]
    assert ("agent", "print('orphan')", "begun\norphan") in told
    assert ("notebook", "z = llm_query('person?')", "") in told
