"""Deferred queries: asking without code, and handing in the answers, by a tool or by code itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from rlm_client.models.answer_schema import AnswerUnfit, fitted
from rlm_client.models.errors import ModelError
from rlm_ipc.daemon_rows import WaitingQuery
from rlm_ipc.displays import some_of
from rlm_ipc.errors import KernelError
from rlm_ipc.kernel_reports import AskedQuery, GivenAnswers, QueryOutcome
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, JsonObject, plain
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.sessions.budgets import Budgets
from rlm_mcp.service.sessions.kernel_queries import outcome_of
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.tool_answers import ToolAnswer, clean, clean_text
from rlm_memory import inherited_queries, known_answers, queries, sessions
from rlm_memory.errors import RowRequestError, StoreFault
from rlm_memory.frames import summaries
from rlm_memory.queries import Asker, NewQuery, QueryRow, QueryState, Resolved
from rlm_memory.store import Store

AN_ITEM = 'an item is {"id": text, "answer": text}'
BY_ID = "give one answer for each query in the listed order, or {id: answer}"
_ID = re.compile(r"q_t?\d{3,9}")
NOT_AN_ANSWER = 'give either the answer as a text, or {"error": text}'


@dataclass(frozen=True)
class GivenAnswer:
    """One answer as it was handed in; ``error`` instead of ``answer`` says that there is none, and why."""

    id: str
    answer: str | None = None
    error: str | None = None
    problem: str | None = None
    """What is wrong with the item itself; it resolves nothing."""
    is_json: bool = False
    """Whether ``answer`` was given as a value and not as a text: only a query with a schema takes that."""


@dataclass(frozen=True)
class TakenAnswers:
    """The queries that were answered, the answers that were not taken with why, and what is still pending."""

    answered: list[str]
    failed: list[tuple[str, ToolFault]]
    notice: str
    still_pending: list[str]

    def told(self) -> ToolAnswer:
        """Return it as an agent sees it."""
        failed = [{"id": query, **fault.answer()} for query, fault in self.failed]
        fields: JsonObject = {"answered": self.answered, "failed": failed}
        if self.notice:
            fields["notice"] = self.notice
        return ToolAnswer({**fields, "still_pending": self.still_pending}, ("failed", "answered", "still_pending"))


class QueryService:
    """The deferred queries of every session."""

    def __init__(self, store: Store, live: Sessions, budgets: Budgets, clock: Clock) -> None:
        self._store, self._live, self._budgets, self._clock = store, live, budgets, clock

    def ask(self, session: Session, prompts: list[str], model: str | None) -> list[QueryRow]:
        """Queue queries that no code has asked.

        Raises:
            ToolFault: the session has asked as many as its policy permits.
        """
        if len(prompts) > self._budgets.calls_left(session):
            raise ToolFault(
                "quota_exceeded", self._budgets.over(session, "calls"), "use a policy with a higher limits.queries"
            )
        with self._store.transaction():
            rows = queries.ask(self._store, session.key, prompts, model, self._clock())
            self._budgets.ask(session, len(rows))
        session.kernel.budget_changed()
        return rows

    def note(self, session: Session, told: Sequence[AskedQuery]) -> list[QueryRow]:
        """Write down queries that code has asked; returns the new ones.

        Those beyond the session's budget are not written down: they fail.
        """
        asked = [_asked(query) for query in told]
        with self._store.transaction():
            left, beyond = self._budgets.calls_left(session), []
            if len(asked) > left:
                beyond = queries.unknown(self._store, session.key, asked)[left:]
                asked = [query for query in asked if query.id not in set(beyond)]
            rows = queries.record(self._store, session.key, asked, self._clock())
            if rows:
                self._budgets.ask(session, len(rows))
        if beyond:
            session.kernel.refuse(beyond, self._budgets.over(session, "calls"), over=True)
        return rows

    def ask_for_summary(self, session: Session, frame: int) -> QueryRow | None:
        """Ask for the summary of a frame that has ended, as the policy has queries answered; None: it needs none.

        When the session has asked as much as it may, the extract stays.
        """
        if not self._budgets.calls_left(session):
            return None
        mode = "provider" if session.policy.llm.mode == "provider" else "deferred"
        with self._store.transaction():
            row = summaries.ask(self._store, frame, session.key, mode=mode, now=self._clock())
            if row is not None:
                self._budgets.ask(session, 1)
        if row is not None:
            session.kernel.budget_changed()
        return row

    def list_pending(self, session: str) -> tuple[WaitingQuery, ...]:
        """Return the pending queries of the session of that name, whole."""
        row = sessions.find(self._store, session)
        rows = queries.pending(self._store, row.key) if row is not None else []
        return tuple(map(waiting, rows))

    def read(self, session: Session, answers: JsonObject | list[Json]) -> list[GivenAnswer]:
        """Read answers as they are handed in: an object by id, a list of items with ids, or a list in order.

        A list without ids answers the pending queries in the order in which they are listed: all of them, or those
        that the last cell has listed.

        Raises:
            ToolFault: such a list has another number of items.
        """
        if isinstance(answers, dict):
            return [_given_answer(name, outcome) for name, outcome in answers.items()]
        named = [isinstance(item, dict) and "id" in item for item in answers]
        if answers and all(named):
            return [_given_item(str(number), item) for number, item in enumerate(answers)]
        pending = self._answerable(session)
        last = [name for name in session.listed if name in pending]
        order = next((ids for ids in (pending, last) if len(ids) == len(answers)), None)
        if order is None and not any(named):
            raise ToolFault("wrong_number", _number_said(len(answers), pending, last), BY_ID)
        if order is None:  # those that tell their query are taken
            return [
                _given_item(str(number), item) if named[number] else GivenAnswer(f"answers[{number}]", problem=AN_ITEM)
                for number, item in enumerate(answers)
            ]
        return [_given_item(name, item) for name, item in zip(order, answers, strict=True)]

    async def answer(self, session: Session, given: list[GivenAnswer]) -> TakenAnswers:
        """Take answers, each on its own: a bad one is reported and does not stop the others.

        Their code finds them at once: in the placeholder that ``llm_query`` returned, and in ``llm_answers``.
        """
        outcomes, failed = await self._take(session, given)
        notice = await self.hand_in(session, outcomes)
        return TakenAnswers(list(outcomes), failed, notice, queries.pending_ids(self._store, session.key))

    async def given(self, session: Session, told: GivenAnswers) -> str:
        """Take what code has assigned to ``llm_answers``; returns one line for whoever ran it, or nothing.

        Where no query is pending it is a variable like any other. What is not taken stays under another name.
        """
        answers, problem = told.answers, told.problem
        pending, fresh = self._answerable(session), []
        if isinstance(answers, dict):
            fresh = [name for name, said in answers.items() if not self._is_known(session, name, said)]
        if not pending and not any(map(_ID.fullmatch, fresh)):
            return ""
        outcomes: dict[str, QueryOutcome] = {}
        failed: list[tuple[str, ToolFault]] = []
        if not problem:
            try:
                named = {name: answers[name] for name in fresh} if isinstance(answers, dict) else list(answers or ())
                outcomes, failed = await self._take(session, self.read(session, named))
            except ToolFault as fault:
                problem = fault.text
        if failed:
            problem = "; ".join(f"{query}: {fault.message}" for query, fault in failed[:3])
            problem += f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        refused = bool(problem) and told.assigned
        if isinstance(answers, list) and not refused:
            outcomes = {name: replace(outcome, by_code=True) for name, outcome in outcomes.items()}
        if session.kernel.alive:
            await session.kernel.hand_over(outcomes, refused=refused)
        await self._share(session, outcomes)
        kept = "; the refused value is in refused_llm_answers, and llm_answers has the answers" if refused else ""
        return f"llm_answers: {problem}; answered: {', '.join(outcomes) or 'none'}{kept}" if problem else ""

    def _answerable(self, session: Session) -> list[str]:
        """The pending queries that are not a provider's to answer, in the order in which they are listed."""
        return [row.id for row in queries.pending(self._store, session.key) if row.mode != "provider"]

    def _is_known(self, session: Session, query: str, said: object) -> bool:
        """Whether that is the query's answer already, as it is when a cell runs again."""
        with suppress(RowRequestError):
            answer = queries.get(self._store, session.key, query).answer
            return answer is not None and answer == said
        return False

    async def _take(
        self, session: Session, given: list[GivenAnswer]
    ) -> tuple[dict[str, QueryOutcome], list[tuple[str, ToolFault]]]:
        """Write answers down; returns what the kernel is told of those that were taken, and what is wrong."""
        waiting = {row.id: row for row in queries.of_session(self._store, session.key, QueryState.PENDING)}
        failed: list[tuple[str, ToolFault]] = []
        outcomes: dict[str, QueryOutcome] = {}
        for item in given:
            try:
                row = await self._resolve(session, item, waiting.get(item.id))
            except (RowRequestError, ToolFault, ModelError, StoreFault) as error:
                failed.append((item.id[:80], fault_from(error)))
                continue
            outcomes[row.id] = outcome_of(row)
            if session.policy.llm.cache and row.answer is not None:
                with suppress(StoreFault):
                    known_answers.keep(self._store, row, row.answer, self._clock())
        return outcomes, failed

    def resolve(self, session: Session, outcomes: dict[str, QueryOutcome]) -> dict[str, QueryOutcome]:
        """Write down what came of queries without an agent; returns those that were still waited for."""
        resolved = [Resolved(query, outcome.answer, outcome.error) for query, outcome in outcomes.items()]
        with self._store.transaction():
            waiting = queries.resolve_pending(self._store, session.key, resolved, self._clock())
            self._summarized(session, {query: outcomes[query].answer for query in waiting})
        return {query: outcome for query, outcome in outcomes.items() if query in waiting}

    async def _resolve(self, session: Session, item: GivenAnswer, asked: QueryRow | None) -> QueryRow:
        """Write an item down; ``asked`` is its query as it was pending when the items came."""
        answer = None if item.error is not None else clean_text(item.answer or "")
        form = None if asked is None else asked.form
        if item.problem is not None or (item.is_json and form is None):
            raise ToolFault("invalid_answer", item.problem or NOT_AN_ANSWER)
        if form is not None and answer is not None:
            answer = await self._fitted(form, answer)
        error = None if item.error is None else clean_text(item.error)
        with self._store.transaction():
            row = queries.resolve(self._store, session.key, item.id, answer=answer, error=error, now=self._clock())
            self._summarized(session, {row.id: row.answer})
        return row

    def _summarized(self, session: Session, answers: Mapping[str, str | None]) -> None:
        """Take those of the answers that are summaries of frames; the kernel's next cell finds them in ``frames``."""
        if summaries.take(self._store, session.key, answers, now=self._clock()):
            session.kernel.deliveries.frames_ended += 1

    @staticmethod
    async def _fitted(form: JsonObject, answer: str) -> str:
        try:
            return await asyncio.to_thread(fitted, form, answer)
        except AnswerUnfit as error:
            hint = "the query is still pending; answer it again with JSON that fits `schema`"
            raise ToolFault("answer_does_not_fit", str(error), hint, schema=form) from None

    async def hand_in(self, session: Session, outcomes: dict[str, QueryOutcome]) -> str:
        """Hand answers to the kernel, and say if that was not possible.

        One that is not there gets them when it starts, from the rows.
        """
        notice = ""
        if outcomes and session.kernel.alive:
            try:
                await session.kernel.hand_over(outcomes)
            except KernelError as error:
                notice = f"the answers are stored; the kernel gets them when it is available again: {error}"
        await self._share(session, outcomes)
        return notice

    async def _share(self, session: Session, outcomes: Mapping[str, QueryOutcome]) -> None:
        """Hand answers to the forks that hold the same queries; one whose kernel is gone finds them in its rows."""
        resolved = [Resolved(query, outcome.answer, outcome.error) for query, outcome in outcomes.items()]
        if not resolved:
            return
        for key, rows in inherited_queries.share(self._store, session.key, resolved, self._clock()).items():
            fork = self._live.of_key(key)
            if fork is not None and fork.kernel.alive:
                with suppress(KernelError):
                    await fork.kernel.hand_over({query: outcome_of(row) for query, row in rows.items()})


