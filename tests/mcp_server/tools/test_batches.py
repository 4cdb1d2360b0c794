"""Batches of cells: in one call what would take one for each, and otherwise as if they had been sent one by one."""

import asyncio
import os
import secrets
import signal

import pytest
from waiting import SECONDS, until

pytestmark = pytest.mark.anyio

CELLS = [
    "x = [1, 2]",
    "x",
    "print('out')",
    "",
    "y = _ + _\ny",
    "asked = llm_query('How many?')",
    "len(In), sorted(Out)",
]


def rows(live, agent) -> list[tuple]:
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    entries = live.journal.of_session(session.key)
    assert [one.started_at for one in entries] == sorted(one.started_at for one in entries)
    return [
        (one.code, one.status, one.output, one.value, one.count, one.author, one.queries, one.traceback)
        for one in entries
    ]


def told(answer: dict) -> dict:
    said = {name: value for name, value in answer.items() if value or name == "success"}
    said.pop("execution_time_seconds", None)
    return said


async def test_a_batch_is_what_its_cells_would_be_one_by_one(agent, attach, live) -> None:
    """The same answers, history, output and rows of the journal; each cell has its own."""
    batch = await agent.finished(await agent("eval_code", cells=CELLS))
    assert batch["success"], batch["cells"][-1]
    async with attach(f"s{secrets.token_hex(4)}") as other:
        singly = [await other.run(code) for code in CELLS]
        assert [told(cell) for cell in batch["cells"]] == [told(cell) for cell in singly]
        assert rows(live, agent) == rows(live, other)
        await other("end_session")


@pytest.mark.parametrize("bad", ["1/0", "1 +", "import socket", "raise SystemExit", "while True print"])
async def test_nothing_runs_behind_a_cell_that_fails(agent, live, bad: str) -> None:
    """The answer says what came of each up to that one, and how many did not run; the journal has no more."""
    batch = await agent.finished(await agent("eval_code", cells=["x = 1", bad, "x = 2", "x = 3"]))
    assert (batch["success"], batch["skipped"], len(batch["cells"])) == (False, 2, 2)
    assert [cell["success"] for cell in batch["cells"]] == [True, False]
    assert batch["cells"][1]["error"]
    assert [row[0] for row in rows(live, agent)] == ["x = 1", bad]
    assert (await agent.run("x"))["result"] == "1"
    assert (await agent.finished(await agent("eval_code", cells=["x", "x + 1"])))["success"]


async def test_code_and_cells_are_given_one_of_them(agent) -> None:
    """What is refused runs nothing."""
    for given in ({}, {"code": "1", "cells": ["2"]}, {"cells": []}, {"cells": ["1"] * 101}, {"cells": ["1", 2]}):
        answer = await agent("eval_code", **given)
        assert (answer["error"], agent.is_error) == ("invalid_arguments", True)


async def test_a_batch_is_interrupted_as_a_whole(agent, live) -> None:
    """Cells behind the one that runs do not begin, and the session is free."""
    call = await agent("eval_code", cells=["x = 1", "while True: pass", "x = 2", "x = 3"])
    assert call["status"] == "running"
    await agent("interrupt")
    batch = await agent.finished(await agent("wait", run=call["run"]))
    assert (batch["skipped"], "CellInterrupted" in batch["cells"][1]["error"]) == (2, True)
    assert (await agent.run("x"))["result"] == "1"


async def test_a_batch_of_quick_cells_is_interrupted_between_them(agent, live) -> None:
    """While those behind are taken back, the ones before them end: the session counts what has run, and is free."""
    await agent.run("x = 0")
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    cells = ["x += 1\nfor _ in range(20_000): pass"] * 100
    call = asyncio.create_task(agent("eval_code", cells=cells))
    async with asyncio.timeout(60):
        await until(lambda: [run for run in live.runs.active(session) if 0 < len(run.behind) < 98])
        assert len((await agent("interrupt"))["interrupted"]) == 1
        batch = await agent.finished(await call)
    done = len([cell for cell in batch["cells"] if cell["success"]])
    assert done + 1 == len(batch["cells"]) < 100
    assert int((await agent.run("x"))["result"]) in {done, done + 1}


