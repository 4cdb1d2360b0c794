"""Answers that need no agent: those of a configured model (``llm.mode: provider``), and cached ones.

Each query has a task that asks the model when it is the query's turn. The configuration says how many queries are asked
at the same time. Answers that arrive together are stored and passed to the kernel together, so that a batch of a
thousand costs a few dozen transactions.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlm_client.models.answer_schema import check_schema
from rlm_client.models.errors import ModelError
from rlm_client.models.interface import ChatMessage, Completion
from rlm_client.models.router import Models, open_models
from rlm_client.models.settings import settings_file
from rlm_client.models.validation import until_fitting
from rlm_ipc.daemon_rows import AnswerUse
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_mcp.service.queries.answering import QueryService
from rlm_mcp.service.queries.provider_queue import ProviderQueue
from rlm_mcp.service.sessions.budgets import Budgets, OverBudget, Payer
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.tool_answers import clean_text
from rlm_memory import known_answers, queries
from rlm_memory.errors import SessionEnded, StoreFault
from rlm_memory.queries import Asker, QueryRow
from rlm_memory.store import Store

log = logging.getLogger(__name__)

_REST = 0.5
"""Seconds between two deliveries of answers to one session while more are expected. Each delivery is a transaction and
wakes four processes, which delays the next requests."""
_AGAIN = 5.0
"""Seconds until the next attempt to store answers, after the disk was full or the file locked."""
_CUT = "\n…[the answer was cut off here, at the max_tokens of the model]"


@dataclass
class _Desk:
    """The queries of one session that are being answered."""

    line: ProviderQueue
    ready: dict[str, QueryOutcome] = field(default_factory=dict)
    handing: asyncio.Task[None] | None = None


class RecursiveAnswers(Protocol):
    """Has a model answer a query of rlm_query in a session of its own."""

    async def answer(self, parent: Session, row: QueryRow) -> str:
        """Return the answer; raises ModelError or OverBudget."""


class Providers:
    """Answers queries of code from a provider, and from the cache. ``recursion`` answers those of rlm_query."""

    def __init__(
        self, store: Store, given: QueryService, budgets: Budgets, recursion: RecursiveAnswers, clock: Clock
    ) -> None:
        self._store, self._budgets, self._queries, self._clock = store, budgets, given, clock
        self._desks: dict[int, _Desk] = {}
        self._models: list[Models] = []
        """The last is in use. The others had an earlier configuration; their last requests may still be running."""
        self._configured: object = None
        self._recursion = recursion
        self._closing = asyncio.Event()

    def asked(self, session: Session, rows: Sequence[QueryRow]) -> None:
        """Answer those of the new queries that a provider or the cache can answer."""
        at_once: dict[str | None, int] = {}
        known = known_answers.find(self._store, rows, self._clock()) if session.policy.llm.cache else {}
        if known:  # written down before the asking cell has its result, which lists what nobody has answered
            desk = self._desk(session)
            desk.ready |= {query: QueryOutcome(answer) for query, answer in known.items()}
            self._soon(session, desk, at_once=True)
        for row in rows:
            if row.id not in known and row.mode == "provider":
                if row.model not in at_once:
                    at_once[row.model] = self._at_once(row.model)
                self._desk(session).line.join(row, at_once[row.model])

    def withdraw(self, session: Session, ids: Iterable[str]) -> None:
        """Cancel queries that nobody waits for any more."""
        desk = self._desks.get(session.key)
        stopped = desk.line.leave(ids) if desk is not None else []
        if stopped:
            queries.cancel_pending(self._store, session.key, self._clock(), among=stopped)

    def give_up(self, session: Session) -> None:
        """Cancel the queries of a cell whose kernel has ended.

        Queries that no cell has asked are asked again.
        """
        rows = [row for row in queries.pending(self._store, session.key) if row.mode == "provider"]
        gone = [row.id for row in rows if row.asked_by is Asker.CODE]
        queries.cancel_pending(self._store, session.key, self._clock(), among=gone)
        self.asked(session, [row for row in rows if row.asked_by is Asker.TOOL])

    def drop(self, session: Session) -> None:
        """Stop working for a session, and drop the answers that have arrived."""
        desk = self._desks.pop(session.key, None)
        if desk is not None:
            desk.line.close()
            desk.ready.clear()
            if desk.handing is not None:
                desk.handing.cancel()

    async def aclose(self) -> None:
        """Stop everything. The next daemon asks the pending queries again."""
        self._closing.set()
        desks = list(self._desks.values())
        tasks = [task for desk in desks for task in desk.line.close()]
        await asyncio.gather(*tasks, *(desk.handing for desk in desks if desk.handing), return_exceptions=True)
        for models in self._models:
            await models.aclose()

    # --- one query --------------------------------------------------------------------------------

    async def _work(self, session: Session, row: QueryRow) -> None:
        try:
            answer = await self._answer(session, row)
            if session.policy.llm.cache:
                with suppress(StoreFault):  # whoever asks the same pays for it again; this answer is here
                    known_answers.keep(self._store, row, answer, self._clock())
            outcome = QueryOutcome(answer)
        except OverBudget as error:
            outcome = QueryOutcome(error=str(error), over=True)
        except ModelError as error:
            outcome = QueryOutcome(error=str(error))
        except Exception as error:
            log.exception("query %s of session %s failed in an unexpected way", row.id, session.id)
            outcome = QueryOutcome(error=f"rlm-kernel failed: {type(error).__name__}; the daemon's log has the details")
        desk = self._desk(session)
        desk.ready[row.id] = outcome
        self._soon(session, desk)

    async def _answer(self, session: Session, row: QueryRow) -> str:
        """Ask until the answer fits its schema, as often as the policy permits."""
        if row.form is not None:
            check_schema(row.form)
        payer = self._budgets.payer(session, row)
        if row.recursive and payer.depth < payer.session.policy.limits.query_depth:
            return clean_text(await self._recursion.answer(session, row))

        async def ask(messages: list[ChatMessage]) -> str:
            came = await self.complete(payer, messages, model=row.model, schema=row.form)
            return clean_text(came.text) + (_CUT if row.form is None and came.finish == "length" else "")

        if row.form is None:
            return await ask([{"role": "user", "content": row.prompt}])
        return await until_fitting(ask, row.prompt, row.form, session.policy.llm.schema_attempts)

    async def complete(
        self,
        payer: Payer,
        messages: Sequence[ChatMessage],
        *,
        model: str | None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """Ask once, within what is left of the payer's budget, and count what it has used.

        Raises:
            OverBudget: a limit is reached.
            ModelError: there is no answer.
        """
        session, row, models = payer.session, payer.row, self._opened()
        with ExitStack() as working:

            def begin() -> None:
                limit.reschedule(asyncio.get_running_loop().time() + self._budgets.seconds_left(session))
                working.enter_context(self._budgets.working(session))

            try:
                async with asyncio.timeout(None) as limit:
                    came = await models.complete(messages, model=model, schema=schema, on_turn=begin)
            except TimeoutError:
                if limit.expired():
                    raise OverBudget(self._budgets.over(session, "seconds")) from None
                raise
        used = came.usage
        self._budgets.charge(session, AnswerUse(row.id, came.model, used.input_tokens, used.output_tokens, used.cost))
        self._soon(session, self._desk(session))
        return came

    # --- handing in -------------------------------------------------------------------------------

    def _soon(self, session: Session, desk: _Desk, *, at_once: bool = False) -> None:
        """Deliver together with what else arrives in this step. While more is expected, the next delivery comes later.

        With ``at_once``, the answers are stored before this returns.
        """
        if desk.handing is None or desk.handing.done():
            first = self._written(session, desk) if at_once else {}
            desk.handing = asyncio.create_task(self._hand_in(session, desk, first))

    def _written(self, session: Session, desk: _Desk) -> dict[str, QueryOutcome] | None:
        """Store the answers that have arrived, and return them. None: they wait until they can be stored."""
        outcomes, desk.ready = desk.ready, {}
        try:
            with self._budgets.writing(session.key):
                return self._queries.resolve(session, outcomes)
        except SessionEnded:  # as the one that pays can, while a session below it still asks
            self._budgets.forget(session.key)
            return {}
        except StoreFault as error:
            log.error("answers of session %s wait until they can be written down: %s", session.id, error)
            desk.ready = {**outcomes, **desk.ready}
            return None

    async def _hand_in(self, session: Session, desk: _Desk, resolved: dict[str, QueryOutcome] | None) -> None:
        while True:
            if resolved is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN):
                        await self._closing.wait()
                        return
            elif resolved:
                try:
                    await self._queries.hand_in(session, resolved)
                except StoreFault:
                    log.exception("forks of session %s are not told of its answers", session.id)
                if not desk.line.empty.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_REST):
                            await desk.line.empty.wait()
            if not (desk.ready or self._budgets.owes(session.key)):
                return
            resolved = self._written(session, desk)

    # --- the models -------------------------------------------------------------------------------

    def _desk(self, session: Session) -> _Desk:
        desk = self._desks.get(session.key)
        if desk is None:
            desk = self._desks[session.key] = _Desk(ProviderQueue(lambda row: self._work(session, row)))
        return desk

    def _at_once(self, model: str | None) -> int:
        """Return how many queries to a model may run at the same time."""
        try:
            return self._opened().settings.find(model)[1].concurrency
        except ModelError:
            return 1  # the query's task says what is wrong

    def _opened(self) -> Models:
        """Return the models, reopened if their configuration has changed."""
        configured = _stamp()
        if not self._models or configured != self._configured:
            self._models.append(open_models())
            self._configured = configured
        return self._models[-1]


def _stamp() -> object:
    try:
        found = os.stat(settings_file())
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
