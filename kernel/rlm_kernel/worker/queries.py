"""``llm_query`` as code in a session sees it: placeholders that turn into answers, or a call that waits for them.

Recursive Language Models (arXiv:2512.24601) let code ask a model in the middle of its work. In deferred mode the call
returns a placeholder at once. An agent that reads ``pending_llm_queries`` answers, and the same object then *is* the
answer. In blocking and provider mode the cell waits, and the call returns the answer as a plain ``str``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from rlm_ipc import worker_protocol
from rlm_ipc.kernel_reports import AskedQuery, BudgetUsed, QueryOutcome, id_of_query
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.worker_protocol import Resolved
from rlm_kernel.worker.answer_schema import AnswerSchema
from rlm_kernel.worker.deferred import DeferredAnswer
from rlm_kernel.worker.suspension import Suspension
from rlm_sandbox.policy.model import Limits, LlmMode, LlmPolicy

ANSWERS_NAME = "llm_answers"
REFUSED_NAME = "refused_llm_answers"
"""The name that keeps a value that code assigned to ``llm_answers`` and that was not accepted."""
_FIRST, _NEXT = 16, 64
"""How many queries of a batch are announced at once: few at first, so that someone can start on them."""
_BUDGET = {"calls": "queries", "tokens": "query_tokens", "cost": "query_cost", "seconds": "query_seconds"}
"""The resources that queries use, and the policy's limit for each."""


class QueryLimit(RuntimeError):
    """The session has asked as many queries as its policy permits."""


class BudgetExceeded(QueryLimit):
    """The session's queries have used up a budget that its policy sets for providers."""


class QueryFailed(RuntimeError):
    """The query has no answer; the message says why."""


class QueryTimeout(TimeoutError):
    """No answer came while the cell waited."""


@dataclass(frozen=True)
class _Asking:
    """How queries are asked: which model, which mode, which form of answer."""

    model: str | None
    mode: str
    form: AnswerSchema | None
    recursive: bool = False
    """Whether a model is to answer in a session of its own."""

    @property
    def waits(self) -> bool:
        return self.mode != "deferred"


