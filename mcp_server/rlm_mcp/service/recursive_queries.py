"""``rlm_query`` of code in provider mode: a model works independently, in a fork of the asking session.

The loop is that of `rlm_client.rlm`; here are its workspace and its model on this side of the socket. The usage of the
child and of all its queries is charged to the session that pays for the asking one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from rlm_client.models.errors import ModelRefused
from rlm_client.models.interface import ChatMessage, Completion
from rlm_client.results import Cell
from rlm_client.rlm import pages, prompts
from rlm_client.rlm.budget import Budget, RunLimits
from rlm_client.rlm.loop import Loop
from rlm_client.rlm.workspace import Answering, CodeOutcome, ModelTurn
from rlm_ipc.errors import KernelError, UnknownVariable
from rlm_ipc.session_record import RecordedVariable
from rlm_ipc.session_requests import KeepTurn, TurnKept
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.contexts.reading import Reading
from rlm_mcp.service.contexts.sources import Inline, Load
from rlm_mcp.service.control import SessionControl
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.progress import tell_nobody
from rlm_mcp.service.queries.answering import GivenAnswer, waiting
from rlm_mcp.service.queries.providers import Providers
from rlm_mcp.service.session_events import Parts
from rlm_mcp.service.sessions.budgets import Budgets, Payer
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory import queries
from rlm_memory.queries import QueryRow
from rlm_memory.store import Store

TURNS = 30
"""Turns that a model has for a query."""


class Service(Parts, Protocol):
    """The parts of the service that a run needs. They are looked up for each query, because some need `Recursion`."""

    contexts: Contexts
    """The texts of sessions."""
    reading: Reading
    """What reads their variables."""
    control: SessionControl
    """What ends them."""

    async def fork(self, parent: Session, name: str | None, policy: str | None) -> ToolAnswer:
        """Create a session with a copy of every variable of ``parent``."""

    async def note_turn(self, turn: KeepTurn) -> TurnKept:
        """Write a turn down."""

    async def render(self, session: Session, answer: ToolAnswer) -> str:
        """Write an answer as a client gets it."""


class Recursion:
    """Answers queries of ``rlm_query``."""

    def __init__(self, service: Service, store: Store, budgets: Budgets) -> None:
        self.service, self.store, self.budgets = service, store, budgets

    async def answer(self, parent: Session, row: QueryRow) -> str:
        """Let a model answer the query in a new session, which ends with it.

        Raises:
            ModelError: it gave no answer, or no session could be started.
            OverBudget: the budget is used up.
        """
        payer = self.budgets.payer(parent, row)
        depth = payer.session.policy.limits.query_depth
        budget = Budget(RunLimits(turns=TURNS, calls=None, seconds=None, depth=depth))
        workspace = await self.opened(parent, row.prompt, payer)
        copies = f"{prompts.COPIES}; {workspace.notice}" if workspace.notice else prompts.COPIES
        try:
            model = _Charged(self.service.providers, payer)
            loop = Loop(workspace, model, budget, root_model=row.model, depth=payer.depth + 1)
            solution = await loop.solve(prompts.task_of_child(row.prompt), [prompts.TASK, copies])
        finally:
            await workspace.end()
        return solution.answer

    async def opened(self, parent: Session, task: str, payer: Payer) -> _ServiceWorkspace:
        """Fork a session for a task; raises ModelRefused on failure."""
        try:
            forked = await self.service.fork(parent, None, None)
            session = self.service.sessions.named(forked.fields["session"])
            workspace = _ServiceWorkspace(self, session, payer, forked.fields.get("notice", ""))
            try:
                await workspace.load(task)
            except BaseException:
                await workspace.end()
                raise
        except (ToolFault, KernelError) as error:
            raise ModelRefused(f"no session could be started for this query: {fault_from(error).message}") from error
        return workspace


class _Charged:
    """The configured models, paid by a session."""

    def __init__(self, providers: Providers, payer: Payer) -> None:
        self._providers = providers
        self._payer = payer

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Return the answer; see `Model.complete`."""
        return await self._providers.complete(self._payer, messages, model=model, schema=schema)


