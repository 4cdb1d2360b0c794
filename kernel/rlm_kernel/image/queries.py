"""``llm_query`` as code in a session sees it: placeholders that become answers, or a call that waits for them.

Recursive Language Models (arXiv:2512.24601) let code ask a model in the middle of its work. In deferred mode the call
returns at once; whoever reads ``pending_llm_queries`` answers, and the same object then *is* the answer. In blocking
mode the cell waits in the same frame and the call returns the answer, a plain ``str``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, SupportsIndex

from rlm_sandbox.policy_model import LlmPolicy

ANSWERS_NAME = "llm_answers"
MAX_PROMPT_CHARS = 4_000_000
MODES = ("deferred", "blocking")

Suspend = Callable[[Sequence[str], Callable[[Mapping[str, Any]], bool]], None]
"""Waits for queries: tells the host their ids, and hands its news over until that is enough (True)."""


class QueryLimit(RuntimeError):
    """The session has asked as many queries as its policy permits."""


class QueryFailed(RuntimeError):
    """Whoever was asked says that there is no answer, and why."""


class QueryTimeout(TimeoutError):
    """No answer came while the cell waited; the query is still pending."""


class DeferredAnswer(str):
    """A query's placeholder: a string that reads ``[DEFERRED:q_000] LLM query queued`` until it is answered.

    From then on every string operation on it works on the answer. ``status`` is ``pending``, ``answered`` or
    ``failed``; a failed query reads as its error. C code that looks at the buffer itself (``"".join([d])``) still
    sees the placeholder: ``str(d)`` is always right.
    """

    __slots__ = ("_text", "query_id", "status")
    _text: str
    query_id: str
    status: str

    def __new__(cls, query_id: str) -> Self:
        """The placeholder of the query ``query_id``."""
        text = f"[DEFERRED:{query_id}] LLM query queued"
        made = super().__new__(cls, text)
        made._text = text
        made.query_id = query_id
        made.status = "pending"
        return made

    def settle(self, text: str, failed: bool = False) -> None:
        """Become the answer, or the reason why there is none."""
        self._text = text
        self.status = "failed" if failed else "answered"

    def __str__(self) -> str:
        """The answer, or the placeholder."""
        return self._text

    def __repr__(self) -> str:
        """As that of the text."""
        return repr(self._text)

    def __format__(self, spec: str) -> str:
        """Format the text."""
        return format(self._text, spec)

    def __len__(self) -> int:
        """Characters of the text."""
        return len(self._text)

    def __iter__(self) -> Any:
        """Characters of the text."""
        return iter(self._text)

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        """A character or slice of the text."""
        return self._text[index]

    def __contains__(self, part: object) -> bool:
        """True if ``part`` stands in the text."""
        return isinstance(part, str) and str(part) in self._text

    def __add__(self, other: str) -> str:
        """The text and ``other``."""
        return self._text + str(other) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        """``other`` and the text."""
        return str(other) + self._text if isinstance(other, str) else NotImplemented

    def __mod__(self, values: Any) -> str:
        """The text as a %-format."""
        return str.__mod__(self._text, values)

    def __mul__(self, times: SupportsIndex) -> str:
        """The text, repeated."""
        return self._text * times

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        """Compare as the text."""
        return isinstance(other, str) and self._text == str(other)

    def __ne__(self, other: object) -> bool:
        """Compare as the text."""
        return not self == other

    def __lt__(self, other: str) -> bool:
        """Compare as the text."""
        return self._text < str(other)

    def __le__(self, other: str) -> bool:
        """Compare as the text."""
        return self._text <= str(other)

    def __gt__(self, other: str) -> bool:
        """Compare as the text."""
        return self._text > str(other)

    def __ge__(self, other: str) -> bool:
        """Compare as the text."""
        return self._text >= str(other)

    def __hash__(self) -> int:
        """As the text, so that equal answers count as one; a key made before the answer came is not found by it."""
        return hash(self._text)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle and copy as the text."""
        return str, (self._text,)


