"""Cells, requests, rollbacks and kills in any order, held against plain Python: a strict session loses nothing.

The model is a dictionary for each completed cell. Between the cells come requests of the supervisor's own, some of
which run code of the session's, and deaths of its processes; whatever happened, the session has to be as the model is.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from jupyter_client import AsyncKernelClient
from native_kernel import NATIVE
from session_processes import copies_of
from waiting import SECONDS, until

from rlm_contexts.store.store import ContextStore
from rlm_ipc.errors import CallerError
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_ipc.worker_requests import Peek
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

STOCK = ("data", "default", "logs", "recursive", "review", "strict", "tables", "teaching", "trusted", "untrusted")

SETUP = """
class Noisy:
    def __str__(self): seen.append(1); return 'noise'
    __repr__ = __str__
    def __dir__(self): seen.append(1); return ['noise']
seen, rows, noisy = [], [], Noisy()
class Thing:
    def __init__(self, number): self.number = number
thing = Thing(0)
"""
SHOWN = "n, text, rows, thing.number, len(seen)"

CELLS: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    "n = {k}": lambda _, k: {"n": k},
    "n += {k}": lambda was, k: {"n": was["n"] + k},
    "text = str(n) + '{k}'": lambda was, k: {"text": f"{was['n']}{k}"},
    "len(seen)": lambda _was, _k: {},
    "rows.append({k})": lambda was, k: {"rows": [*was["rows"], k]},
    "rows[:] = rows[-2:]": lambda was, _: {"rows": was["rows"][-2:]},
    "thing = Thing({k})": lambda _, k: {"thing": k},
    "thing.number += n; n = thing.number": lambda was, _: dict.fromkeys(("thing", "n"), was["thing"] + was["n"]),
    "print(noisy)": lambda was, _: {"seen": was["seen"] + 1},
}
"""What each cell changes, given what the model was before it and a number."""


class Machine(RuleBasedStateMachine):
    """One session, and what it has to be."""

    runner: asyncio.Runner
    supervisor: SupervisorClient
    store: ContextStore
    folder: Path
    count = 0

    def __init__(self) -> None:
        super().__init__()
        self.states: list[dict[str, Any]] = []
        """The model after each completed cell, the setup's first."""
        self.sure = 0
        """How many of the last cells can be undone for certain."""
        self.attached = False
        self.asked: dict[str, int] = {}
        """The queries, and after which cell each of them was asked."""
        self.answered: dict[str, str] = {}

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def in_time() -> Any:
            async with asyncio.timeout(60):
                return await work

        return self.runner.run(in_time())

    @initialize(kept=st.integers(1, 3), walled=st.booleans())
    def begin(self, kept: int, walled: bool) -> None:
        """A strict session that can undo one to three cells."""
        Machine.count += 1
        policy = load_policy("default")
        limits = replace(policy.limits, rollback_cells=kept)
        policy = replace(policy, checkpoint="strict", limits=limits)
        if not walled:
            policy = replace(policy, **NATIVE)
        self.walled = walled
        self.kept, self.id = kept, f"model{Machine.count}"
        info = self._do(self.supervisor.spawn(SpawnRequest(self.id, str(self.folder)), policy))
        self._do(self._open_notebook(info.connection))
        self._cell(f"{SETUP}\nn, text = 0, ''", {"n": 0, "text": "", "rows": [], "thing": 0, "seen": 0})

    def teardown(self) -> None:
        if self.states:
            self._look()
            self.notebook.stop_channels()
            self._do(self.supervisor.shutdown(self.id))

    async def _open_notebook(self, connection: dict[str, Any]) -> None:
        self.notebook: Any = AsyncKernelClient()
        self.notebook.load_connection_info(connection)
        self.notebook.start_channels(hb=False)

    async def _ran(self, code: str) -> Any:
        return await self.supervisor.execute(self.id, code).result()

    def _cell(self, code: str, after: dict[str, Any]) -> str:
        result = self._do(self._ran(code))
        assert result.error is None, (code, result.error)
        self.states.append(after)
        self.sure = min(self.sure + 1, self.kept)
        return str(result.result)

    def _info(self) -> Any:
        return self._do(self.supervisor.kernel_info(self.id))

    @rule(cell=st.sampled_from(sorted(CELLS)), k=st.integers(0, 9))
    def a_cell(self, cell: str, k: int) -> None:
        """Any of them."""
        self._cell(cell.format(k=k), self.states[-1] | CELLS[cell](self.states[-1], k))

    @rule(how=st.sampled_from(("peek", "completion")), killed=st.booleans())
    def a_look_that_runs_code(self, how: str, killed: bool) -> None:
        """To show or complete the object runs its methods, which change the session as no cell of it says."""
        before = self.states[-1]["seen"]
        if how == "peek" or self.walled:  # under the wall a completion runs no code
            self._do(self.supervisor.ask(self.id, Peek("noisy", 0, 10, 1000, every=False)))
        else:
            self._do(self.notebook.complete("noisy.", reply=True, timeout=SECONDS))
        if killed:
            self._do(_killed(self.supervisor, self.id))
        self._cell("'again'", dict(self.states[-1]))
        now = int(self._cell("len(seen)", dict(self.states[-1])))
        assert now > before, "what the look has changed is lost"
        for state in self.states[-3:]:  # a copy that stands for the cell before the look is from after it
            state["seen"] = now

    @rule(k=st.integers(0, 9))
    def a_query(self, k: int) -> None:
        """Code asks, and nobody has answered yet."""
        self._cell(f"asked = llm_query('{k}')", dict(self.states[-1]))
        (new,) = self._pending() - self.asked.keys()
        self.asked[new] = len(self.states)

    @rule()
    def an_answer(self) -> None:
        """It is what the newest query that waits is, from then on."""
        if waits := sorted(self.asked.keys() - self.answered.keys()):
            self.answered[waits[-1]] = f"answer to {waits[-1]}"
            outcome = QueryOutcome(answer=self.answered[waits[-1]])
            self._do(self.supervisor.answer(self.id, {waits[-1]: outcome}))
        if (newest := max(self.asked, key=self.asked.__getitem__, default="")) in self.answered:
            assert self._cell("str(asked)", dict(self.states[-1])) == repr(self.answered[newest])

    def _pending(self) -> set[str]:
        return {query.id for query in self._do(self.supervisor.pending_queries(self.id))}

    @rule()
    def a_look_that_runs_none(self) -> None:
        """A copy from before it still stands for the session."""
        assert {"rows", "thing"} <= {row.name for row in self._do(self.supervisor.variables(self.id))}

    @rule()
    def a_text_comes_or_goes(self) -> None:
        """Loaded texts are bound and unbound between cells."""
        if self.attached:
            self._do(self.supervisor.unbind(self.id, "log"))
        else:
            with self.store.shared_text(self.store.put_text("alpha\nbeta\n")) as shared_text:
                self._do(self.supervisor.bind(self.id, "log", shared_text, "log", {}))
        self.attached = not self.attached

    @rule(count=st.integers(1, 4))
    def a_rollback(self, count: int) -> None:
        """Undoes exactly that many cells, or is refused and changes nothing."""
        possible = self._info().undoable
        if count not in possible:
            with pytest.raises(CallerError):
                self._do(self.supervisor.rollback(self.id, count))
            return
        if count >= len(self.states):  # before the setup: there is nothing that the model could look at
            return
        done = self._do(self.supervisor.rollback(self.id, count))
        assert len(done.undone) == count
        del self.states[-count:]
        self.sure = max(self.sure - count, 0)
        for query in [query for query, cells in self.asked.items() if cells > len(self.states)]:
            del self.asked[query]
            self.answered.pop(query, None)

    @rule(in_cell=st.booleans())
    def the_process_dies(self, in_cell: bool) -> None:
        """From without, between two cells or within one: nothing that was completed is lost."""
        if in_cell:
            result = self._do(self._killed_in_cell())
            assert result.error is not None
            assert "as they were before this cell" in result.error.evalue
        else:
            self._do(_killed(self.supervisor, self.id))

    async def _killed_in_cell(self) -> Any:
        execution = self.supervisor.execute(self.id, "rows.append(-1); n = -1\nwhile True: pass")
        info = await until(lambda: self.supervisor.kernel_info(self.id), lambda told: told.state == "busy")
        os.kill(info.pid, signal.SIGKILL)
        return await execution.result()

    @rule()
    def look(self) -> None:
        """Everything is as in the model."""
        self._look()

    def _look(self) -> None:
        state = self.states[-1]
        shown = self._cell(SHOWN, dict(state))
        assert shown == str((state["n"], state["text"], state["rows"], state["thing"], state["seen"]))

    @invariant()
    def a_query_waits_until_it_is_answered_or_undone(self) -> None:
        """Whatever has died meanwhile."""
        if self.states:
            assert self._pending() == self.asked.keys() - self.answered.keys()

    @invariant()
    def what_was_promised_can_be_undone(self) -> None:
        """Each of the last cells, and never more than the policy keeps."""
        if self.states:
            possible = self._info().undoable
            assert set(range(1, self.sure + 1)) <= set(possible)
            assert all(count <= self.kept for count in possible)