class _ServiceWorkspace:
    """A forked session as a run sees it. ``notice`` says what it is a copy of."""

    def __init__(self, recursion: Recursion, session: Session, payer: Payer, notice: str) -> None:
        self.notice = notice
        self._recursion = recursion
        self._service = recursion.service
        self._session = session
        self._payer = payer
        self._held = ExitStack()
        self._held.enter_context(self._service.sessions.use(session))
        self._held.enter_context(recursion.budgets.paid_by(session.key, payer))

    @property
    def session(self) -> str:
        """The session's id."""
        return self._session.id

    async def load(self, task: str) -> None:
        """Load the task as the text ``task``."""
        asked = Load("task", Inline(task))
        await self._service.contexts.load(self._session, asked, ClientInfo(), tell_nobody)

    async def run(self, code: str, answering: Answering) -> CodeOutcome:
        """Run code. Queries to a provider are answered elsewhere; those for an agent are answered here."""
        outcome, run = CodeOutcome(code), self._service.runs.start(self._session, code)
        try:
            cell = None
            while cell is None or cell.success is None:
                told = await self._service.runs.follow(run, tell_nobody)
                cell = Cell.read(json.loads(await self._service.render(self._session, told)))
                if cell.pending_llm_queries:
                    await self._answer(answering, outcome, later=cell.success is not None)
        except ToolFault as fault:
            outcome.error = fault.message
            return outcome
        except BaseException:
            self._service.runs.abandon(run)
            raise
        return outcome.came(cell)

    async def read(self, name: str) -> str | None:
        """Return a variable as text, page by page."""
        parts = []
        offset: int | None = 0
        while offset is not None:
            try:
                page = await self._service.reading.peek(self._session, name, offset, None, pages.CHARS)
            except UnknownVariable:
                return None
            parts.append(page.fields["content"])
            offset = pages.after(page.fields)
        return "\n".join(parts)

    async def items(self, name: str) -> list[str]:
        """Return the first items of a dictionary."""
        reading, found = self._service.reading, list[str]()
        try:
            kind = (await reading.var_info(self._session, name)).fields["type"]
            while len(found) < pages.MOST_ITEMS and kind == "dict":
                page = (await reading.peek(self._session, name, len(found), 1, pages.CHARS)).fields
                if not page["returned"]:
                    break
                found.append(page["content"])
        except UnknownVariable:
            return []
        return found

    async def fork(self, task: str) -> _ServiceWorkspace:
        """Fork the session."""
        payer = self._recursion.budgets.payer(self._session, self._payer.row)
        return await self._recursion.opened(self._session, task, payer)

    async def note(self, turn: ModelTurn) -> tuple[RecordedVariable, ...]:
        """Write a turn down."""
        return (await self._service.note_turn(turn.kept_in(self._session.id, own=True))).variables

    async def note_stop(self, reason: str) -> None:
        """Write down why there is no answer."""
        with suppress(ToolFault):  # the session is gone
            self._service.model_runs.note_stop(self._session.id, reason)

    async def end(self) -> None:
        """End the session."""
        self._held.close()
        await self._service.control.end(self._session)

    async def _answer(self, answering: Answering, outcome: CodeOutcome, *, later: bool) -> None:
        pending = [row for row in queries.pending(self._recursion.store, self._session.key) if row.mode != "provider"]
        answers = await answering([waiting(row) for row in pending])
        outcome.answers += answers
        given = [GivenAnswer(one.query.id, one.text, None if one.text is not None else one.error) for one in answers]
        taken = await self._service.queries.answer(self._session, given)
        refused = [GivenAnswer(query, error=fault.message) for query, fault in taken.failed]
        if refused:  # so that a waiting caller gets an error
            await self._service.queries.answer(self._session, refused)
        if later:
            outcome.answered_later = [one.id for one in given]
