"""The loop: the model writes code, the session runs it, the model sees the output, until there is an answer."""

from __future__ import annotations

import asyncio
import html
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from rlm_client.models.errors import ModelError
from rlm_client.models.interface import ChatMessage, Completion, Model, Usage
from rlm_client.models.validation import until_fitting
from rlm_client.rlm import prompts
from rlm_client.rlm.budget import Budget, RunBudgetExceeded
from rlm_client.rlm.history import History
from rlm_client.rlm.replies import final_of, has_open_block, repl_blocks, submitted
from rlm_client.rlm.workspace import ModelAnswer, ModelTurn, Workspace
from rlm_ipc.daemon_rows import WaitingQuery
from rlm_ipc.errors import KernelError
from rlm_ipc.late_dataclasses import dataclass

__all__ = ["Event", "Loop", "Solution", "Watch", "why"]

Status = Literal["answered", "out_of_turns", "stopped"]
Happening = Literal["turn", "text", "code", "output", "asked", "answered", "child", "retry"]
_REASONS = (ModelError, RunBudgetExceeded, KernelError)
"""Errors of one query that do not end the run."""
_SHOWN = 60
"""Characters of an answer in its repr."""
SCHEMA_ATTEMPTS = 3
"""How often a model is asked for an answer that fits its schema."""
SUB_PROMPT_CHARS = 200_000
"""The most characters of a prompt of ``llm_query``, as stated to the model."""


@dataclass(frozen=True)
class Event:
    """An event of a run, for a watcher. ``depth`` is 0 for the run itself, 1 for its children.

    ``error`` is the traceback if this is the ``output`` of failed code. The ``text`` of a ``retry`` says why a model is
    asked again; it belongs to no turn.
    """

    kind: Happening
    session: str
    depth: int
    turn: int
    text: str = ""
    count: int = 0
    error: str | None = None


Watch = Callable[[Event], None]


@dataclass(repr=False)
class Solution:
    """The result of a run.

    ``status`` is ``answered``, ``out_of_turns`` if the model had to answer without having submitted an answer, or
    ``stopped`` if there is no answer, for the ``reason``.
    """

    answer: str
    status: Status
    session: str
    question: str
    turns: list[ModelTurn]
    budget: Budget
    model: str
    children: list[Solution]
    reason: str = ""

    def __repr__(self) -> str:
        answer = textwrap.shorten(self.answer, _SHOWN, placeholder="…")
        return f"Solution({answer!r}, {self.status!r}, {self._spent()})"

    def _repr_html_(self) -> str:
        said = self.answer or self.reason
        return (
            f"<p><b>{html.escape(self.question)}</b></p><pre>{html.escape(said)}</pre>"
            f"<p><small>{self.status}, {self._spent()}, session {html.escape(self.session)}</small></p>"
        )

    def _spent(self) -> str:
        used = self.budget
        tokens = used.input_tokens + used.output_tokens
        return f"{len(self.turns)} turns, {used.calls} calls, {tokens:,} tokens, ${used.cost:.4g}"


def why(error: BaseException) -> str:
    """Return in words why a run ends with this error."""
    return "it was interrupted" if isinstance(error, asyncio.CancelledError | KeyboardInterrupt) else str(error)


