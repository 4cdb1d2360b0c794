"""``llm_query`` as code in a session sees it: deferred requests whose placeholder becomes the answer.

Recursive Language Models (arXiv:2512.24601) let code ask a model in the middle of its work. In deferred mode the call
returns at once; whoever reads ``pending_llm_queries`` answers, and the same object then *is* the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, SupportsIndex

ANSWERS_NAME = "llm_answers"
MAX_PROMPT_CHARS = 4_000_000


class QueryLimit(RuntimeError):
    """The session has asked as many queries as its policy permits."""


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
    """The deferred queries of one kernel.

    ``announce`` hands a new query to the host. ``next_number`` is the first id that this session has never used: ids
    are not reused, also not by a kernel that replaces a crashed one.
    """

    def __init__(self, announce: Callable[[dict[str, Any]], None], next_number: int, limit: int) -> None:
        self.announce = announce
        self.next_number = next_number
        self.limit = limit
        self.answers: dict[str, str] = {}
        self._placeholders: dict[str, DeferredAnswer] = {}

    def helpers(self) -> dict[str, Callable[..., Any]]:
        """The functions that code in the session may call."""

        def llm_query(prompt: str, model: str | None = None) -> DeferredAnswer:
            """Ask a language model; returns at once a string that becomes the answer."""
            return self.ask(prompt, model)

        def llm_query_batched(prompts: Iterable[str], model: str | None = None) -> list[DeferredAnswer]:
            """Ask several questions at once; returns one placeholder for each."""
            if isinstance(prompts, str):
                raise TypeError("llm_query_batched takes a list of prompts; for one prompt call llm_query")
            return [self.ask(prompt, model) for prompt in list(prompts)]

        return {"llm_query": llm_query, "llm_query_batched": llm_query_batched}

    def skip_to(self, next_number: int) -> None:
        """Never use the ids below ``next_number``: the session has, in a process that this one takes over from."""
        self.next_number = max(self.next_number, next_number)

    def begin_anew(self, limit: int) -> None:
        """Go on as another session with a quota of its own; placeholders that were asked before stay what they are."""
        self.limit = len(self._placeholders) + limit

    def ask(self, prompt: str, model: str | None) -> DeferredAnswer:
        """Queue one query."""
        if not isinstance(prompt, str):
            raise TypeError(f"the prompt must be str, not {type(prompt).__name__}")
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be str or None, not {type(model).__name__}")
        text = str(prompt)
        if len(text) > MAX_PROMPT_CHARS:
            raise ValueError(f"the prompt has {len(text):,} characters; at most {MAX_PROMPT_CHARS:,} are sent")
        if len(self._placeholders) >= self.limit:
            raise QueryLimit(f"this session may ask {self.limit} queries; its policy sets limits.queries")
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