@pytest.fixture
def runner(module_isolation: object) -> Iterator[asyncio.Runner]:
    """An event loop that goes on where it was left."""
    with asyncio.Runner() as runner:
        yield runner


def test_a_strict_session_is_what_plain_python_would_be(runner: asyncio.Runner, tmp_path: Path) -> None:
    """`rollback` and recovery, in any order: nothing is ever lost, and nothing comes back that was undone."""
    Machine.runner, Machine.folder, Machine.store = runner, tmp_path, ContextStore(tmp_path / "store")
    Machine.supervisor = runner.run(SupervisorClient.connect())
    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=int(os.environ.get("RLM_ROLLBACK_EXAMPLES", "6")),
                stateful_step_count=25,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        runner.run(_end(Machine.supervisor))


async def _end(supervisor: SupervisorClient) -> None:
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGTERM)
    async with asyncio.timeout(SECONDS):
        await supervisor.wait_gone()
    supervisor.close()


async def _killed(supervisor: SupervisorClient, kernel_id: str) -> None:
    """Kill the session's process, and wait for the one that takes over."""
    pid = (await supervisor.kernel_info(kernel_id)).pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: supervisor.kernel_info(kernel_id), lambda told: told.pid not in (pid, None))


async def _value(supervisor: SupervisorClient, kernel_id: str, code: str) -> str:
    async with asyncio.timeout(SECONDS):
        result = await supervisor.execute(kernel_id, code).result()
    assert result.error is None, result.error
    return str(result.result)


