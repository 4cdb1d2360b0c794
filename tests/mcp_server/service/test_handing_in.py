"""When what came of a session's queries is written down and handed to its kernel: at once, and then many together."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import everything_ran

from rlm_ipc.daemon_rows import AnswerUse
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_mcp.service.queries import providers
from rlm_mcp.service.queries.providers import Providers
from rlm_mcp.service.sessions.budgets import Budgets as RealBudgets
from rlm_mcp.service.sessions.budgets import Payer
from rlm_memory import known_answers
from rlm_memory.queries import Asker, QueryRow, QueryState
from rlm_memory.store import Store
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio

POLICY = load_policy("default")
SESSION: Any = SimpleNamespace(key=1, id="s", policy=replace(POLICY, llm=replace(POLICY.llm, cache=True)))


def row(name: str, *, recursive: bool = False) -> QueryRow:
    """A query to the provider. The tests' cache has the answer of each that is not ``recursive``."""
    pending = (None, QueryState.PENDING, None, None, 0.0, None, Asker.CODE, 0, "provider", None, None)
    return QueryRow(1, name, 0, name, *pending, recursive)


class Kernel:
    """Takes answers, as `QueryService` does; each time waits until it is told to go on when it is ``busy``."""

    def __init__(self) -> None:
        self.taken: list[list[str]] = []
        self.busy = False
        self.cancelled = False
        self.free = asyncio.Event()

    def resolve(self, _session: Any, outcomes: dict[str, QueryOutcome]) -> dict[str, QueryOutcome]:
        """Write down what came."""
        return outcomes

    async def hand_in(self, _session: Any, outcomes: dict[str, QueryOutcome]) -> None:
        """Tell the session's code."""
        try:
            if self.busy:
                await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        self.taken.append(list(outcomes))


class Budgets:
    """Nobody owes anything."""

    def owes(self, _key: int) -> bool:
        """Whether a bill is not written down."""
        return False

    def writing(self, _key: int) -> nullcontext[None]:
        """Write bills down, and what the caller writes."""
        return nullcontext()

    def payer(self, session: Any, asked: QueryRow) -> Payer:
        """The session itself."""
        return Payer(session, asked, 0)


class Model:
    """Answers a query of rlm_query when it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def answer(self, _parent: Any, asked: QueryRow) -> str:
        """The answer."""
        await self.told.wait()
        return f"to {asked.id}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "rows.sqlite")
    for name in ("a", "b", "c"):
        known_answers.keep(opened, row(name), f"to {name}", 0.0)
    yield opened
    opened.close()


async def test_what_comes_while_more_is_on_its_way_is_handed_in_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-22: the first at once; each time wakes four processes and is a transaction, so the others wait for the last."""
    monkeypatch.setattr(providers, "_REST", 3600.0)
    kernel, model = Kernel(), Model()
    desk = Providers(store, kernel, Budgets(), model, lambda: 0.0)  # type: ignore[arg-type]  # the parts that it uses
    desk.asked(SESSION, [row("slow", recursive=True)])
    for name in ("a", "b", "c"):
        desk.asked(SESSION, [row(name)])
        await everything_ran()
    assert kernel.taken == [["a"]]
    model.told.set()
    await everything_ran()
    assert kernel.taken == [["a"], ["b", "c", "slow"]]
    desk.asked(SESSION, [row("b")])
    await everything_ran()
    assert kernel.taken[2:] == [["b"]]
    await desk.aclose()


async def test_a_session_that_ends_is_told_no_more(store: Store) -> None:
    """Neither what is being handed in, nor what has come since."""
    kernel = Kernel()
    kernel.busy = True
    desk = Providers(store, kernel, Budgets(), Model(), lambda: 0.0)  # type: ignore[arg-type]  # the parts that it uses
    desk.asked(SESSION, [row("a")])
    await everything_ran()
    desk.asked(SESSION, [row("b")])
    desk.drop(SESSION)
    kernel.free.set()
    await everything_ran()
    assert (kernel.taken, kernel.cancelled) == ([], True)
    await desk.aclose()


async def test_what_an_ended_session_owed_is_forgotten(store: Store) -> None:
    """It may pay for a session below it that still asks. The task that hands in died of it, each time anew."""
    kernel, budgets = Kernel(), RealBudgets(store)
    desk = Providers(store, kernel, budgets, Model(), lambda: 0.0)  # type: ignore[arg-type]  # the parts that it uses
    budgets.charge(SESSION, AnswerUse("a", "model", 1, 1, 0.0))  # the database has no session of this key any more
    desk.asked(SESSION, [row("a")])
    await everything_ran()
    assert (budgets.owes(SESSION.key), kernel.taken) == (False, [])
    desk.asked(SESSION, [row("b")])
    await everything_ran()
    assert kernel.taken == [["b"]]
    await desk.aclose()
