"""Budgets of queries: who begins with a whole one, who goes on, and that nothing refills one."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from model_endpoint import Reply
from session_processes import runs
from waiting import until

from rlm_ipc.daemon_rows import AnswerUse
from rlm_ipc.kernel_reports import BudgetUsed
from rlm_ipc.session_requests import RestoreSession
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.sessions import budgets

pytestmark = pytest.mark.anyio

ANSWER = (30, 15)
"""Tokens in and out of each answer: more than the 40 that a session may use here."""
LIMITS = "{queries: 6, query_tokens: 40, rollback_cells: 2}"


@dataclass
class Scene:
    """A session that has used its budget up, and what a test may do with it."""

    agent: Any
    service: Any
    connect: Callable[..., Any]
    reopen: Callable[..., Any]
    clock: Any
    policies: Any
    rules: str
    stack: AsyncExitStack

    async def other(self, session: str) -> Any:
        """Connect to another session."""
        return await self.stack.enter_async_context(self.connect(session, RLM_KERNEL_POLICY=self.rules))

    async def kill(self) -> None:
        """Kill the session's kernel, and wait until it is gone."""
        process = psutil.Process((await self.agent("status"))["kernel"]["pid"])
        process.kill()
        await until(lambda: not runs(process))


@pytest.fixture
def rules(isolation: Any) -> Callable[[str], str]:
    """Write a policy of the provider mode with more lines in it, and name it."""
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)

    def write(more: str = "", limits: str = LIMITS) -> str:
        name = f"b{secrets.token_hex(4)}"
        llm = "{mode: provider, modes: [deferred, blocking], wait_seconds: 60}"
        (folder / f"{name}.yaml").write_text(f"extends: default\nlimits: {limits}\nllm: {llm}\n{more}\n")
        return name

    return write


@pytest.fixture
async def scene(own, connect_own, reopen, clock, endpoint, isolation, rules, request) -> Any:
    """A session under the policy of the test, whose one answer has used more than it may."""
    endpoint.configure(isolation.config, retries=0)
    endpoint.reply = lambda _: Reply("a", tokens=ANSWER)
    name = rules(getattr(request, "param", ""))
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(connect_own("s", RLM_KERNEL_POLICY=name))
        assert (await agent.run("first = llm_query('first')\nfirst"))["result"] == "'a'"
        yield Scene(agent, own, connect_own, reopen, clock, rules, name, stack)


async def ended(scene: Scene) -> Any:
    await scene.agent("end_session")
    return scene.agent


async def expired(scene: Scene) -> Any:
    for seconds in (7201, 8 * 86_400):  # it is set aside, and then it goes
        scene.clock.now += seconds
        await scene.service.sweep()
    return scene.agent


async def forked(scene: Scene) -> Any:
    return await scene.other((await scene.agent("fork_session"))["session"])


async def forked_twice(scene: Scene) -> Any:
    child = await forked(scene)
    assert (await child.run("llm_query('c')"))["result"] == "'a'"
    return await scene.other((await child("fork_session"))["session"])


async def forked_from_a_copy(scene: Scene) -> Any:
    running = asyncio.create_task(scene.agent.run(scene.agent.HELD))
    await until(lambda: scene.agent("status"), lambda told: told["kernel"]["state"] == "busy")
    made = await scene.agent("fork_session")
    assert made["source"] == "checkpoint"
    await scene.agent.let_go()
    await running
    return await scene.other(made["session"])


async def forked_and_restarted(scene: Scene) -> Any:
    child = await forked(scene)
    await child("restart_session")
    return child


async def restored_elsewhere(scene: Scene) -> Any:
    await scene.service.save_session("s", None, embed=True)
    request = RestoreSession("s", None, "restored", scene.rules)
    await scene.service.restore_session(request, ClientInfo(cwd="/tmp"))
    return await scene.other("restored")


async def restored_in_its_place(scene: Scene) -> Any:
    await scene.service.save_session("s", None, embed=True)
    await scene.agent("end_session")
    await scene.service.restore_session(RestoreSession("s", None, "", scene.rules), ClientInfo(cwd="/tmp"))
    return scene.agent


