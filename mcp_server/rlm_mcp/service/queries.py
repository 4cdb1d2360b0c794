"""Deferred queries: asking without code, and handing in the answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from rlm_kernel.errors import KernelError
from rlm_kernel.models.errors import ModelError
from rlm_kernel.models.forms import AnswerUnfit, fitted
from rlm_mcp.service.answers import Answer, clean_text
from rlm_mcp.service.budgets import Budgets
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.sessions import Clock, Session
from rlm_memory import known_answers, queries, sessions
from rlm_memory.errors import CallerError
from rlm_memory.queries import QueryRow, Settled
from rlm_memory.store import Store

__all__ = ["NOT_AN_ANSWER", "GivenAnswer", "Outcome", "Queries", "asked_row", "row_shown"]


NOT_AN_ANSWER = 'give either the answer as a text, or {"error": text}'


@dataclass(frozen=True)
class GivenAnswer:
    """One answer as it was handed in; ``error`` instead of ``answer`` says that there is none, and why."""

    id: str
    answer: str | None = None
    error: str | None = None
    problem: str | None = None
    """What is wrong with the item itself; it settles nothing."""
    is_json: bool = False
    """Whether ``answer`` was given as a value and not as a text: only a query with a schema takes that."""


@dataclass(frozen=True)
class Outcome:
    """What came of a query that no agent had to answer; ``over`` says that its budget was used up."""

    row: QueryRow
    answer: str | None = None
    error: str | None = None
    over: bool = False


class Queries:
    """The deferred queries of every session."""

    def __init__(self, store: Store, budgets: Budgets, clock: Clock) -> None:
        self._store = store
        self._budgets = budgets
        self._clock = clock

    def ask(self, session: Session, prompts: list[str], model: str | None) -> list[QueryRow]:
        """Queue queries that no code has asked.

        Raises:
            ToolFault: the session has asked as many as its policy permits.
        """
        if len(prompts) > self._budgets.calls_left(session):
            raise ToolFault(
                "quota_exceeded",
                self._budgets.over(session, "calls"),
                "a policy with a higher limits.queries permits more",
            )
        with self._store.transaction():
            rows = queries.ask(self._store, session.key, prompts, model, self._clock())
            self._budgets.ask(session, len(rows))
        session.kernel.budget_changed()
        return rows

    def list_pending(self, session: str) -> list[dict[str, Any]]:
        """Return the pending queries of the session of that name, whole."""
        row = sessions.find(self._store, session)
        rows = queries.pending(self._store, row.key) if row is not None else []
        return [row_shown(row) for row in rows]

    async def answer(self, session: Session, given: list[GivenAnswer]) -> Answer:
        """Take answers, each on its own: a bad one is reported and does not stop the others.

        Their code finds them at once: in the placeholder that ``llm_query`` returned, and in ``llm_answers``.
        """
        waiting = {row.id: row for row in queries.pending(self._store, session.key)}
        answered: list[str] = []
        failed: list[dict[str, Any]] = []
        outcomes: dict[str, dict[str, Any]] = {}
        for item in given:
            try:
                row = await self._settle(session, item, waiting.get(item.id))
            except (CallerError, ToolFault, ModelError) as error:
                failed.append({"id": item.id[:80], **fault_from(error).answer()})
                continue
            answered.append(row.id)
            outcomes[row.id] = _told(row)
            if session.policy.llm.cache and row.answer is not None:
                known_answers.keep(self._store, row, row.answer, self._clock())
        fields: dict[str, Any] = {"answered": answered, "failed": failed}
        fields |= await self._inject(session, outcomes)
        fields["still_pending"] = queries.pending_ids(self._store, session.key)
        return Answer(fields, ("failed", "answered", "still_pending"))

    def settle(self, session: Session, outcomes: list[Outcome]) -> list[Outcome]:
        """Write down what came of queries without an agent; returns those that were still waited for."""
        settled = [Settled(outcome.row.id, outcome.answer, outcome.error) for outcome in outcomes]
        waiting = queries.settle_pending(self._store, session.key, settled, self._clock())
        return [outcome for outcome in outcomes if outcome.row.id in waiting]

    async def hand_in(self, session: Session, outcomes: list[Outcome]) -> None:
        """Tell code what came of its queries."""
        told: dict[str, dict[str, Any]] = {}
        for outcome in outcomes:
            said = {"answer": outcome.answer or ""} if outcome.error is None else {"error": outcome.error}
            told[outcome.row.id] = {**said, **({"over": True} if outcome.over else {})}
        await self._inject(session, told)

    async def _settle(self, session: Session, item: GivenAnswer, asked: QueryRow | None) -> QueryRow:
        """Write an item down; ``asked`` is its query as it was pending when the items came."""
        answer = None if item.error is not None else clean_text(item.answer or "")
        form = None if asked is None else asked.form
        if item.problem is not None or (item.is_json and form is None):
            raise ToolFault("invalid_answer", item.problem or NOT_AN_ANSWER)
        if form is not None and answer is not None:
            answer = await self._fitted(form, answer)
        error = None if item.error is None else clean_text(item.error)
        return queries.settle(self._store, session.key, item.id, answer=answer, error=error, now=self._clock())

    @staticmethod
    async def _fitted(form: dict[str, Any], answer: str) -> str:
        try:
            return await asyncio.to_thread(fitted, form, answer)
        except AnswerUnfit as error:
            hint = "the query is still pending: answer it again with JSON that fits `schema`"
            raise ToolFault("answer_does_not_fit", str(error), hint, schema=form) from None

    async def _inject(self, session: Session, outcomes: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Hand the answers to the kernel. One that is not there gets them when it starts, from the rows."""
        if not outcomes or not session.kernel.alive:
            return {}
        try:
            await session.kernel.hand_over(outcomes)
        except KernelError as error:
            return {"notice": f"the answers are kept; the kernel takes them when it is back: {error}"}
        return {}


def _told(row: QueryRow) -> dict[str, Any]:
    """What the kernel is told of a settled query."""
    return {"error": row.error} if row.error is not None else {"answer": row.answer or ""}


def asked_row(query: dict[str, Any]) -> dict[str, Any]:
    """A query as an agent sees it: with its ``schema`` if it has one, and ``recursive`` if it is one of rlm_query."""
    row = {name: query.get(name) for name in ("id", "prompt", "model")}
    return row | {name: query[name] for name in ("schema", "recursive") if query.get(name)}


def row_shown(row: QueryRow) -> dict[str, Any]:
    """A query's row as an agent sees it."""
    shown = {"id": row.id, "prompt": row.prompt, "model": row.model, "schema": row.form, "recursive": row.recursive}
    return asked_row(shown)
