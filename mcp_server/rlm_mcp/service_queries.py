"""Deferred queries: asking without code, and handing in the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlm_kernel.errors import KernelError
from rlm_mcp.service_answers import Answer, clean_text
from rlm_mcp.service_errors import ToolFault, fault_from
from rlm_mcp.service_sessions import Clock, Session
from rlm_memory import queries
from rlm_memory.errors import CallerError
from rlm_memory.queries import QueryRow
from rlm_memory.store import Store

__all__ = ["GivenAnswer", "Queries"]


@dataclass(frozen=True)
class GivenAnswer:
    """One answer as it was handed in; ``error`` instead of ``answer`` says that there is none, and why."""

    id: str
    answer: str | None = None
    error: str | None = None
    problem: str | None = None
    """What is wrong with the item itself; it settles nothing."""


class Queries:
    """The deferred queries of every session."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def ask(self, session: Session, prompts: list[str], model: str | None) -> list[QueryRow]:
        """Queue queries that no code has asked.

        Raises:
            ToolFault: the session has asked as many as its policy permits.
        """
        most = session.policy.limits.queries
        if len(queries.of_session(self._store, session.id)) + len(prompts) > most:
            raise ToolFault(
                "quota_exceeded",
                f"Session {session.id} may ask {most} queries in its life",
                "answer what is pending; a policy with a higher limits.queries permits more",
            )
        return queries.ask(self._store, session.id, prompts, model, self._clock())

    def list_pending(self, session: str) -> list[dict[str, Any]]:
        """Return the session's pending queries, whole."""
        rows = queries.pending(self._store, session)
        return [{"id": row.id, "prompt": row.prompt, "model": row.model} for row in rows]

    async def answer(self, session: Session, given: list[GivenAnswer]) -> Answer:
        """Take answers, each on its own: a bad one is reported and does not stop the others.

        Their code finds them at once: in the placeholder that ``llm_query`` returned, and in ``llm_answers``.
        """
        answered: list[str] = []
        failed: list[dict[str, Any]] = []
        outcomes: dict[str, dict[str, str]] = {}
        for item in given:
            try:
                row = self._settle(session, item)
            except (CallerError, ToolFault) as error:
                failed.append({"id": item.id[:80], **fault_from(error).answer()})
                continue
            answered.append(row.id)
            outcomes[row.id] = {"error": row.error} if row.error is not None else {"answer": row.answer or ""}
        fields: dict[str, Any] = {"answered": answered, "failed": failed}
        fields |= await self._inject(session, outcomes)
        fields["still_pending"] = [row.id for row in queries.pending(self._store, session.id)]
        return Answer(fields, ("failed", "answered", "still_pending"))

    def _settle(self, session: Session, item: GivenAnswer) -> QueryRow:
        if item.problem is not None:
            raise ToolFault("invalid_answer", item.problem)
        return queries.settle(
            self._store,
            session.id,
            item.id,
            answer=None if item.error is not None else clean_text(item.answer or ""),
            error=None if item.error is None else clean_text(item.error),
            now=self._clock(),
        )

    async def _inject(self, session: Session, outcomes: dict[str, dict[str, str]]) -> dict[str, str]:
        """Hand the answers to the kernel. One that is not there gets them when it starts, from the rows."""
        if not outcomes or not session.kernel.alive:
            return {}
        try:
            await session.kernel.hand_over(outcomes)
        except KernelError as error:
            return {"notice": f"the answers are kept; the kernel takes them when it is back: {error}"}
        return {}
