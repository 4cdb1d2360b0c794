"""The workspace of a run: a session that runs code, returns its queries and can be forked."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Protocol, TypeVar

from rlm_client.client import Client
from rlm_client.models.interface import ChatMessage, Completion
from rlm_client.results import Cell
from rlm_client.rlm import pages
from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_rows import AnswerUse, SaidMessage, WaitingQuery
from rlm_ipc.errors import KernelError, ToolFailed
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_record import RecordedVariable
from rlm_ipc.session_requests import KeepStop, KeepTurn, ListQueries

__all__ = ["Answering", "ClientWorkspace", "CodeOutcome", "ModelAnswer", "ModelTurn", "Workspace"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class ModelAnswer:
    """The result of a query: a text or an error, with the usage and the ``model``.

    ``child`` is the session of the run that worked on it, if one did.
    """

    query: WaitingQuery
    text: str | None = None
    error: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    cost: float = 0.0
    child: str | None = None


Answering = Callable[[Sequence[WaitingQuery]], Awaitable[list[ModelAnswer]]]
"""Answers a list of queries in parallel."""


@dataclass(frozen=True)
class ModelTurn:
    """One turn: the messages to the model (``said``) since its last reply, the reply, and the results of its code.

    ``variables`` are those of the session after it.
    """

    number: int
    said: list[ChatMessage]
    reply: Completion
    outcomes: list[CodeOutcome]
    final: str | None
    began: float
    seconds: float
    variables: tuple[RecordedVariable, ...] = ()

    def kept_in(self, session: str, *, own: bool) -> KeepTurn:
        """Return the turn as recorded beside a session's journal, which has the output of its code.

        ``own``: the session exists only for this run.
        """
        answers = [answer for outcome in self.outcomes for answer in outcome.answers if answer.model]
        return KeepTurn(
            session=session,
            model=self.reply.model,
            said=tuple(SaidMessage(message["role"], message["content"]) for message in self.said),
            reply=self.reply.text,
            final=self.final,
            input_tokens=self.reply.usage.input_tokens,
            output_tokens=self.reply.usage.output_tokens,
            started_at=self.began,
            ended_at=self.began + self.seconds,
            answers=tuple(
                AnswerUse(answer.query.id, answer.model, answer.input_tokens, answer.output_tokens, answer.cost)
                for answer in answers
            ),
            cost=self.reply.usage.cost,
            lasting=own,
        )


@dataclass
class CodeOutcome:
    """The result of a block of code. ``answered_later`` are queries that were answered after its end."""

    code: str
    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    error: str | None = None
    seconds: float = 0.0
    answers: list[ModelAnswer] = field(default_factory=list)
    answered_later: list[str] = field(default_factory=list)

    def came(self, cell: Cell) -> CodeOutcome:
        """Record the result of the cell, and return this object."""
        self.stdout = "".join([cell.stdout, *(f"{text}\n" for text in cell.displayed)])
        self.stderr, self.seconds = cell.stderr, cell.execution_time_seconds
        self.result, self.error = cell.result, cell.error
        return self


class Workspace(Protocol):
    """A session as a run sees it."""

    @property
    def session(self) -> str:
        """The session's id."""
        ...

    async def run(self, code: str, answering: Answering) -> CodeOutcome:
        """Run code, and answer its queries."""
        ...

    async def read(self, name: str) -> str | None:
        """Return a variable as text, or None if it does not exist."""
        ...

    async def items(self, name: str) -> list[str]:
        """Return the first items of a dictionary, each as ``key: value``; none if it does not exist."""
        ...

    async def fork(self, task: str) -> Workspace:
        """Create a workspace with a copy of every variable, and ``task`` as the text ``task``."""
        ...

    async def note(self, turn: ModelTurn) -> tuple[RecordedVariable, ...]:
        """Record a turn beside the session's journal. Return the variables after it."""
        ...

    async def note_stop(self, reason: str) -> None:
        """Record why the run ends without an answer."""
        ...

    async def end(self) -> None:
        """End the session."""
        ...


