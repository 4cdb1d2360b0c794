"""The placeholder for an answer that has not come yet: a string that turns into the answer in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self, SupportsIndex

from rlm_ipc.kernel_reports import id_of_query
from rlm_kernel.worker.answer_schema import AnswerSchema


class DeferredAnswer(str):
    """A query's placeholder: a string that reads ``[DEFERRED:q_000] LLM query queued`` until it is answered.

    After that, every string method works on the answer. ``status`` is ``pending``, ``answered`` or ``failed``; a failed
    query reads as its error. ``value`` is the content of a structured answer. C code reads the buffer of the `str`
    itself, which cannot change: ``"".join([d])`` still sees the placeholder. ``str(d)`` is always right.
    """

    __slots__ = ("_form", "_text", "number", "query_id", "status")
    _text: str
    _form: AnswerSchema | None
    number: int
    query_id: str
    status: str

    def __new__(cls, number: int, form: AnswerSchema | None = None) -> Self:
        """Create the placeholder for query ``number``, whose answer has the form ``form``."""
        query_id = id_of_query(number)
        text = f"[DEFERRED:{query_id}] LLM query queued"
        made = super().__new__(cls, text)
        made._text, made._form = text, form
        made.number, made.query_id = number, query_id
        made.status = "pending"
        return made

    def resolve(self, text: str, failed: bool = False) -> None:
        """Become the answer, or the reason why there is none."""
        self._text = text
        self.status = "failed" if failed else "answered"

    @property
    def value(self) -> Any:
        """The answer in its form: the JSON value or the pydantic model; the text if it has no form."""
        text = self._answered("read .value in a later cell")
        return text if self._form is None else self._form.read(text)

    def _answered(self, later: str) -> str:
        """Return the answer; raises ValueError if it has not come, or if the query failed."""
        if self.status != "answered":
            waiting = f"query {self.query_id!r} has no answer yet; {later}, or ask with mode='blocking'"
            raise ValueError(waiting if self.status == "pending" else self._text)
        return self._text

    def __int__(self) -> int:
        """The answer as a number; `int` of another string would read the placeholder."""
        return int(self._answered("convert it in a later cell"))

    def __float__(self) -> float:
        """The answer as a number."""
        return float(self._answered("convert it in a later cell"))

    def __str__(self) -> str:
        """The answer, or the placeholder."""
        return self._text

    def __contains__(self, part: object) -> bool:
        """True if ``part`` stands in the text."""
        return isinstance(part, str) and str(part) in self._text

    def __add__(self, other: object) -> str:
        """The text and ``other``."""
        return self._text + str(other) if isinstance(other, str) else _ADD(self, other)

    def __radd__(self, other: object) -> str:
        """``other`` and the text."""
        return str(other) + self._text if isinstance(other, str) else _ADD(self, other)

    def __mul__(self, times: SupportsIndex) -> str:
        """The text, repeated."""
        return self._text * times  # which asks the other object too

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        """Compare as the text."""
        return isinstance(other, str) and self._text == str(other)

    def __ne__(self, other: object) -> bool:
        """Compare as the text."""
        return not self == other

    def __hash__(self) -> int:
        """Hash the text, so that equal answers count as one.

        A key that was stored before the answer came is not found again.
        """
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


def _compare(name: str) -> Callable[..., Any]:
    by_operator = getattr(operator, name)

    def on_text(self: DeferredAnswer, other: object) -> Any:
        """Compare as the text."""
        return by_operator(self._text, str(other))

    on_text.__name__ = name
    return on_text


def _not_a_number(sign: str) -> Callable[..., Any]:
    def calculate(self: DeferredAnswer, other: object) -> Any:
        """Say what to do: a text has no arithmetic."""
        if not isinstance(other, int | float):
            return NotImplemented
        self._answered("calculate with it in a later cell")
        raise TypeError(
            f"{sign} needs a number, and the answer to query {self.query_id!r} is a text: use int() or float()"
        )

    return calculate


_ADD = _not_a_number("+")
for _sign, _name in {"-": "sub", "/": "truediv", "//": "floordiv", "**": "pow"}.items():
    setattr(DeferredAnswer, f"__{_name}__", _not_a_number(_sign))
    setattr(DeferredAnswer, f"__r{_name}__", _not_a_number(_sign))

for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    setattr(DeferredAnswer, _name, _compare(_name))

_SPECIAL = "__repr__ __format__ __len__ __iter__ __getitem__ __mod__".split()
_PUBLIC = [name for name in dir(str) if not name.startswith("_") and name != "maketrans"]
for _name in (*_SPECIAL, *_PUBLIC):
    setattr(DeferredAnswer, _name, _delegate(_name))