def _asked(query: AskedQuery) -> NewQuery:
    """A query as the supervisor tells it."""
    return NewQuery(
        clean_text(query.id),
        query.number,
        clean_text(query.prompt),
        clean_text(query.model) if query.model is not None else None,
        query.mode,
        clean(query.schema),
        query.recursive,
    )


def _given_item(name: str, item: object) -> GivenAnswer:
    """An item of a list: the answer itself, or an object that may tell its id."""
    if item is None:
        return GivenAnswer(name, problem="there is no answer; the query is still pending")
    if not isinstance(item, dict) or not item.keys() <= {"id", "answer", "error"} or not item:
        return _given_answer(name, item)
    if "id" in item and not isinstance(item["id"], str):
        return GivenAnswer(f"answers[{name}]", problem=AN_ITEM)
    named = item.get("id", name)
    outcome = {key: value for key, value in item.items() if key != "id" and value is not None}
    if outcome.keys() not in ({"answer"}, {"error"}):
        return GivenAnswer(named, problem=NOT_AN_ANSWER)
    return _given_answer(named, outcome.get("answer", outcome))


def _given_answer(name: str, outcome: object) -> GivenAnswer:
    if isinstance(outcome, str):
        return GivenAnswer(name, outcome)
    if isinstance(outcome, dict) and outcome.keys() == {"error"} and isinstance(outcome["error"], str):
        return GivenAnswer(name, error=outcome["error"])
    return GivenAnswer(name, json.dumps(outcome, ensure_ascii=False), is_json=True)


def _number_said(count: int, pending: list[str], last: list[str]) -> str:
    said = f"{count} answers for {len(pending)} pending queries"
    if pending:
        said += f" ({some_of(pending)})"
    if last and len(last) != len(pending):
        said += f", {len(last)} of them from the last cell that asked"
    return f"{said}, so none was stored"


def waiting(row: QueryRow) -> WaitingQuery:
    """A query's row as a program that answers it reads it."""
    return WaitingQuery(row.id, row.prompt, row.model, row.form, row.recursive, row.asked_by is Asker.TOOL)


def shown(query: WaitingQuery) -> JsonObject:
    """A query as an agent sees it: with its ``schema``, ``recursive`` and ``by_tool`` only where they say something."""
    return {name: value for name, value in plain(query).items() if value or name in {"id", "prompt", "model"}}
