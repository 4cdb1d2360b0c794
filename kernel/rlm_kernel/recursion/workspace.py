"""Where a run works: a session that runs code, hands out its queries and can be forked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

from rlm_kernel.client import Client
from rlm_kernel.client_results import Cell
from rlm_kernel.connection import Control
from rlm_kernel.errors import KernelError, ToolFailed
from rlm_kernel.models.interface import Completion, Message
from rlm_kernel.recursion import pages

__all__ = ["Answer", "Answering", "Asked", "ClientWorkspace", "Outcome", "Turn", "Workspace"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Asked:
    """A query of code; ``recursive`` is one of ``rlm_query``."""

    id: str
    prompt: str
    model: str | None = None
    recursive: bool = False
    schema: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """Make it of a query as the daemon tells it."""
        return cls(row["id"], row["prompt"], row.get("model"), bool(row.get("recursive")), row.get("schema"))


@dataclass(frozen=True)
class Answer:
    """What became of a query: a text, or the reason why there is none; with what it has used, of which ``model``."""

    query: Asked
    text: str | None = None
    error: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    model: str = ""


Answering = Callable[[Sequence[Asked]], Awaitable[list[Answer]]]
"""Answers queries, all at once."""


@dataclass(frozen=True)
class Turn:
    """One turn: what was ``said`` to the model since its last reply, its reply, and what came of the code in it."""

    number: int
    said: list[Message]
    reply: Completion
    outcomes: list[Outcome]
    final: str | None
    began: float
    seconds: float

    def row(self) -> dict[str, Any]:
        """Return it as it is written down; what its code printed is in the journal."""
        return {
            "model": self.reply.model,
            "said": self.said,
            "reply": self.reply.text,
            "final": self.final,
            "input_tokens": self.reply.usage.input_tokens,
            "output_tokens": self.reply.usage.output_tokens,
            "started_at": self.began,
            "ended_at": self.began + self.seconds,
            "answers": self._answers(),
        }

    def _answers(self) -> list[dict[str, Any]]:
        """What the answers to its code have used."""
        given = [answer for outcome in self.outcomes for answer in outcome.answers]
        return [
            {
                "query": answer.query.id,
                "model": answer.model,
                "input_tokens": answer.input_tokens,
                "output_tokens": answer.output_tokens,
            }
            for answer in given
            if answer.model
        ]


@dataclass
class Outcome:
    """What came of a block of code. ``answered_later`` are queries that were answered after it had ended."""

    code: str
    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    error: str | None = None
    seconds: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    answered_later: list[str] = field(default_factory=list)


class Workspace(Protocol):
    """A session as a run sees it."""

    @property
    def session(self) -> str:
        """The session's id."""
        ...

    async def run(self, code: str, answering: Answering) -> Outcome:
        """Run code; what it asks meanwhile is answered."""
        ...

    async def read(self, name: str) -> str | None:
        """Return a variable as text; None if there is none of that name."""
        ...

    async def fork(self, task: str) -> Workspace:
        """Make a workspace with every variable of this one, and ``task`` as the text ``task``."""
        ...

    async def note(self, turn: Turn) -> None:
        """Write a turn down, beside the journal of the session."""
        ...

    async def end(self) -> None:
        """End the session."""
        ...


class ClientWorkspace:
    """A workspace over a `Client`; its calls wait in threads. A run that is cancelled interrupts its code."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session

    @property
    def session(self) -> str:
        """The session's id."""
        return self._session

    async def run(self, code: str, answering: Answering) -> Outcome:
        """Run code and answer what it asks, whether it waits for the answers or has ended."""
        outcome = Outcome(code)
        try:
            cell = await self._calling(lambda: self._client.eval_code(code))
            while cell.pending_llm_queries:
                cell = await self._answered(cell, answering, outcome)
        except ToolFailed as error:  # the kernel died, or is busy with somebody else's cell
            outcome.error = str(error)
            return outcome
        outcome.stdout, outcome.stderr = cell.stdout, cell.stderr
        outcome.result, outcome.error = cell.result, cell.error
        outcome.seconds = cell.execution_time_seconds
        return outcome

    async def read(self, name: str) -> str | None:
        """Return a variable as text, page by page."""
        return await self._calling(lambda: self._read(name))

    async def fork(self, task: str) -> ClientWorkspace:
        """Fork the session."""
        name = f"{self._session[:100]}-{secrets.token_hex(3)}"
        await self._calling(lambda: self._client.fork_session(name))
        client = Client(name, policy=self._client.policy)
        child = ClientWorkspace(client, name)
        try:
            await child._calling(lambda: client.load_context("task", content=task))
        except BaseException:
            await child.end()
            raise
        return child

    async def note(self, turn: Turn) -> None:
        """Have the daemon write a turn down."""

        def tell() -> None:
            with Control("turn", start=True, body={"session": self._session, **turn.row()}):
                pass

        await self._calling(tell)

    async def end(self) -> None:
        """End the session; one that is gone already is no error."""
        with suppress(KernelError):
            await self._calling(self._client.end_session)
        self._client.close()

    async def _answered(self, cell: Cell, answering: Answering, outcome: Outcome) -> Cell:
        """Answer what the cell has asked; return it as it is then."""
        asked = await self._calling(lambda: self._asked(cell))
        answers = await answering(asked)
        outcome.answers += answers
        given: dict[str, str | dict[str, str]] = {
            one.query.id: {"error": one.error or ""} if one.text is None else one.text for one in answers
        }
        taken = await self._calling(lambda: self._client.answer_queries(given))
        refused = {str(item["id"]): {"error": str(item.get("message"))} for item in taken.failed}
        if refused:  # whoever waits is told, and does not wait for ever
            told = await self._calling(lambda: self._client.answer_queries(refused))
            taken = told if told.cell is not None else taken
        if taken.cell is not None:
            return taken.cell
        if cell.status == "waiting":  # somebody else has answered it
            return await self._calling(self._client.wait)
        outcome.answered_later = list(given)
        return replace(cell, pending_llm_queries=())

    def _asked(self, cell: Cell) -> list[Asked]:
        """The queries of the cell with their whole prompts; those that are pending from before are not its own."""
        first = min(map(_number, (query.id for query in cell.pending_llm_queries)))
        pending = [query for query in self._client.pending_queries() if _number(query.id) >= first]
        return [Asked.read(query.raw) for query in pending]

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


def _number(query: str) -> int:
    """The number of a query of code; -1 for those that were asked without code."""
    digits = query.removeprefix("q_")
    return int(digits) if digits.isdecimal() else -1