class ClientWorkspace:
    """A workspace over a `Client`; its calls wait in threads. A run that is cancelled interrupts its code."""

    def __init__(self, client: Client, session: str, *, own: bool = False) -> None:
        """``own``: the session exists only for the run, and ends with it."""
        self._client = client
        self._session = session
        self._own = own

    @property
    def session(self) -> str:
        """The session's id."""
        return self._session

    async def run(self, code: str, answering: Answering) -> CodeOutcome:
        """Run code and answer its queries, whether it waits for the answers or has ended."""
        outcome = CodeOutcome(code)
        try:
            cell = await self._calling(lambda: self._client.eval_code(code))
            while cell.pending_llm_queries:
                cell = await self._answered(cell, answering, outcome)
        except ToolFailed as error:  # the kernel died, or is busy with another caller's cell
            outcome.error = str(error)
            return outcome
        return outcome.came(cell)

    async def read(self, name: str) -> str | None:
        """Return a variable as text, page by page."""
        return await self._calling(lambda: self._read(name))

    async def items(self, name: str) -> list[str]:
        """Return the first items of a dictionary."""
        return await self._calling(lambda: items_of(self._client, name))

    async def fork(self, task: str) -> ClientWorkspace:
        """Fork the session."""
        name = f"{self._session[:100]}-{secrets.token_hex(3)}"
        await self._calling(lambda: self._client.fork_session(name))
        client = Client(name, policy=self._client.policy)
        child = ClientWorkspace(client, name, own=True)
        try:
            await child._calling(lambda: client.load_context("task", content=task))
        except BaseException:
            await child.end()
            raise
        return child

    async def note(self, turn: ModelTurn) -> tuple[RecordedVariable, ...]:
        """Have the daemon record a turn."""
        kept = await self._calling(lambda: ask(turn.kept_in(self._session, own=self._own), start=True))
        return kept.variables

    async def note_stop(self, reason: str) -> None:
        """Have the daemon record why there is no answer, only for a run with its own session."""
        if self._own:
            with suppress(KernelError):
                await self._calling(lambda: ask(KeepStop(self._session, reason)))

    async def end(self) -> None:
        """End the session, if it still exists."""
        with suppress(KernelError):
            await self._calling(self._client.end_session)
        self._client.close()

    async def _answered(self, cell: Cell, answering: Answering, outcome: CodeOutcome) -> Cell:
        """Answer the cell's queries. Return its new state."""
        asked = await self._calling(lambda: self._asked(cell))
        answers = await answering(asked)
        outcome.answers += answers
        given: dict[str, str | dict[str, str]] = {
            one.query.id: {"error": one.error or ""} if one.text is None else one.text for one in answers
        }
        taken = await self._calling(lambda: self._client.answer_queries(given))
        refused = {str(item["id"]): {"error": str(item.get("message"))} for item in taken.failed}
        if refused:  # so that waiting code gets an error
            told = await self._calling(lambda: self._client.answer_queries(refused))
            taken = told if told.cell is not None else taken
        if taken.cell is not None:
            return taken.cell
        if cell.status == "waiting":  # someone else has answered it
            return await self._calling(self._client.wait)
        outcome.answered_later = list(given)
        return replace(cell, pending_llm_queries=())

    def _asked(self, cell: Cell) -> list[WaitingQuery]:
        """Return the cell's queries with their whole prompts, without earlier pending queries."""
        shown = {query.id for query in cell.pending_llm_queries}  # maybe cut: the first ones are there
        waiting = ask(ListQueries(self._session), start=True).queries
        pending = itertools.dropwhile(lambda query: query.id not in shown, waiting)
        return [query for query in pending if not query.by_tool]

    def _read(self, name: str) -> str | None:
        parts = []
        offset: int | None = 0
        while offset is not None:
            try:
                page = self._client.peek(name, offset, max_chars=pages.CHARS)
            except ToolFailed as error:
                if error.answer.get("error") == "variable_not_found":
                    return None
                raise
            parts.append(page.content)
            offset = pages.after(page.raw)
        return "\n".join(parts)

    async def _calling(self, call: Callable[[], Result]) -> Result:
        try:
            return await asyncio.to_thread(call)
        except asyncio.CancelledError:
            self._client.close()
            raise


def items_of(client: Client, name: str) -> list[str]:
    """Return the first items of a dictionary of the session, each as ``key: value``; none if it does not exist."""
    found: list[str] = []
    try:
        total = pages.MOST_ITEMS if client.var_info(name).type == "dict" else 0
        while len(found) < total:
            page = client.peek(name, len(found), 1, max_chars=pages.CHARS)
            if not page.returned:
                break
            found.append(page.content)
    except ToolFailed as error:
        if error.answer.get("error") != "variable_not_found":
            raise
    return found