class CellQueries:
    """The queries of one kernel.

    ``announce`` hands new queries to the supervisor, ``suspension`` waits for answers. ``next_number`` is the first id
    that this session has never used. No id is used twice, not even by a kernel that replaces a crashed one: an answer
    that comes late must not match another question.
    """

    def __init__(
        self,
        announce: Callable[[Sequence[AskedQuery]], None],
        next_number: int,
        limits: Limits,
        llm: LlmPolicy,
        suspension: Suspension,
    ) -> None:
        self.announce = announce
        self.next_number = next_number
        self.limits = limits
        self.llm = llm
        self._suspension = suspension
        self.answers: dict[str, str] = {}
        """The answers as code sees them, and may change them."""
        self.said: dict[str, str] = {}
        """The answers as the supervisor gave them."""
        self._failed: set[str] = set()
        """The ids that failed. The text cannot tell: any text may be an answer."""
        self._placeholders: dict[str, DeferredAnswer] = {}
        self._used: dict[str, float] = dict.fromkeys(_BUDGET, 0)
        self._over_budget: set[str] = set()

    def helpers(self) -> dict[str, Callable[..., Any]]:
        """The functions that code in the session may call."""

        def llm_query(prompt: str, model: str | None = None, mode: str | None = None, schema: Any = None) -> Any:
            """Ask a language model.

            mode="deferred" returns at once a string that becomes the answer; mode="blocking" waits for an agent's
            answer, mode="provider" for that of a configured model; without a mode the session's policy decides. With a
            schema (JSON schema or pydantic model) the answer matches it and is returned as parsed data.
            """
            return self._one(prompt, self._asking(model, mode, schema))

        def llm_query_batched(
            prompts: Iterable[str], model: str | None = None, mode: str | None = None, schema: Any = None
        ) -> Sequence[Any]:
            """Ask several questions at once; returns an answer for each, in order.

            When it waits, an item without an answer reads [FAILED:id] and the reason; it does not fail the others.
            """
            return self._many(prompts, self._asking(model, mode, schema))

        def rlm_query(prompt: str, model: str | None = None, mode: str | None = None) -> Any:
            """Give a part of the task to a model that works in a copy of this session, in turns; returns its answer.

            The copy has the variables as they were before this cell, and the prompt as the text `task`.
            """
            return self._one(prompt, replace(self._asking(model, mode, None), recursive=True))

        def rlm_query_batched(
            prompts: Iterable[str], model: str | None = None, mode: str | None = None
        ) -> Sequence[Any]:
            """Give several parts away at once, each to a session of its own; returns their answers in order."""
            return self._many(prompts, replace(self._asking(model, mode, None), recursive=True))

        def budget() -> dict[str, dict[str, float]]:
            """What the session's queries have used, and their limits: calls, and a provider's tokens, cost, seconds."""
            return self.budget()

        asking = (llm_query, llm_query_batched, rlm_query, rlm_query_batched, budget)
        for function in asking:
            function.__qualname__ = function.__name__  # Python puts it into its messages
        return {function.__name__: function for function in asking}

    def _one(self, prompt: str, how: _Asking) -> Any:
        return self._only(how, self._round([prompt], how)) if how.waits else self._ask([prompt], how)[0]

    def _many(self, prompts: Iterable[str], how: _Asking) -> Sequence[Any]:
        if isinstance(prompts, str):
            raise TypeError("a batch takes a list of prompts; for one prompt call llm_query or rlm_query")
        if how.waits:
            return [self._value(how, asked) for asked in self._round(list(prompts), how)]
        return self._ask(list(prompts), how)

    def budget(self) -> dict[str, dict[str, float]]:
        """Return the amounts used, as the daemon last reported them, and the limits."""
        return {
            name: {"used": self._used[name], "limit": getattr(self.limits, limit)} for name, limit in _BUDGET.items()
        }

    def tell(self, used: BudgetUsed | None) -> None:
        """Take over the daemon's count, but never lower ours: it has not counted the latest calls yet."""
        if used is not None:
            self._used.update({name: max(self._used[name], getattr(used, name)) for name in _BUDGET})

    def skip_to(self, next_number: int) -> None:
        """Never use ids below ``next_number``: the process before this one may have."""
        self.next_number = max(self.next_number, next_number)

    def begin_anew(self, limits: Limits, llm: LlmPolicy) -> None:
        """Continue as another session with a full budget. Placeholders from before stay as they are."""
        self.limits, self.llm = limits, llm
        self._used = dict.fromkeys(_BUDGET, 0)

    def _asking(self, model: str | None, mode: str | None, schema: Any) -> _Asking:
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be str or None, not {type(model).__name__}")
        if model is not None and len(model) > worker_protocol.MAX_MODEL:
            raise ValueError(f"the model's name has {len(model):,} characters; use at most {worker_protocol.MAX_MODEL}")
        known = get_args(LlmMode)
        if mode is not None and mode not in known:
            raise ValueError(f"mode must be {', '.join(map(repr, known))} or None, not {mode!r}")
        chosen = mode or self.llm.mode
        if not self.llm.permits(chosen):
            allowed = ", ".join(mode for mode in known if self.llm.permits(mode))
            raise PermissionError(f"the session's policy does not permit mode={chosen!r} (llm.modes); use: {allowed}")
        return _Asking(None if model is None else str(model), chosen, None if schema is None else AnswerSchema(schema))

    def _round(self, prompts: list[str], how: _Asking) -> list[DeferredAnswer]:
        """Ask all and wait for all. Repeat questions whose answers the form's own validators refuse."""
        asked = self._ask_and_wait(prompts, how)
        for _ in range(self.llm.schema_attempts - 1 if how.form is not None else 0):
            wrong = self._complaints(how, asked)
            if not wrong:
                break
            once_more = [
                f"{prompts[n]}\n\nYour answer was:\n{asked[n]}\n\nIt is refused: {why}" for n, why in wrong.items()
            ]
            for number, again in zip(wrong, self._ask_and_wait(once_more, how), strict=True):
                asked[number] = again
        return asked

    @staticmethod
    def _complaints(how: _Asking, asked: list[DeferredAnswer]) -> dict[int, str]:
        form, answered = how.form, [(n, one) for n, one in enumerate(asked) if one.status == "answered"]
        return {} if form is None else {n: why for n, one in answered if (why := form.complaint(str(one)))}

    def _ask_and_wait(self, prompts: list[str], how: _Asking) -> list[DeferredAnswer]:
        """Ask all or none, and wait for all. Those that nobody answered in time are still pending."""
        self._suspension.check()
        self._check(prompts)
        placeholders = self._ask(prompts, how)
        late: set[str] = set()

        def take(news: Resolved) -> bool:
            self.tell(news.used)
            self.resolve(news.answers)
            late.update(news.late)
            return all(one.status != "pending" or one.query_id in late for one in placeholders)

        if placeholders:
            self._suspension.wait([one.query_id for one in placeholders], take)
        over = [one for one in placeholders if one.query_id in self._over_budget]
        if over:
            raise BudgetExceeded(f"{over[0]}; earlier answers are in {ANSWERS_NAME}")
        return placeholders

    def _only(self, how: _Asking, asked: list[DeferredAnswer]) -> Any:
        """Return the answer of a round with one query."""
        (one,) = asked
        if one.status == "pending":
            raise QueryTimeout(self._lateness(how, one))
        if one.status == "failed":
            raise QueryFailed(str(one))
        why = self._complaints(how, asked).get(0)
        if why:
            raise QueryFailed(f"[FAILED:{one.query_id}] the answer does not fit the schema: {why}")
        return self._value(how, one)

    def _value(self, how: _Asking, one: DeferredAnswer) -> Any:
        if one.status == "pending":
            return f"[FAILED:{one.query_id}] {self._lateness(how, one)}"
        if one.status == "failed" or how.form is None:
            return str(one)
        try:
            return how.form.read(str(one))
        except ValueError as error:
            return f"[FAILED:{one.query_id}] the answer does not fit the schema: {error}"

    def _lateness(self, how: _Asking, one: DeferredAnswer) -> str:
        said = f"nobody answered {one.query_id} within {self.llm.wait_seconds:g} s (the policy's llm.wait_seconds)"
        return said if how.mode == "provider" else f"{said}; a later answer will be in {ANSWERS_NAME}"

    def _check(self, prompts: Sequence[str]) -> None:
        """Raise for a prompt that cannot be sent, and for a batch that is over the limit."""
        for prompt in prompts:
            if not isinstance(prompt, str):
                raise TypeError(f"the prompt must be str, not {type(prompt).__name__}")
            if len(str(prompt)) > worker_protocol.MAX_PROMPT:
                size = len(str(prompt))
                most = worker_protocol.MAX_PROMPT
                raise ValueError(f"the prompt has {size:,} characters; split it into parts of at most {most:,}")
        left = self.limits.queries - int(self._used["calls"])
        if len(prompts) > left:
            raise QueryLimit(
                f"this session may ask only {self.limits.queries} queries (limits.queries in its policy), "
                f"and {max(left, 0)} of them are left: {'ask no more than that' if left > 0 else 'continue without'}"
            )

    def _ask(self, prompts: Sequence[str], how: _Asking) -> list[DeferredAnswer]:
        """Queue all or none."""
        self._check(prompts)
        placeholders: list[DeferredAnswer] = []
        batch: list[AskedQuery] = []
        characters = 0
        for prompt in map(str, prompts):
            placeholder = DeferredAnswer(self.next_number, how.form)
            self.next_number += 1
            self._used["calls"] += 1
            self._placeholders[placeholder.query_id] = placeholder
            placeholders.append(placeholder)
            schema = None if how.form is None else how.form.schema
            batch.append(AskedQuery(placeholder.number, prompt, how.model, how.mode, schema, how.recursive))
            characters += len(prompt)
            if len(placeholders) == _FIRST or len(batch) == _NEXT or characters > worker_protocol.PROMPTS_AT_ONCE:
                self.announce(batch)
                batch, characters = [], 0
        if batch:
            self.announce(batch)
        return placeholders

    def adopt(self, number: object, text: object, status: object) -> str:
        """Return the placeholder for a query that an earlier kernel of the session asked, or its text without one."""
        if not isinstance(number, int) or not 0 <= number < self.next_number:
            return str(text)
        name = id_of_query(number)
        placeholder = self._placeholders.get(name)
        if placeholder is None:
            if len(self._placeholders) >= self.limits.queries:
                return str(text)
            placeholder = self._placeholders[name] = DeferredAnswer(number)
            if status in ("answered", "failed"):
                placeholder.resolve(str(text), status == "failed")
            elif name in self.said:
                placeholder.resolve(self.said[name], name in self._failed)
        return placeholder

    def resolve(self, answers: Mapping[str, QueryOutcome]) -> list[str]:
        """Take outcomes by id. Return the ids that were known here."""
        ids = []
        # Code may have put in a key of its own class, whose ``__eq__`` a lookup would call.
        if any(type(name) is not str for name in self.answers):
            self.answers = {name: text for name, text in self.answers.items() if type(name) is str}
        for query_id, outcome in answers.items():
            self.said[query_id] = self.answers[query_id] = said_of(query_id, outcome)
            failed = outcome.error is not None
            (self._failed.add if failed else self._failed.discard)(query_id)
            if outcome.over:
                self._over_budget.add(query_id)
            placeholder = self._placeholders.get(query_id)
            if placeholder is not None:
                placeholder.resolve(self.said[query_id], failed)
                ids.append(query_id)
        return ids


def said_of(query_id: str, outcome: QueryOutcome) -> str:
    """Return the text that code reads in place of an answer: the answer itself, or the reason for its failure."""
    return outcome.answer or "" if outcome.error is None else f"[FAILED:{query_id}] {outcome.error}"
