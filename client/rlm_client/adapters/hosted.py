"""A session whose code may call functions of this process: the base of adapters to other libraries.

A call is sent as a query with a mark: the cell waits, the function runs here, and its result, as JSON, is the answer.
All other queries are for a language model. The mark only tells them apart and protects nothing: code in the session may
call these functions in any way, so their arguments are untrusted.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from rlm_client.client import Client
from rlm_client.handed_texts import hand_over
from rlm_client.results import Cell, Query
from rlm_ipc.errors import CallerError, KernelError

__all__ = ["Hosted", "as_plain"]

POLICY = "recursive"
_LARGE = 100_000
"""A longer text (characters) is loaded by the daemon instead of being written into code."""
_STUB = """\
def {name}(*args, **kwargs):
    import json
    asked = {mark!r} + json.dumps({{"name": {name!r}, "args": args, "kwargs": kwargs}}, default=str)
    return json.loads(llm_query(asked, mode="blocking"))
"""

Ask = Callable[[Sequence[Query]], Sequence[str | Exception]]
"""Answers the queries for a language model in one round."""
Given = str | dict[str, str]


class Hosted:
    """A separate session for an adapter; ``functions`` can be called by code, by name."""

    def __init__(self, prefix: str, ask: Ask, *, policy: str = POLICY) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.client: Client = Client(f"{prefix}-{secrets.token_hex(4)}", policy=policy)
        self._ask = ask
        self._mark = f"call-{secrets.token_hex(8)}:"
        self._stubs: set[str] = set()
        self._values: dict[str, object] = {}

    def run(self, code: str) -> Cell:
        """Run code, and answer its calls and queries."""
        self._define(name for name in self.functions if name not in self._stubs)
        cell = self.client.eval_code(code)
        while cell.pending_llm_queries:
            answered = self.client.answer_queries(self._answers(self.client.pending_queries()))
            if cell.status != "waiting":  # the policy defers answers: the next block gets them
                break
            cell = answered.cell or self.client.wait()
        return cell

    def bind(self, name: str, value: object) -> None:
        """Set a variable, unless it is already bound to the same object."""
        if name in self._values and self._values[name] is value:
            return
        loaded = name.lstrip("_") or "value"  # a text's name may not begin with one
        if isinstance(value, str) and len(value) > _LARGE:
            hand_over(self.client, f"{loaded}_text", value)
            code = f"{name} = {loaded}_text['content']"
        else:
            text = _as_json(name, value)
            if len(text) > _LARGE:
                hand_over(self.client, f"{loaded}_json", text)
                code = f"import json\n{name} = json.loads({loaded}_json['content'])"
            else:
                code = f"import json\n{name} = json.loads({text!r})"
        self._must(code)
        self._values[name] = value

    def define_again(self, names: Iterable[str]) -> None:
        """Restore functions that code has replaced."""
        self._stubs.difference_update(names)

    def end(self) -> None:
        """End the session."""
        with suppress(KernelError):
            self.client.end_session()
        self.client.close()

    def _define(self, names: Any) -> None:
        new = list(names)
        if new:
            self._must("\n".join(_STUB.format(name=name, mark=self._mark) for name in new))
            self._stubs.update(new)

    def _must(self, code: str) -> None:
        cell = self.client.eval_code(code)
        if not cell.success:
            raise CallerError(f"the session cannot be prepared under its policy: {cell.error}")

    def _answers(self, queries: Sequence[Query]) -> Mapping[str, Given]:
        calls = [query for query in queries if query.prompt.startswith(self._mark)]
        given: dict[str, Given] = {query.id: self._called(query.prompt.removeprefix(self._mark)) for query in calls}
        asked = [query for query in queries if query.id not in given]
        for query, answer in zip(asked, self._ask(asked) if asked else (), strict=True):
            given[query.id] = {"error": str(answer)} if isinstance(answer, Exception) else answer
        return given

    def _called(self, text: str) -> Given:
        """Make the call; its errors are raised in the calling code."""
        try:
            call = json.loads(text)
            function = self.functions[call["name"]]
            return json.dumps(as_plain(function(*call["args"], **call["kwargs"])), default=str)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def as_plain(value: Any) -> Any:
    """Return a value of lists and dicts: models of pydantic, dataclasses and named tuples become dicts.

    Sets become lists, in order if their items have one; enumerations become their values, and times, paths and numbers
    that JSON lacks their texts.
    """
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and (names := getattr(value, "_fields", None)) is not None:
        return {name: as_plain(item) for name, item in zip(names, value, strict=True)}
    if isinstance(value, set | frozenset):
        return [as_plain(item) for item in _in_order(value)]
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, Enum):
        return as_plain(value.value)
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID | PurePath | Decimal) else value


def _in_order(items: set[Any] | frozenset[Any]) -> Iterable[Any]:
    try:
        return sorted(items)
    except TypeError:
        return items


def _as_json(name: str, value: object) -> str:
    try:
        return json.dumps(as_plain(value))
    except (TypeError, ValueError) as error:
        raise CallerError(
            f"{name} cannot be passed to the session: {error}; pass a value that JSON can hold"
        ) from error