async def test_who_hangs_up_stops_the_batch(agent, live) -> None:
    """Nothing of it goes on without whoever wanted it."""
    await agent.run("x = 0")
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    call = asyncio.create_task(agent("eval_code", cells=["x = 1", "while True: pass", *["x += 1"] * 50]))
    async with asyncio.timeout(SECONDS):
        await until(lambda: [run for run in live.runs.active(session) if len(run.behind) == 50])
        call.cancel()
        await until(lambda: not session.kernel.busy)
    assert (await agent.run("x"))["result"] == "1"


async def test_a_cell_of_a_batch_waits_for_its_answers(agent) -> None:
    """The call returns with the queries; the batch goes on with the answers, and its answer is the whole one."""
    cells = ["x = 1", "kind = llm_query('Which?', mode='blocking')", "kind, x"]
    waits = await agent("eval_code", cells=cells)
    while waits.get("status") == "running":
        waits = await agent("wait", run=waits["run"])
    assert waits["status"] == "waiting"
    batch = await agent.answered(**{waits["pending_llm_queries"][0]["id"]: "this"})
    assert batch["success"]
    assert batch["cells"][2]["result"] == "('this', 1)"


async def test_queries_of_all_cells_are_answered_in_their_order(agent) -> None:
    """A list of answers is for the queries that the answer about the batch has listed."""
    batch = await agent.finished(await agent("eval_code", cells=["a = llm_query('one')", "b = llm_query('two')"]))
    assert [len(cell["pending_llm_queries"]) for cell in batch["cells"]] == [1, 1]
    await agent("answer_queries", answers=["first", "second"])
    assert (await agent.run("str(a), str(b)"))["result"] == "('first', 'second')"


async def test_a_long_answer_of_one_cell_leaves_those_of_the_others_whole(agent, live) -> None:
    """What there is no room for is kept under a name that its cell tells."""
    cells = ["'first'", "print('long ' * 200_000)", "'x' * 3000", "'last'"]
    batch = await agent.finished(await agent("eval_code", cells=cells))
    first, long, longer, last = batch["cells"]
    assert (first["result"], last["result"], longer["result"]) == ("'first'", "'last'", f"'{'x' * 3000}'")
    assert long["cut"]
    assert (await agent("var_info", name=long["full_output"]))["size"] == 1_000_001
    many = await agent.finished(await agent("eval_code", cells=["'x' * 1000"] * 100))
    limit = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"]).policy.limits.answer_chars
    assert (many["success"], many["truncated"], len(agent.text) <= limit) == (True, True, True)
    assert (await agent("peek", name=many["full_output"]))["total_lines"] == 100


async def test_a_kernel_that_dies_costs_its_cell_and_those_behind_it(agent, live) -> None:
    """What came of the cells before it is told all the same."""
    await agent.run("x = 0")
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    waits = asyncio.create_task(agent("eval_code", cells=["'first'", agent.HELD, "x = 1"]))
    async with asyncio.timeout(SECONDS):
        await until(lambda: [run for run in live.runs.active(session) if len(run.behind) == 1])
        client = await live.gateway.client()
        os.kill((await client.kernel_info(session.kernel.kernel_id)).pid, signal.SIGKILL)
    batch = await agent.finished(await waits)
    assert (batch["success"], batch["skipped"], batch["cells"][0]["result"]) == (False, 1, "'first'")
    assert batch["cells"][1]["error"] == "kernel_died"
    assert (await agent.run("x"))["result"] == "0"


async def test_pictures_of_all_cells_are_shown(agent) -> None:
    """`wait` for the batch shows them in their order."""
    picture = (
        "import base64\nclass Square:\n    def _repr_png_(self):\n        return base64.b64decode('"
        "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR4nGNogAIGyhgAgIQgAQ2AJGEAAAAASUVORK5CYII=')"
    )
    batch = await agent.finished(await agent("eval_code", cells=[picture, "Square()", "1", "Square()"]))
    run = batch["cells"][1]["images"].partition("run='")[2].rstrip("')")
    await agent("wait", run=run)
    assert len(agent.images) == 2