async def restarted(scene: Scene) -> Any:
    await scene.agent("restart_session")
    return scene.agent


async def killed(scene: Scene) -> Any:
    await scene.kill()
    return scene.agent


async def killed_twice(scene: Scene) -> Any:
    await scene.kill()
    await scene.agent.run("1")
    await scene.kill()
    return scene.agent


async def rolled_back(scene: Scene) -> Any:
    assert (await scene.agent("rollback", cells=1))["undone"]
    return scene.agent


async def rested(scene: Scene) -> Any:
    await scene.agent.run("later = llm_query('later', mode='deferred')")
    return await idled_and_reopened(scene)


async def idled_and_reopened(scene: Scene) -> Any:
    scene.clock.now += 7201
    await scene.service.sweep()
    return scene.agent


async def given_another_policy(scene: Scene) -> Any:
    await scene.service.apply_policy("s", scene.policies(), looser=False)
    scene.agent.handshake.env.pop("RLM_KERNEL_POLICY")
    return scene.agent


async def served_by_another_daemon(scene: Scene) -> Any:
    await scene.service.providers.aclose()
    scene.service.budgets.write_all()
    connect = await scene.stack.enter_async_context(scene.reopen())
    return await scene.stack.enter_async_context(connect("s", RLM_KERNEL_POLICY=scene.rules))


async def served_by_another_daemon_with_another_kernel(scene: Scene) -> Any:
    session = scene.service.sessions.get("s")
    await scene.service.gateway.discard(session.kernel.info)
    return await served_by_another_daemon(scene)


Event = Callable[[Scene], Awaitable[Any]]
WHOLE: list[Event] = [
    ended,
    expired,
    forked,
    forked_twice,
    forked_from_a_copy,
    forked_and_restarted,
    restored_elsewhere,
    restored_in_its_place,
]
GOES_ON: list[Event] = [
    restarted,
    killed,
    killed_twice,
    rolled_back,
    rested,
    given_another_policy,
    served_by_another_daemon,
    served_by_another_daemon_with_another_kernel,
]


async def budgets_of(agent: Any) -> list[tuple[float, float]]:
    """Calls and tokens that are used, as the tool says and as code reads it."""
    tool = await agent("budget")
    said = (await agent.run("import json\nprint(json.dumps(budget()))"))["stdout"]
    return [(told["calls"]["used"], told["tokens"]["used"]) for told in (tool, json.loads(said))]


@pytest.mark.parametrize("event", WHOLE)
async def test_who_begins_with_a_whole_budget(scene, endpoint, event) -> None:
    """K-22: in the tool, in code, and when something is asked."""
    agent = await event(scene)
    assert await budgets_of(agent) == [(0, 0), (0, 0)]
    assert (await agent.run("llm_query('more')"))["result"] == "'a'"
    assert await budgets_of(agent) == [(1, 45), (1, 45)]


@pytest.mark.parametrize(
    ("scene", "event"),
    [*(("", event) for event in GOES_ON), ("reopen: true", idled_and_reopened), ("checkpoint: 'off'", killed)],
    indirect=["scene"],
)
async def test_who_goes_on_with_what_is_used(scene, endpoint, event) -> None:
    """K-22: nothing that a session can do, and nothing that can happen to it, refills its budget."""
    agent = await event(scene)
    if event in (killed, killed_twice):
        await agent.run("1")  # is told what was lost
    calls = 2 if event is rested else 1
    assert await budgets_of(agent) == [(calls, 45), (calls, 45)]
    assert "BudgetExceeded" in (await agent.run("llm_query('more')"))["error"]
    assert [asked.prompt for asked in endpoint.requests] == ["first"]


async def test_a_fork_leaves_the_budget_of_its_parent_as_it_is(scene, endpoint) -> None:
    """K-22: neither gains or pays for what the other does."""
    child = await forked(scene)
    await child.run("llm_query('child')")
    assert await budgets_of(scene.agent) == [(1, 45), (1, 45)]
    assert "BudgetExceeded" in (await scene.agent.run("llm_query('more')"))["error"]
    await child("end_session")
    assert await budgets_of(scene.agent) == [(2, 45), (2, 45)]


