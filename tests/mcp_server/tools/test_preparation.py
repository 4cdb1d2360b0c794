"""What a kernel has to be told or given before a cell: a call that fails or is cancelled meanwhile loses none of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rlm_ipc.errors import SupervisorGone
from rlm_ipc.kernel_reports import AskedQuery, BudgetUsed, CellNote, GivenAnswers, QueryOutcome
from rlm_ipc.supervisor_protocol import AttachmentChanged
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.service import Service
from rlm_mcp.service.sessions.bound_contexts import BoundContexts
from rlm_mcp.service.sessions.kernel_proxy import KernelProxy

pytestmark = pytest.mark.anyio


class Filling:
    """Fills a kernel when it is told to, and hears nothing of it."""

    def __init__(self) -> None:
        self.fills, self.begun, self.told = 0, asyncio.Event(), asyncio.Event()

    async def fill(self, _client: SupervisorClient, _kernel_id: str) -> bool:
        """Take note that the kernel was filled."""
        self.begun.set()
        await self.told.wait()
        self.fills += 1
        return True

    async def deliver(self, _client: SupervisorClient, _kernel_id: str, *, again: bool) -> None:
        """There is nothing."""

    def used(self) -> BudgetUsed:
        """Nothing."""
        return BudgetUsed()

    def asked(self, told: Sequence[AskedQuery]) -> None: ...
    def given(self, told: GivenAnswers) -> None: ...
    def dropped(self, ids: frozenset[str]) -> None: ...
    def cell(self, kernel_id: str, note: CellNote) -> None: ...
    def attachment(self, event: AttachmentChanged) -> None: ...
    def expelled(self) -> None: ...


@pytest.fixture
async def gone(own: Service) -> SupervisorClient:
    """A connection that has ended."""
    client = await SupervisorClient.connect(start=False)
    client.close()
    return client


async def test_a_cancelled_call_leaves_a_fresh_kernel_to_be_filled(own: Service, connect_own: Any) -> None:
    """An agent that gives its first call up would else find its saved variables gone for good."""
    async with connect_own("s") as agent:
        await agent("load_context", name="log", content="alpha")
    session, events = own.sessions.get("s"), Filling()
    assert session is not None
    kernel = KernelProxy(session.row, session.pinned, own._store, own.gateway, events)
    call = asyncio.create_task(kernel.open())
    await events.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    events.told.set()
    await kernel.open()
    await kernel.open()
    assert events.fills == 1
    await kernel.stop()


async def test_answers_that_the_kernel_did_not_take_are_handed_in_again(
    own: Service, connect_own: Any, gone: SupervisorClient
) -> None:
    """Code that uses one would else wait for it for ever."""
    async with connect_own("s") as agent:
        await agent.run("a = llm_query('q')")
        kernel = own.sessions.get("s").kernel  # type: ignore[union-attr]
        kernel.queries.outcomes["q_000"] = QueryOutcome(answer="yes")
        kernel.queries.refused = True
        with pytest.raises(SupervisorGone):
            await kernel.queries.catch_up(gone, kernel.kernel_id or "")
        assert kernel.queries.refused
        assert (await agent.run("str(a)"))["result"] == "'yes'"
        assert not kernel.queries.has_news


async def test_a_context_that_the_kernel_was_not_given_is_given_later(
    own: Service, connect_own: Any, gone: SupervisorClient
) -> None:
    """Whether the call before failed or was cancelled."""
    async with connect_own("s") as agent:
        await agent.run("1")
        await agent("load_context", name="log", content="alpha")
    session = own.sessions.get("s")
    assert session is not None
    bound = BoundContexts(own._store, session.key, own.gateway.texts)
    kernel_id = session.kernel.kernel_id or ""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await bound.catch_up(await own.gateway.client(), kernel_id)
    assert bound.stale
    assert bound.current(["log"]) == set()
    with pytest.raises(SupervisorGone):
        await bound.catch_up(gone, kernel_id)
    assert bound.stale