@pytest.mark.anyio
@pytest.mark.parametrize("name", STOCK)
async def test_every_stock_policy_undoes_its_last_cells(supervisor, spawn, name: str) -> None:
    """Of cells that make no plain values too, as soon as the session has been idle for a moment."""
    kernel = await spawn(load_policy(name))
    kept = load_policy(name).limits.rollback_cells
    for number in range(kept + 2):
        pid = (await supervisor.kernel_info(kernel.kernel_id)).pid
        before = copies_of(pid)
        await _value(supervisor, kernel.kernel_id, f"made = [{number} for _ in range(2)]")
        await until(partial(copies_of, pid), lambda now, before=before: now - before)
    assert (await supervisor.kernel_info(kernel.kernel_id)).undoable == tuple(range(1, kept + 1))
    assert (await supervisor.rollback(kernel.kernel_id, kept)).restored == ("made",)
    assert await _value(supervisor, kernel.kernel_id, "made") == "[1, 1]"


@pytest.mark.anyio
async def test_what_was_undone_does_not_come_back_by_a_crash(supervisor, spawn, policy) -> None:
    """The session goes on from the copy that the rollback went back to, however soon after it that one has to serve."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=3))
    pid = (await supervisor.kernel_info(kernel.kernel_id)).pid
    await _value(supervisor, kernel.kernel_id, "rows = [i for i in range(3)]")
    await until(lambda: copies_of(pid))
    for number in (1, 2, 3):
        await _value(supervisor, kernel.kernel_id, f"n = {number}")
    await supervisor.rollback(kernel.kernel_id, 1)
    async with asyncio.timeout(SECONDS):
        await _killed(supervisor, kernel.kernel_id)
    assert await _value(supervisor, kernel.kernel_id, "n, rows") == "(2, [0, 1, 2])"
