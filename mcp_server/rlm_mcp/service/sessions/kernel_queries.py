"""The queries of a session's kernel: those that its code asks, and the answers that it has to hear."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rlm_ipc.kernel_reports import AskedQuery, BudgetUsed, QueryOutcome
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.sessions.kernel_events import KernelEvents
from rlm_memory import queries
from rlm_memory.queries import QueryRow, QueryState
from rlm_memory.store import Store

_TOLD_AT_ONCE = 64
"""Queries written down before the event loop sees to something else."""


class KernelQueries:
    """The queries of one session's kernel; ``events`` has them written down."""

    def __init__(self, store: Store, session: int, events: KernelEvents) -> None:
        self._store, self._session, self._events = store, session, events
        self.waiting: frozenset[str] = frozenset()
        """The queries that the running cell waits for."""
        self._provided: set[str] = set()
        """Queries that a provider is to answer."""
        self._new: list[AskedQuery] = []
        self._suspension: asyncio.Future[None] | None = None
        self.outcomes: dict[str, QueryOutcome] = {}
        """What the kernel has to hear of its queries."""
        self.refused = False
        """Whether the kernel has to hear that its code's own answers are not taken."""
        self.budget_changed = False
        """Whether the kernel does not know what is used of the budget."""

    # --- what code asks ---------------------------------------------------------------------------

    @property
    def of_agent(self) -> frozenset[str]:
        """The queries that the running cell waits for and an agent is to answer."""
        return self.waiting - self._provided

    def next_suspension(self) -> asyncio.Future[None]:
        """Return the future that is done when a cell begins to wait for answers; never cancel it."""
        if self._suspension is None:
            self._suspension = asyncio.get_running_loop().create_future()
        return self._suspension

    def add(self, asked: Sequence[AskedQuery]) -> None:
        """Take note of queries, together with those that come with them; before whatever the cell does next."""
        self._provided.update(query.id for query in asked if query.mode == "provider")
        if not self._new:
            asyncio.get_running_loop().call_soon(self._write_some)
        self._new += asked

    def _write_some(self) -> None:
        """Have some queries written down; while the others wait, requests for these go out."""
        some, self._new = self._new[:_TOLD_AT_ONCE], self._new[_TOLD_AT_ONCE:]
        if self._new:
            asyncio.get_running_loop().call_soon(self._write_some)
        if some:
            self._events.asked(some)

    def write_all(self) -> None:
        """Have all new queries written down."""
        new, self._new = self._new, []
        if new:
            self._events.asked(new)

    def suspend(self, ids: frozenset[str]) -> dict[str, QueryOutcome]:
        """A cell waits for answers, or goes on; returns the answers that came before it waited."""
        if not ids or not ids <= self._provided:
            self.write_all()  # whoever sees that the cell waits for an agent, or for nobody, has to see what was asked
        self.wait_for(ids)
        suspension = self._suspension
        if ids and suspension is not None:
            self._suspension = None
            suspension.set_result(None)
        return {name: self.outcomes.pop(name) for name in ids if name in self.outcomes}

    def wait_for(self, ids: frozenset[str]) -> None:
        """The cell waits for these, and for others no more."""
        before, self.waiting = self.waiting, ids
        if before - ids:
            self._events.dropped(before - ids)

    # --- what the kernel hears --------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something that the kernel has to hear."""
        return bool(self.outcomes) or self.budget_changed or self.refused

    def start(self) -> None:
        """The kernel is fresh: its ``llm_answers`` is to hold the answers of its predecessor, too."""
        self.budget_changed = self._events.used() != BudgetUsed()
        resolved = queries.of_session(self._store, self._session, QueryState.ANSWERED, QueryState.FAILED)
        self.outcomes = {row.id: outcome_of(row) for row in resolved}

    def stop(self) -> None:
        """The kernel ends, with all that is under way for it."""
        self.outcomes.clear()
        self._new.clear()

    async def catch_up(self, client: SupervisorClient, kernel_id: str) -> None:
        """Tell the kernel what it has to hear."""
        if not self.has_news:
            return
        outcomes, refused = self.outcomes, self.refused
        self.outcomes, self.budget_changed, self.refused = {}, False, False
        try:
            await client.answer(kernel_id, outcomes, self._events.used(), refused=refused)
        except BaseException:  # a caller that is cancelled, too
            self.outcomes = {**outcomes, **self.outcomes}
            self.budget_changed, self.refused = True, self.refused or refused
            raise

    async def answer(self, client: SupervisorClient, kernel_id: str, outcomes: Mapping[str, QueryOutcome]) -> None:
        """Tell these answers now."""
        await client.answer(kernel_id, outcomes, self._events.used())


def outcome_of(row: QueryRow) -> QueryOutcome:
    """What a kernel is told of a query that has been answered, or has failed."""
    if row.state is QueryState.FAILED:
        return QueryOutcome(error=row.error or "failed")
    return QueryOutcome(answer=row.answer or "")
