"""What a notebook is shown of the cells of others: why its own cannot begin or go on, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from jupyter_client import AsyncKernelClient
from jupyter_visits import visit
from waiting import until

from rlm_ipc.json_lines import TERMINAL
from rlm_ipc.kernel_reports import QueryOutcome

pytestmark = pytest.mark.anyio


async def shown_of(
    client: AsyncKernelClient, asked: str, last: Callable[[dict[str, Any]], bool]
) -> list[tuple[str, dict[str, Any]]]:
    """What a front end is shown of a cell, up to a message that is the ``last`` one looked for."""
    found = []
    while True:
        message = await client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") == asked:
            found.append((message["msg_type"], message["content"]))
            if last(message):
                return found


def is_note(message: dict[str, Any]) -> bool:
    return bool(message["msg_type"] == "stream")


def is_end(message: dict[str, Any]) -> bool:
    return bool(message["content"].get("execution_state") == "idle")


async def test_a_cell_behind_an_agents_cell_says_so_until_it_begins(supervisor, kernel, told) -> None:
    """The front end shows the first line of what runs, made harmless; the note goes when the cell begins."""
    async with visit(kernel.connection) as client:
        running = supervisor.execute(kernel.kernel_id, f"# look \x1b[2J closely\n{told.wait}")
        await until(lambda: supervisor.running(kernel.kernel_id), lambda now: now.cell is not None)
        asked = client.execute("6 * 7")
        ((_, note),) = await shown_of(client, asked, is_note)
        assert note["text"] == "[waits for the cell of an agent that runs now: # look \\x1b[2J closely]\n"
        told.give()
        await running.result()
        rest = await shown_of(client, asked, is_end)
    assert [kind for kind, _ in rest] == ["clear_output", "status", "execute_input", "execute_result", "status"]
    assert rest[0][1] == {"wait": False}


async def test_a_cell_behind_a_terminals_cell_says_so(supervisor, kernel, told) -> None:
    """A person at a terminal is no agent; the cell's name is told to who asks what runs."""
    async with visit(kernel.connection) as client:
        (running,) = supervisor.execute_all(kernel.kernel_id, [told.wait], TERMINAL)
        now = await until(lambda: supervisor.running(kernel.kernel_id), lambda now: now.cell is not None)
        assert now.cell.author == TERMINAL
        asked = client.execute("6 * 7")
        ((_, note),) = await shown_of(client, asked, is_note)
        assert note["text"].startswith("[waits for the cell of a terminal that runs now: ")
        told.give()
        await running.result()
        await shown_of(client, asked, is_end)


async def test_a_cell_that_waits_for_an_agents_answer_says_so(supervisor, kernel) -> None:
    """Nobody may be there who answers: a person at a notebook sees for what the cell waits, and how to end that."""
    async with visit(kernel.connection) as client:
        asked = client.execute("print(llm_query_batched(list('abcde'), mode='blocking'))")
        found = await shown_of(client, asked, is_note)
        assert found[-1][1]["name"] == "stderr"
        assert found[-1][1]["text"].startswith("[waits for an agent's answer to q_000, q_001, q_002 and 2 more. If no ")
        await supervisor.answer(kernel.kernel_id, {f"q_00{number}": QueryOutcome("A") for number in range(5)})
        rest = await shown_of(client, asked, is_end)
    assert [content["text"] for kind, content in rest if kind == "stream"] == [f"{['A'] * 5}\n"]


async def test_a_cell_that_waits_for_a_model_says_nothing_of_it(supervisor, kernel, spawn, policy) -> None:
    """Nobody has to do anything. The note of another cell, which began later, shows that its own time was up."""
    answered = policy("default")
    llm = replace(answered.llm, mode="provider")
    modelled = await spawn(replace(answered, llm=llm))
    async with visit(modelled.connection) as client, visit(kernel.connection) as other:
        asked = client.execute("print(llm_query('why?'))")
        await until(lambda: supervisor.pending_queries(modelled.kernel_id))
        await shown_of(other, other.execute("llm_query('why?', mode='blocking')"), is_note)
        await supervisor.answer(modelled.kernel_id, {"q_000": QueryOutcome("because")})
        found = await shown_of(client, asked, is_end)
    assert [content["text"] for kind, content in found if kind == "stream"] == ["because\n"]


async def test_a_cell_that_is_answered_in_time_says_nothing_of_it(supervisor, kernel) -> None:
    """An agent that answers at once needs no word."""
    async with visit(kernel.connection) as client:
        asked = client.execute("print(llm_query('why?', mode='blocking'))")
        await until(lambda: supervisor.pending_queries(kernel.kernel_id))
        await supervisor.answer(kernel.kernel_id, {"q_000": QueryOutcome("because")})
        found = await shown_of(client, asked, is_end)
    assert [content["text"] for kind, content in found if kind == "stream"] == ["because\n"]


async def test_a_cell_behind_the_same_notebooks_cell_says_nothing(kernel, told) -> None:
    """Whoever runs all cells of a notebook sees where it is; another notebook's cell says that it waits."""
    async with AsyncExitStack() as stack:
        mine, other = [await stack.enter_async_context(visit(kernel.connection)) for _ in range(2)]
        first = mine.execute(told.wait)
        await shown_of(mine, first, lambda message: bool(message["msg_type"] == "execute_input"))
        second = mine.execute("6 * 7")
        theirs = other.execute("8 * 9")
        ((_, note),) = await shown_of(other, theirs, is_note)
        assert note["text"].startswith("[waits for the cell of another notebook that runs now: ")
        told.give()
        await shown_of(mine, first, is_end)
        kinds = [kind for kind, _ in await shown_of(mine, second, is_end)]
    assert kinds == ["status", "execute_input", "execute_result", "status"]


async def test_what_an_agents_cell_prints_comes_before_its_end(supervisor, kernel) -> None:
    """A front end that follows all cells takes "idle" for the end of a cell's output, as the protocol says."""
    async with visit(kernel.connection) as client:
        await supervisor.execute(kernel.kernel_id, "print('seen')").result()
        shown = []
        while not shown or shown[-1] != ("status", "idle"):
            message = await client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("session") != client.session.session:
                state = message["content"].get("execution_state", "")
                shown.append((message["msg_type"], state))
    assert shown == [("status", "busy"), ("execute_input", ""), ("stream", ""), ("status", "idle")]