class Loop:
    """One run in one workspace; call `solve` once. Runs of ``rlm_query`` are separate loops with the same budget."""

    def __init__(
        self,
        workspace: Workspace,
        model: Model,
        budget: Budget,
        *,
        root_model: str | None = None,
        sub_model: str | None = None,
        depth: int = 0,
        watch: Watch | None = None,
    ) -> None:
        self._workspace = workspace
        self._model = model
        self._budget = budget
        self._names = (root_model, sub_model)
        self._depth = depth
        self._watch = watch
        self._turn = 0
        self.turns: list[ModelTurn] = []
        self._open: ModelTurn | None = None
        """The current turn, once the model has replied."""
        self.children: list[Solution] = []

    async def solve(self, question: str, variables: list[str]) -> Solution:
        """Work on a question until it is answered; ``variables`` describes the session's variables.

        Raises:
            RunBudgetExceeded: calls, tokens, cost or time are used up.
            ModelError: the model gives no answer.
        """
        try:
            return await self._in_time(question, variables)
        except BaseException as error:
            await self._workspace.note_stop(why(error))
            raise

    def stopped(self, question: str, reason: str) -> Solution:
        """Return the solution of a run that ended without an answer."""
        if self._open is not None:
            self.turns.append(self._open)
        solution = self._solution(question, "", "stopped")
        return replace(solution, reason=reason)

    async def _in_time(self, question: str, variables: list[str]) -> Solution:
        clock = asyncio.timeout(self._budget.seconds_left())
        try:
            async with clock:
                return await self._solve(question, variables)
        except TimeoutError:
            if clock.expired():
                self._budget.take_call()  # the error says what is used up
            raise

    async def _solve(self, question: str, variables: list[str]) -> Solution:
        await self._workspace.run(prompts.SETUP, self._answers)
        turns, recursion = self._budget.limits.turns, self._depth < self._budget.limits.depth
        system = prompts.system_prompt(variables, recursion=recursion, chars=SUB_PROMPT_CHARS)
        history = History(self._budget.limits.history, system)
        said: list[ChatMessage] = [
            {"role": "system", "content": system},
            {"role": "user", "content": prompts.first_message(question, turns)},
        ]
        for self._turn in range(1, turns + 1):
            turn = await self._one_turn(history, said)
            await self._keep(turn)
            if turn.final is not None:
                return self._solution(question, turn.final, "answered")
            cut = has_open_block(turn.reply.text)
            said = [{"role": "user", "content": prompts.outputs(turn.outcomes, cut=cut, turn=self._turn, turns=turns)}]
        return await self._last_word(question, history, said)

    async def _one_turn(self, history: History, said: list[ChatMessage]) -> ModelTurn:
        self._tell("turn", count=self._budget.limits.turns)
        began, clock = time.time(), time.monotonic()
        reply = await self._complete(history.told(said[-1]["content"]))
        history.replied(reply.text)
        final = None
        turn = self._open = ModelTurn(self._turn, said, reply, [], None, began, 0.0)
        for code in repl_blocks(reply.text):
            self._tell("code", code)
            turn.outcomes.append(await self._workspace.run(code, self._answers))
            self._tell("output", prompts.output_of(turn.outcomes[-1]), error=turn.outcomes[-1].error)
            final = await self._submitted()
            if final is not None:
                break
        if final is None:
            final = await self._said_at_last(reply.text)
        return replace(turn, final=final, seconds=time.monotonic() - clock)

    async def _last_word(self, question: str, history: History, said: list[ChatMessage]) -> Solution:
        """Ask for an answer without code, when there are no more turns."""
        asked: list[ChatMessage] = [{"role": "user", "content": f"{said[0]['content']}\n\n{prompts.LAST_TURN}"}]
        self._turn += 1
        began, clock = time.time(), time.monotonic()
        reply = await self._complete(history.told(asked[0]["content"]))
        final = final_of(reply.text)
        text = (final and final.text) or reply.text.strip()
        await self._keep(ModelTurn(self._turn, asked, reply, [], text, began, time.monotonic() - clock))
        return self._solution(question, text, "out_of_turns")

    async def _complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        sub: bool = False,
        model: str | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        self._budget.take_call()
        on_text = None if sub or self._watch is None else (lambda piece: self._tell("text", piece))
        name = model or self._names[sub] or self._names[0]
        reply = await self._model.complete(messages, model=name, schema=schema, on_text=on_text)
        self._budget.charge(reply.usage)
        return reply

    async def _keep(self, turn: ModelTurn) -> None:
        self.turns.append(turn)
        self._open = None
        self.turns[-1] = replace(turn, variables=await self._workspace.note(turn))

    async def _submitted(self) -> str | None:
        """Return the answer that the code submitted, if any."""
        content = submitted(await self._workspace.items("answer"))
        if content is None or not content.isidentifier() or content != await self._workspace.read("final_variable"):
            return content
        named = await self._workspace.read(content)
        return content if named is None else named

    async def _said_at_last(self, reply: str) -> str | None:
        """Return the final answer that the reply itself gives, if it does."""
        final = final_of(reply)
        if final is None:
            return None
        if final.variable is None:
            return final.text
        return await self._workspace.read(final.variable)

    # --- what code asks ---------------------------------------------------------------------------

    async def _answers(self, asked: Sequence[WaitingQuery]) -> list[ModelAnswer]:
        self._tell("asked", count=len(asked))
        answers = await asyncio.gather(*map(self._answer, asked))
        self._tell("answered", count=len(answers))
        return list(answers)

    async def _answer(self, query: WaitingQuery) -> ModelAnswer:
        """Answer one query; an error becomes its answer and does not end the run."""
        began = time.monotonic()
        try:
            if query.recursive and self._depth < self._budget.limits.depth:
                answer = await self._child(query)
            else:
                answer = await self._plain(query)
        except _REASONS as error:
            answer = ModelAnswer(query, None, str(error))
        return replace(answer, seconds=time.monotonic() - began)

    async def _plain(self, query: WaitingQuery) -> ModelAnswer:
        """Let a model answer; an answer that does not fit the schema is asked for again."""
        replies: list[Completion] = []

        async def ask(messages: list[ChatMessage]) -> str:
            replies.append(await self._complete(messages, sub=True, model=query.model, schema=query.schema))
            return replies[-1].text

        if query.schema is None:
            text = await ask([{"role": "user", "content": query.prompt}])
        else:
            text = await until_fitting(ask, query.prompt, query.schema, SCHEMA_ATTEMPTS)
        given = sum(reply.usage.input_tokens for reply in replies)
        made = sum(reply.usage.output_tokens for reply in replies)
        paid = sum(reply.usage.cost for reply in replies)
        return ModelAnswer(query, text, None, given, made, model=replies[-1].model, cost=paid)

    async def _child(self, query: WaitingQuery) -> ModelAnswer:
        """Let a child answer, in a fork of the session."""
        workspace = await self._workspace.fork(query.prompt)
        self._tell("child", workspace.session)
        try:
            root, sub = self._names
            child = Loop(
                workspace, self._model, self._budget,
                root_model=query.model or sub or root, sub_model=sub, depth=self._depth + 1, watch=self._watch,
            )  # fmt: skip
            task = prompts.task_of_child(query.prompt)
            try:
                solution = await child.solve(task, [prompts.TASK, prompts.COPIES])
            except _REASONS as error:
                solution = child.stopped(task, str(error))
        finally:
            await workspace.end()
        self.children.append(solution)
        answer, reason = (None, solution.reason) if solution.status == "stopped" else (solution.answer, None)
        answers = [answer for turn in solution.turns for outcome in turn.outcomes for answer in outcome.answers]
        used: list[Usage | ModelAnswer] = [*(turn.reply.usage for turn in solution.turns), *answers]
        return ModelAnswer(
            query,
            answer,
            reason,
            sum(one.input_tokens for one in used),
            sum(one.output_tokens for one in used),
            model=solution.model,
            cost=sum(one.cost for one in used),
            child=solution.session,
        )

    def _solution(self, question: str, answer: str, status: Status) -> Solution:
        model = self.turns[-1].reply.model if self.turns else self._names[0] or ""
        return Solution(
            answer, status, self._workspace.session, question, self.turns, self._budget, model, self.children
        )

    def _tell(self, kind: Happening, text: str = "", count: int = 0, error: str | None = None) -> None:
        if self._watch is not None:
            self._watch(Event(kind, self._workspace.session, self._depth, self._turn, text, count, error))