def _delegate(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def on_text(self: DeferredAnswer, *args: Any, **options: Any) -> Any:
        return method(self._text, *args, **options)

    on_text.__name__, on_text.__doc__ = name, method.__doc__
    return on_text


for _name in dir(str):
    if not _name.startswith("_") and _name != "maketrans":
        setattr(DeferredAnswer, _name, _delegate(_name))


class Queries:
    """The queries of one kernel.

    ``announce`` hands a new query to the host, ``suspend`` waits for answers in blocking mode. ``next_number`` is the
    first id that this session has never used: ids are not reused, also not by a kernel that replaces a crashed one.
    """

    def __init__(
        self,
        announce: Callable[[dict[str, Any]], None],
        next_number: int,
        limit: int,
        llm: LlmPolicy,
        suspend: Suspend,
    ) -> None:
        self.announce = announce
        self.next_number = next_number
        self.limit = limit
        self.llm = llm
        self._suspend = suspend
        self.answers: dict[str, str] = {}
        self._placeholders: dict[str, DeferredAnswer] = {}

    def helpers(self) -> dict[str, Callable[..., Any]]:
        """The functions that code in the session may call."""

        def llm_query(prompt: str, model: str | None = None, mode: str | None = None) -> str:
            """Ask a language model.

            mode="deferred" returns at once a string that becomes the answer, mode="blocking" waits and returns it;
            without one the session's policy decides.
            """
            if self._waits(mode):
                return self._only(self._round([prompt], model))
            return self.ask(prompt, model)

        def llm_query_batched(
            prompts: Iterable[str], model: str | None = None, mode: str | None = None
        ) -> Sequence[str]:
            """Ask several questions at once; returns one string for each, in their order.

            When it waits, an item without an answer reads [FAILED:id] and why; it does not fail the others.
            """
            if isinstance(prompts, str):
                raise TypeError("llm_query_batched takes a list of prompts; for one prompt call llm_query")
            if self._waits(mode):
                return [self._text(asked) for asked in self._round(list(prompts), model)]
            return [self.ask(prompt, model) for prompt in list(prompts)]

        return {"llm_query": llm_query, "llm_query_batched": llm_query_batched}

    def skip_to(self, next_number: int) -> None:
        """Never use the ids below ``next_number``: the session has, in a process that this one takes over from."""
        self.next_number = max(self.next_number, next_number)

    def begin_anew(self, limit: int, llm: LlmPolicy) -> None:
        """Go on as another session with a quota of its own; placeholders that were asked before stay what they are."""
        self.limit = len(self._placeholders) + limit
        self.llm = llm

    def _waits(self, mode: str | None) -> bool:
        if mode is not None and mode not in MODES:
            raise ValueError(f"mode must be 'deferred', 'blocking' or None, not {mode!r}")
        return (mode or self.llm.mode) == "blocking"

    def _round(self, prompts: list[str], model: str | None) -> list[DeferredAnswer]:
        """Ask all and wait for all; those that nobody answered in time are pending still."""
        for prompt in prompts:
            self._check(prompt, model, len(prompts))
        asked = [self.ask(prompt, model) for prompt in prompts]
        late: set[str] = set()

        def take(news: Mapping[str, Any]) -> bool:
            self.settle(news.get("answers", {}))
            late.update(news.get("late", ()))
            return all(one.status != "pending" or one.query_id in late for one in asked)

        if asked:
            self._suspend([one.query_id for one in asked], take)
        return asked

    def _only(self, asked: list[DeferredAnswer]) -> str:
        """The answer of a round of one query."""
        (one,) = asked
        if one.status == "pending":
            raise QueryTimeout(f"{self._lateness(one)}; an answer that comes later is in {ANSWERS_NAME}")
        if one.status == "failed":
            raise QueryFailed(str(one))
        return str(one)

    def _text(self, one: DeferredAnswer) -> str:
        return f"[FAILED:{one.query_id}] {self._lateness(one)}" if one.status == "pending" else str(one)

    def _lateness(self, one: DeferredAnswer) -> str:
        return f"nobody answered {one.query_id} within {self.llm.wait_seconds:g} s (the policy's llm.wait_seconds)"

    def _check(self, prompt: str, model: str | None, count: int) -> None:
        """Refuse what cannot be asked, as one of ``count`` queries."""
        if not isinstance(prompt, str):
            raise TypeError(f"the prompt must be str, not {type(prompt).__name__}")
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be str or None, not {type(model).__name__}")
        size = len(str(prompt))
        if size > MAX_PROMPT_CHARS:
            raise ValueError(f"the prompt has {size:,} characters; at most {MAX_PROMPT_CHARS:,} are sent")
        if len(self._placeholders) + count > self.limit:
            raise QueryLimit(f"this session may ask {self.limit} queries; its policy sets limits.queries")

    def ask(self, prompt: str, model: str | None) -> DeferredAnswer:
        """Queue one query."""
        self._check(prompt, model, 1)
        text = str(prompt)
        query_id = f"q_{self.next_number:03d}"
        self.next_number += 1
        placeholder = self._placeholders[query_id] = DeferredAnswer(query_id)
        self.announce({"id": query_id, "prompt": text, "model": None if model is None else str(model)})
        return placeholder

    def adopt(self, query_id: object, text: object, status: object) -> str:
        """The placeholder of a query that an earlier kernel of the session has asked; else only its text."""
        number = str(query_id).removeprefix("q_")
        mine = str(query_id).startswith("q_") and number.isdecimal() and len(number) < 10
        if not mine or int(number) >= self.next_number or len(self._placeholders) >= self.limit:
            return str(text)
        name = str(query_id)
        placeholder = self._placeholders.get(name)
        if placeholder is None:
            placeholder = self._placeholders[name] = DeferredAnswer(name)
            if status in ("answered", "failed"):
                placeholder.settle(str(text), status == "failed")
            elif name in self.answers:
                placeholder.settle(self.answers[name], self.answers[name].startswith(f"[FAILED:{name}]"))
        return placeholder

    def settle(self, answers: Mapping[str, Any]) -> list[str]:
        """Take answers ``{id: {"answer": text} | {"error": text}}``; returns the ids that were known here."""
        known = []
        for query_id, outcome in answers.items():
            failed = "error" in outcome
            text = str(outcome["error"] if failed else outcome["answer"])
            self.answers[query_id] = f"[FAILED:{query_id}] {text}" if failed else text
            placeholder = self._placeholders.get(query_id)
            if placeholder is not None:
                placeholder.settle(self.answers[query_id], failed)
                known.append(query_id)
        return known
