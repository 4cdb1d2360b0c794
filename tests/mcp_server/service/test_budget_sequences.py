"""A seeded stateful test: sessions ask, models answer, disks fill up and daemons die, against a model of who has paid.

What counts and writes down is real, in a real database; the models and the kernels are played, and time passes when
the test says so.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from machines import first_failure, run_machine
from waiting import everything_ran

from rlm_client.models.errors import ModelRefused
from rlm_client.models.interface import Completion, Usage
from rlm_client.models.router import Models
from rlm_client.models.settings import Endpoint, ModelSettings
from rlm_ipc.kernel_reports import AskedQuery, QueryOutcome
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.queries import providers
from rlm_mcp.service.queries.answering import GivenAnswer, QueryService
from rlm_mcp.service.queries.providers import Providers
from rlm_mcp.service.sessions.budgets import Budgets, Payer
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory import inherited_queries, queries, sessions
from rlm_memory.errors import StoreFault
from rlm_memory.queries import Asker, QueryRow, QueryState
from rlm_memory.sessions import How, PolicyText, SessionRow
from rlm_memory.store import Store
from rlm_sandbox.policy import load_policy

QUERIES, TOKENS, COST, SECONDS = 14, 60, 0.5, 6.0
TICK = 0.25
AT_ONCE = 2
DEFAULT = load_policy("default")
LIMITS = replace(DEFAULT.limits, queries=QUERIES, query_tokens=TOKENS, query_cost=COST, query_seconds=SECONDS)
POLICY = replace(DEFAULT, limits=LIMITS)
FULL = "create trigger full_{0} before update on {0} begin select raise(abort, 'disk is full'); end"
ROOM = "drop trigger if exists full_{0}"
WRITTEN = ("queries", "query_details", "budgets")
WEIGHTS = {
    **dict.fromkeys(["ask", "reply"], 8),
    **dict.fromkeys(["answer", "wait"], 4),
    **dict.fromkeys(["ask_by_tool", "ask_for_summary", "tell_again", "withdraw", "refuse", "fork", "rest"], 2),
    **dict.fromkeys(["lose_kernel", "end", "fill_disk", "next_daemon", "crash"], 1),
}
OPS = [op for op, weight in WEIGHTS.items() for _ in range(weight)]


class Loop(asyncio.SelectorEventLoop):
    """Its time passes when the test says so."""

    now = 0.0

    def time(self) -> float:
        """Seconds."""
        return self.now


class Kernel:
    """Takes what it is told of its queries, each once."""

    alive = True

    def __init__(self) -> None:
        self.told: dict[str, QueryOutcome] = {}
        self.refused: list[str] = []

    async def hand_over(self, outcomes: dict[str, QueryOutcome]) -> None:
        """Take answers."""
        assert not outcomes.keys() & self.told.keys()
        self.told.update(outcomes)

    def refuse(self, ids: list[str], _reason: str, *, over: bool = False) -> None:
        """Take that queries fail."""
        self.refused += ids

    def budget_changed(self) -> None:
        """What is used may be asked for at any time here."""


@dataclass
class Used:
    """What a session has used, by the model."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether a provider may do no more for the session."""
        return self.tokens >= TOKENS or self.cost >= COST or self.seconds >= SECONDS


@dataclass
class Life:
    """One session, its kernel, and what it has used."""

    session: Any
    kernel: Kernel
    payer: "Life"
    used: Used = field(default_factory=Used)
    next: int = 0

    @property
    def key(self) -> int:
        """The key of its rows."""
        key: int = self.session.key
        return key


@dataclass
class Request:
    """What a model was asked."""

    life: Life
    answer: asyncio.Future[Completion]