@pytest.mark.parametrize("how", ["restarted", "lost with its supervisor"])
async def test_the_ids_of_a_fork_with_another_kernel_are_none_of_its_parents(scene, endpoint, how) -> None:
    """K-22: what it holds of its parent's queries is never taken for its own."""
    child = await forked(scene)
    if how == "restarted":
        await child("restart_session")
    else:
        kernel = scene.service.sessions.get((await child("status"))["session"]).kernel
        await scene.service.gateway.discard(kernel.info)
        await child.run("1")  # is told of it
    asked = await child.run("llm_query('mine', mode='deferred')")
    assert [query["id"] for query in asked["pending_llm_queries"]] == ["q_001"]


# --- the bounds themselves ------------------------------------------------------------------------


@pytest.fixture
async def bounded(connect_own, endpoint, isolation, rules) -> Any:
    """Open a session under limits."""
    endpoint.configure(isolation.config, retries=0, concurrency=1)
    endpoint.reply = lambda _: Reply("a", tokens=(30, 10))
    async with AsyncExitStack() as stack:

        async def start(limits: str, more: str = "") -> Any:
            name = rules(more, limits)
            return await stack.enter_async_context(connect_own(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY=name))

        yield start


@pytest.mark.parametrize(("limit", "answered"), [(79, 2), (80, 2), (81, 3)])
async def test_a_budget_that_is_used_exactly_is_used_up(bounded, endpoint, limit, answered) -> None:
    """K-22: nothing is asked at the limit, one token below it something is."""
    agent = await bounded(f"{{query_tokens: {limit}}}")
    done = await agent.run("for n in range(5): print(llm_query(str(n)))")
    assert (done["stdout"], "BudgetExceeded" in done["error"]) == ("a\n" * answered, True)
    assert len(endpoint.requests) == answered


@pytest.mark.parametrize("first", ["code", "tool"])
async def test_code_and_tools_share_the_number_of_queries(bounded, first) -> None:
    """K-22: as many as the limit, not one more, whoever asks the last."""
    agent = await bounded("{queries: 4}")
    by_code = "llm_query_batched(['a', 'b'], mode='deferred')"
    for turn in ("code", "tool") if first == "code" else ("tool", "code"):
        if turn == "code":
            assert (await agent.run(by_code))["success"]
        else:
            assert len((await agent("llm_query_batched", prompts=["c", "d"]))["queries"]) == 2
    assert (await agent("llm_query", prompt="e"))["error"] == "quota_exceeded"
    refused = (await agent.run("llm_query('e')"))["error"]
    assert "QueryLimit: this session may ask only 4 queries" in refused
    assert refused.endswith("and 0 of them are left: continue without")
    assert (await agent("budget"))["calls"] == {"used": 4, "limit": 4}
    assert len((await agent("status"))["pending_llm_queries"]) == 4


async def test_a_batch_of_the_tool_beyond_the_limit_asks_nothing(bounded) -> None:
    """K-22: all or none."""
    agent = await bounded("{queries: 2}")
    assert (await agent("llm_query_batched", prompts=["a", "b", "c"]))["error"] == "quota_exceeded"
    assert (await agent("budget"))["calls"]["used"] == 0
    assert len((await agent("llm_query_batched", prompts=["a", "b"]))["queries"]) == 2


FORGERS = """
me = llm_query.__closure__[0].cell_contents
me._used['calls'] = me._used['tokens'] = -1_000_000
"""
"""Without a language wall code reaches what its kernel counts by."""


async def test_a_kernel_that_counts_wrongly_gains_nothing(bounded, endpoint) -> None:
    """K-22: what goes beyond the limit fails in the daemon, and is not written down."""
    agent = await bounded("{queries: 3, query_tokens: 40}", "language: {wall: 'off'}\nwalls: {require: []}")
    asked = await agent.run("first = llm_query_batched(['a', 'b'], mode='deferred')")
    await agent("answer_queries", answers={query["id"]: "A" for query in asked["pending_llm_queries"]})
    asked = await agent.run(FORGERS + "many = llm_query_batched(['c', 'd', 'e'], mode='deferred')")
    assert [query["id"] for query in asked["pending_llm_queries"]] == ["q_002"]
    assert (await agent.run("[one.status for one in many]"))["result"] == "['pending', 'failed', 'failed']"
    assert (await agent("budget"))["calls"] == {"used": 3, "limit": 3}
    over = await agent.run(FORGERS + "llm_query('one more')")
    assert "BudgetExceeded: [FAILED:q_005] this session may ask at most 3 queries (limits.queries)" in over["error"]
    assert endpoint.requests == []


async def test_what_a_killed_kernel_had_asked_stays_counted(bounded, endpoint) -> None:
    """K-18, K-22: the copy that takes over does not know of it, and is told."""
    agent = await bounded("{queries: 2, query_tokens: 1000}", "checkpoint: strict")
    await agent.run("kept = 1")
    endpoint.script(Reply("never", delay=60))
    running = asyncio.create_task(agent.run("llm_query_batched(['a', 'b'])"))
    await until(lambda: endpoint.requests)
    psutil.Process((await agent("status"))["kernel"]["pid"]).kill()
    assert (await running)["error"] == "kernel_died"
    assert await budgets_of(agent) == [(2, 0), (2, 0)]
    assert "QueryLimit" in (await agent.run("llm_query('c')"))["error"]


# --- the time of providers, and what is written down -----------------------------------------------


@pytest.fixture
async def accounts(quiet, connect, monkeypatch) -> Any:
    """The daemon's budgets, a session, and a clock of the test's: it tells the seconds, and adds what it is given."""
    seconds = [1000.0]

    def clock(more: float = 0.0) -> float:
        seconds[0] += more
        return seconds[0]

    monkeypatch.setattr(budgets, "_now", clock)
    async with connect("s") as agent:
        await agent("llm_query", prompt="one")
        yield quiet.budgets, quiet.sessions.get("s"), clock, agent


async def test_time_counts_once_however_many_work_and_not_while_none_does(accounts) -> None:
    """K-22: of several at once, while one goes on after another, and between what is written down meanwhile."""
    book, session, clock, _ = accounts

    def used() -> float:
        return book.used(session).seconds

    for whole in (0.0, 1500.0):
        with book.working(session):
            clock(1000.0)
            with book.working(session):
                clock(200.0)
                assert used() == whole + 1200.0
            clock(200.0)
            book.write(session.key)
            assert used() == whole + 1400.0
            for _ in range(1000):
                clock(0.0004)
                book.write(session.key)
            assert used() == whole + 1400.4
            clock(99.6)
        clock(1e6)
        assert used() == whole + 1500.0
    assert book.seconds_left(session) == session.policy.limits.query_seconds - 3000.0
    book.write(session.key)
    book.forget(session.key)
    assert used() == 3000.0


async def test_a_budget_is_read_once_and_written_only_if_something_was_used(accounts, monkeypatch) -> None:
    """The daemon does both for every session that an agent uses, and most of them pay no provider."""
    book, session, clock, _ = accounts
    read: list[int] = []
    transactions: list[None] = []
    real = budgets.budgets.used
    monkeypatch.setattr(budgets.budgets, "used", lambda store, key: read.append(key) or real(store, key))
    stop = book._store.watch(lambda: transactions.append(None))
    assert book.used(session).calls == 1
    assert read == [session.key]
    book.write(session.key)
    book.write(session.key + 1000)
    assert transactions == []
    with book.working(session):
        clock(1.0)
    book.write(session.key)
    assert len(transactions) == 1
    stop()


async def test_what_was_charged_is_written_down_with_all_others_and_goes_with_its_session(accounts) -> None:
    """K-22: a daemon that ends writes down what it has not yet; no other session finds it."""
    book, session, _, agent = accounts
    book.charge(session, AnswerUse("q_t000", "m", 3, 4, 0.5))
    assert book.owes(session.key)
    book.write_all()
    assert not book.owes(session.key)
    book.forget(session.key)
    assert book.used(session) == BudgetUsed(calls=1, tokens=7, cost=0.5, seconds=0.0)
    await agent("end_session")
    assert book.used(session) == BudgetUsed()