class Accounts(RuleBasedStateMachine):
    """Up to five sessions, each with a whole budget, two of which begin."""

    folder: ClassVar[Path]
    number: ClassVar[int] = 0
    done: ClassVar[dict[str, int]]

    def __init__(self) -> None:
        super().__init__()
        type(self).number += 1
        self.path = self.folder / f"{self.number}.sqlite3"
        self.trail: list[str] = []
        self.loop = Loop()
        self.requests: list[Request] = []
        self.lives: dict[int, Life] = {}
        self.paying: dict[int, ExitStack] = {}
        self.full = False
        self._open()
        for name in ("a", "b"):
            self._begin(name, None)

    # --- the daemon -------------------------------------------------------------------------------

    def _open(self) -> None:
        self.store = Store.open(self.path)
        self.budgets = Budgets(self.store)
        live: Any = SimpleNamespace(of_key=lambda key: self.lives[key].session if key in self.lives else None)
        self.queries = QueryService(self.store, live, self.budgets, self.loop.time)
        nothing: Any = None
        self.providers = Providers(self.store, self.queries, self.budgets, nothing, self.loop.time)
        self.providers._models.append(self._opened())
        self.providers._configured = providers._stamp()
        for life in self.lives.values():
            self._pays(life)

    def _opened(self) -> Models:
        """The configured model, which the test answers for."""
        endpoint = Endpoint(provider="openai", model="m", concurrency=AT_ONCE)
        opened = Models(ModelSettings(default="m", models={"m": endpoint}))
        opened._providers["m"] = self
        return opened

    async def complete(self, messages: Any, *_: Any) -> Completion:
        """Answer when the test says what."""
        asking = self.lives[int(messages[0]["content"].partition(" ")[0])]
        assert not asking.payer.used.is_over
        request = Request(asking, self.loop.create_future())
        self.requests.append(request)
        try:
            return await request.answer
        finally:
            self.requests.remove(request)

    async def aclose(self) -> None:
        """There are no connections."""

    def _pays(self, life: Life) -> None:
        stack = self.paying[life.key] = ExitStack()
        if life.payer is not life:
            row: Any = SimpleNamespace(id="q_none")
            stack.enter_context(self.budgets.paid_by(life.key, Payer(life.payer.session, row, 0)))

    def _begin(self, name: str, parent: Life | None, *, paid: bool = False) -> Life:
        opened: SessionRow = sessions.open_session(
            self.store, name, workspace="/w", policy=PolicyText("default", "{}", ""), idle_seconds=9.0, now=0.0
        )
        kernel, pinned = Kernel(), SimpleNamespace(policy=POLICY)
        session: Any = Session(opened, pinned, pinned, kernel, 0.0)  # type: ignore[arg-type]  # the parts that are used
        life = self.lives[opened.key] = Life(session, kernel, None)  # type: ignore[arg-type]  # below
        life.payer = parent.payer if paid and parent is not None else life
        self._pays(life)
        return life

    async def _pass(self, ticks: int) -> None:
        """Let time pass, which counts for each session that a provider works for."""
        for _ in range(ticks):
            for payer in {id(one.life.payer): one.life.payer for one in self.requests}.values():
                payer.used.seconds += TICK
            self.loop.now += TICK
            await everything_ran()

    # --- one step ---------------------------------------------------------------------------------

    @rule(pick=st.integers(0, 10_000), which=st.integers(0, 10_000), many=st.integers(1, 4))
    @first_failure
    def step(self, pick: int, which: int, many: int) -> None:
        """One operation. A single rule, because hypothesis leaves out some rules in each of its examples."""
        chosen = OPS[pick % len(OPS)]
        self.trail.append(chosen)
        lives = list(self.lives.values())
        self.loop.run_until_complete(self._done(getattr(self, f"_{chosen}")(lives[which % len(lives)], which, many)))
        self.done[chosen] = self.done.get(chosen, 0) + 1

    async def _done(self, operation: Coroutine[Any, Any, None]) -> None:
        await operation
        await everything_ran()
        self._compare()

    async def _ask(self, life: Life, which: int, many: int) -> None:
        mode = "deferred" if which % 3 == 0 else "provider"
        numbers = range(life.next, life.next + many)
        life.next += many
        told = [AskedQuery(number, f"{life.key} asks {number}", mode=mode) for number in numbers]
        accepted = min(many, QUERIES - life.used.calls)
        before = len(life.kernel.refused)
        try:
            rows = self.queries.note(life.session, told)
        except StoreFault:
            assert self.full
            return
        assert [row.number for row in rows] == list(numbers)[:accepted]
        assert life.kernel.refused[before:] == [query.id for query in told[accepted:]]
        life.used.calls += accepted
        self.providers.asked(life.session, rows)

    async def _tell_again(self, life: Life, _which: int, _many: int) -> None:
        pending = [row for row in self._pending(life) if row.asked_by is Asker.CODE]
        told = [AskedQuery(row.number, row.prompt, mode=row.mode) for row in pending]
        assert self.queries.note(life.session, told) == []
        self.providers.asked(life.session, queries.pending(self.store, life.key))

    async def _ask_by_tool(self, life: Life, _which: int, many: int) -> None:
        try:
            self.queries.ask(life.session, ["?"] * many, None)
        except (ToolFault, StoreFault):
            assert self.full or life.used.calls + many > QUERIES
        else:
            life.used.calls += many

    async def _ask_for_summary(self, life: Life, _which: int, _many: int) -> None:
        """Ask a provider without code, as for the summary of a frame."""
        if self.budgets.calls_left(life.session) and not self.full:
            with self.store.transaction():
                asked = queries.ask(self.store, life.key, [f"{life.key} asks"], None, 0.0, mode="provider")
                self.budgets.ask(life.session, 1)
            life.used.calls += 1
            self.providers.asked(life.session, asked)

    async def _reply(self, _life: Life, which: int, many: int) -> None:
        if self.requests:
            request = self.requests[which % len(self.requests)]
            usage = Usage(many, 2 * many, 0.01 * many)
            payer = request.life.payer.used
            payer.tokens, payer.cost = payer.tokens + 3 * many, payer.cost + 0.01 * many
            request.answer.set_result(Completion("yes", usage, "m", "stop"))

    async def _refuse(self, _life: Life, which: int, _many: int) -> None:
        if self.requests:
            self.requests[which % len(self.requests)].answer.set_exception(ModelRefused("no"))

    async def _answer(self, life: Life, which: int, many: int) -> None:
        pending = [row.id for row in self._pending(life) if row.mode != "provider"][:many]
        given = [GivenAnswer(query, "said") for query in pending]
        taken = await self.queries.answer(life.session, given)
        assert taken.answered == ([] if self.full else pending)

    async def _withdraw(self, life: Life, _which: int, many: int) -> None:
        await self._make_room()
        ids = [row.id for row in self._pending(life) if row.mode == "provider"]
        self.providers.withdraw(life.session, ids[:many])

    async def _lose_kernel(self, life: Life, _which: int, _many: int) -> None:
        await self._make_room()
        ids = [row.id for row in self._pending(life) if row.mode == "provider" and row.asked_by is Asker.CODE]
        self.providers.withdraw(life.session, ids)  # the cell waits for them no more
        self.providers.give_up(life.session)

    async def _wait(self, _life: Life, _which: int, many: int) -> None:
        await self._pass(many)

    async def _fork(self, life: Life, which: int, _many: int) -> None:
        if len(self.lives) < 5:
            pending = queries.of_session(self.store, life.key, QueryState.PENDING)
            held = [row for row in pending if row.mode == "deferred" and row.asked_by is Asker.CODE]
            fork = self._begin(f"f{len(self.trail)}", life, paid=which % 2 == 0)
            inherited_queries.inherit(self.store, fork.key, life.key, held, 0.0)
            fork.next = queries.next_in_code(self.store, fork.session.id)

    async def _end(self, life: Life, _which: int, _many: int) -> None:
        if len(self.lives) > 1 and all(other.payer is not life for other in self.lives.values() if other is not life):
            await self._make_room()
            inherited_queries.pass_on(self.store, life.key)
            sessions.end(self.store, life.key, How.ENDED, 0.0)
            self.providers.drop(life.session)
            self.budgets.forget(life.key)
            self.paying.pop(life.key).close()
            await everything_ran()
            del self.lives[life.key]

    async def _rest(self, life: Life, _which: int, _many: int) -> None:
        waits = any(row.mode == "provider" for row in self._pending(life))
        pays = any(other.payer is life for other in self.lives.values() if other is not life)
        if not self.full and not waits and not pays:
            self.budgets.write(life.key)
            self.providers.drop(life.session)
            self.budgets.forget(life.key)

    async def _fill_disk(self, _life: Life, _which: int, _many: int) -> None:
        await self._make_room()
        for name in WRITTEN:
            self.store.run(FULL.format(name))
        self.full = True

    async def _make_room(self) -> None:
        """Make room, and wait until what could not be written down is."""
        if self.full:
            for name in WRITTEN:
                self.store.run(ROOM.format(name))
            self.full = False
            await self._pass(int(providers._AGAIN / TICK) + 1)

    async def _next_daemon(self, _life: Life, _which: int, _many: int) -> None:
        was_full = self.full
        await self.providers.aclose()
        self.budgets.write_all()
        await self._reopen()
        if was_full:
            self._go_on_with_what_is_written()

    async def _crash(self, _life: Life, _which: int, _many: int) -> None:
        await self._cancelled()
        for stack in self.paying.values():
            stack.pop_all()
        await self._reopen()
        self._go_on_with_what_is_written()

    def _go_on_with_what_is_written(self) -> None:
        for life in self.lives.values():  # what was not written down has no answer either
            found, used = self.budgets.used(life.session), life.payer.used
            assert found.calls == life.used.calls
            assert (found.tokens <= used.tokens, found.seconds <= used.seconds + 0.01) == (True, True)
            if life.payer is life:
                life.used = Used(found.calls, found.tokens, found.cost, found.seconds)

    async def _reopen(self) -> None:
        self.store.close()
        self._open()
        if self.full:
            await self._make_room()
        for number, life in enumerate(self.lives.values()):
            if number % 2:
                self.providers.give_up(life.session)  # its kernel has gone meanwhile
            else:
                await self._tell_again(life, 0, 0)

    # --- what holds -------------------------------------------------------------------------------

    def _pending(self, life: Life) -> list[QueryRow]:
        return queries.pending(self.store, life.key)

    def _compare(self) -> None:
        for life in self.lives.values():
            found, payer = self.budgets.used(life.session), life.payer.used
            assert (found.calls, found.tokens) == (life.used.calls, payer.tokens)
            assert found.cost == pytest.approx(payer.cost)
            assert found.seconds == pytest.approx(payer.seconds, abs=0.01)
            assert (found.calls <= QUERIES, found.seconds <= SECONDS + 0.01) == (True, True)
            self._nothing_is_lost(life)

    def _nothing_is_lost(self, life: Life) -> None:
        """Whatever a provider is to answer is asked, waits for its turn, or waits to be handed in."""
        desk = self.providers._desks.get(life.key)
        open_ones = set() if desk is None else desk.line._open.keys() | desk.ready.keys()
        if self.budgets.owes(life.key):
            assert desk is not None
            assert desk.handing is not None
            assert not desk.handing.done()
        for row in queries.of_session(self.store, life.key):
            if row.state is QueryState.PENDING and row.mode == "provider":
                assert row.id in open_ones
            elif row.state in (QueryState.ANSWERED, QueryState.FAILED):
                told = life.kernel.told[row.id]
                assert told.answer is not None or told.over or told.error == "no"
            if row.state is QueryState.ANSWERED and row.mode == "provider" and life.payer is life:
                assert row.input_tokens > 0

    def teardown(self) -> None:
        """In the end each query that was not withdrawn has its answer, and what was used is in the rows."""
        try:
            self._ended()
        finally:
            self.loop.run_until_complete(self._cancelled())
            self.store.close()
            self.loop.close()

    @first_failure
    def _ended(self) -> None:
        self.loop.run_until_complete(self._at_the_end())

    async def _cancelled(self) -> None:
        for desk in self.providers._desks.values():
            desk.line._waiting.clear()  # or one that is cancelled has another begin
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await everything_ran()

    async def _at_the_end(self) -> None:
        await self._make_room()
        while self.requests:
            await self._reply(self.requests[0].life, 0, 1)
            await everything_ran()
        await self._pass(4)
        self._compare()
        self.budgets.write_all()
        for life in self.lives.values():
            assert [row.id for row in self._pending(life) if row.mode == "provider"] == []
            self.budgets.forget(life.key)
        self._compare()


def test_no_budget_is_exceeded_and_nothing_is_charged_twice_or_lost(tmp_path: Path) -> None:
    """K-22, K-23: whatever happens in whatever order."""
    Accounts.folder, Accounts.done = tmp_path, {}
    run_machine(Accounts, operations=400, steps=50, number=1)
    assert Accounts.done.keys() == WEIGHTS.keys()
