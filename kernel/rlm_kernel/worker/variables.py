"""The user's globals as rows and as text, for listing, paging and searching kernel variables.

Rows (`row`) run no user code. Texts (`as_text`) may call a user's ``__repr__``, so the worker runs them like a cell:
interruptible, and under the supervisor's clock.
"""

from __future__ import annotations

import itertools
import json
import reprlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlm_contexts.text.lines import Lines
from rlm_contexts.view.variable import ContextVariable
from rlm_ipc.errors import UnknownVariable
from rlm_ipc.worker_requests import VariableRow
from rlm_kernel.worker._bindings import bound
from rlm_kernel.worker.kinds import one_of
from rlm_kernel.worker.traceback import name_of
from rlm_sandbox.namespaces import Namespace

SCALARS = (int, float, complex, bool, type(None))
CONTAINERS = (list, tuple, dict, set, frozenset)
_SIZED = (*SCALARS, *CONTAINERS, str, bytes, bytearray)
PREVIEW_CHARS = 120
KEPT_RESULTS = 100
SAMPLE = 200
"""How many items of a container are measured to estimate the size of all."""


def visible(namespace: Mapping[Any, Any], hidden: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a user made: no underscore names, modules, or names that the session came with."""
    for name, value in list(namespace.items()):
        if not isinstance(name, str) or name.startswith("_"):
            continue
        # By type, here and below: `isinstance` asks the object for its __class__, which may run user code.
        if issubclass(type(value), types.ModuleType) or hidden.get(name, hidden) is value:
            continue
        yield name, value


def row(name: str, value: Any) -> VariableRow:
    """Return the row of a variable in a list."""
    kind, lines = type(value), None
    if kind is str:
        lines = value.count("\n") + (1 if value and not value.endswith("\n") else 0)
    elif one_of(kind, CONTAINERS) or kind is Lines:
        lines = len(value)
    return VariableRow(name, name_of(kind), _size(value), plain_repr(value), lines)


def _size(value: Any, depth: int = 2) -> int:
    """Return the bytes of a value. Arrays and built-in containers include their items, estimated from a sample."""
    kind = type(value)
    if one_of(kind, _SIZED):
        return int(value.__sizeof__()) + (_held(value, depth) if one_of(kind, CONTAINERS) and depth else 0)
    if (held := _array_bytes(value)) is not None:
        return held
    try:
        return object.__sizeof__(value) if not issubclass(kind, type) else sys.getsizeof(value)
    except TypeError:
        return 0


def _array_bytes(value: Any) -> int | None:
    """Return the bytes of an array or a table; None for anything else. No method of a user's class is called."""
    kind, numpy, pandas = type(value), sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and kind is numpy.ndarray:
        return int(value.nbytes)
    if pandas is not None and kind is pandas.DataFrame:
        return int(value.memory_usage().sum())
    if pandas is not None and (kind is pandas.Series or kind is pandas.Index):
        return int(value.nbytes)
    return None


def _held(value: Any, depth: int) -> int:
    items = value.items() if type(value) is dict else zip(value)
    sample = [sum(_size(part, depth - 1) for part in item) for item in itertools.islice(items, SAMPLE)]
    return sum(sample) * len(value) // len(sample) if sample else 0


def _shape(value: Any) -> str:
    """Return the shape of an array, a table, a loaded text or its lines, in words; empty for anything else."""
    kind, numpy, pandas = type(value), sys.modules.get("numpy"), sys.modules.get("pandas")
    if kind is ContextVariable:
        return f": {value.text.facts.loaded:,} bytes, {value.text.line_count:,} lines"
    if kind is Lines:
        return f": {len(value)} lines"
    if numpy is not None and kind is numpy.ndarray:
        return f": {' x '.join(map(str, value.shape))}" if value.shape else ""
    if pandas is not None and kind is pandas.DataFrame:
        rows, columns = value.shape
        return f": {rows} rows x {columns} columns"
    if pandas is not None and (kind is pandas.Series or kind is pandas.Index):
        return f": {len(value)} values"
    return ""


class _Plain(reprlib.Repr):
    """reprs of built-in values; anything else shows only its type and, for a table, its shape: no user code runs."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = PREVIEW_CHARS
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 6
        self.maxlevel = 3

    def repr1(self, x: Any, level: int) -> str:
        known = one_of(type(x), _SIZED)
        return super().repr1(x, level) if known else f"<{name_of(type(x))}{_shape(x)}>"

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return a dictionary in its own order: sorting, as `reprlib` does, would compare the keys."""
        pairs = itertools.islice(list(x.items()), self.maxdict) if level > 0 else ()
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in pairs]
        return "{" + ", ".join(shown + ["..."] * (len(x) > len(shown))) + "}"

    def repr_set(self, x: set[Any], level: int) -> str:
        """Return a set in its own order, for the same reason."""
        return self._items(x, level, "{", "}") if x else "set()"

    def repr_frozenset(self, x: frozenset[Any], level: int) -> str:
        """Return a frozen set in its own order, for the same reason."""
        return self._items(x, level, "frozenset({", "})") if x else "frozenset()"

    def _items(self, x: set[Any] | frozenset[Any], level: int, opening: str, closing: str) -> str:
        shown = [self.repr1(item, level - 1) for item in itertools.islice(x, self.maxset if level > 0 else 0)]
        return opening + ", ".join(shown + ["..."] * (len(x) > len(shown))) + closing


_plain = _Plain()


def plain_repr(value: Any) -> str:
    """Return the shortened repr of a built-in value; for anything else only the type. No user code runs."""
    try:
        return _plain.repr(value)[:PREVIEW_CHARS]
    except ValueError:  # an integer with more digits than Python converts
        return f"<{name_of(type(value))}>"


def find(namespace: Mapping[str, Any], hidden: Mapping[str, Any], name: str) -> Any:
    """Return the user's global with that name; raises `UnknownVariable`, which lists the existing names."""
    found = dict(visible(namespace, hidden))
    if name not in found:
        raise UnknownVariable(name, sorted(found))
    return found[name]


def as_lines(value: Any) -> Sequence[str]:
    """Return a variable as lines: a text by its newlines, a list by its items, a dict by its pairs, a table as CSV."""
    value = _whole(value)
    if isinstance(value, Mapping) and isinstance(value.get("lines"), Sequence) and "line_count" in value:
        return value["lines"]  # type: ignore[no-any-return]
    if type(value) is Lines:
        return value
    if isinstance(value, dict):
        return [f"{_item(k)}: {_item(v)}" for k, v in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [_item(item) for item in value]
    if isinstance(value, bytes | bytearray):
        value = value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else repr(value)
    return [line.removesuffix("\r") for line in str(text).removesuffix("\n").split("\n")] if text else []


def as_text(value: Any) -> str:
    """Return a variable as one text, as `load_context` from a variable stores it; dicts and nested lists as JSON."""
    value = _whole(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Mapping) and isinstance(value.get("content"), str) and "line_count" in value:
        return str(value["content"])
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return "\n".join(str(item) for item in value)
    if isinstance(value, list | tuple | dict):
        try:
            return json.dumps(value, ensure_ascii=False, indent=1)
        except (TypeError, ValueError):
            pass
    return "\n".join(as_lines(value))


def _whole(value: Any) -> Any:
    """Return an array as a list and a table as CSV: both print only the ends of many rows. Return others unchanged."""
    kind, numpy, pandas = type(value), sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and kind is numpy.ndarray:
        return (value.astype(str) if value.dtype.kind in "mM" else value).tolist()  # otherwise times would be numbers
    if pandas is not None and kind is pandas.Index:
        return value.tolist()
    if pandas is not None and (kind is pandas.DataFrame or kind is pandas.Series):
        return value.to_csv(index=type(value.index) is not pandas.RangeIndex)
    return value


def _item(value: Any) -> str:
    return str(value) if isinstance(value, str) else repr(value)


def changed(before: bytes, namespace: dict[Any, Any], hidden: Mapping[str, Any]) -> list[str]:
    """Return the names that a cell has created or rebound since their objects were `noted` before it."""
    found = bound(before, namespace)
    return [name for name, _ in visible(found, hidden)] if found else []


def prune(namespace: Namespace, hidden: Namespace, history: Any, count: int) -> None:
    """Forget input and result of an old cell: ``_i3``, ``_3``, ``Out[3]`` and IPython's log of what was shown."""
    old = count - KEPT_RESULTS
    if old > 0:
        for log in (history.outputs, history.output_hist_reprs, history.exceptions):
            log.pop(old, None)
        for name in (f"_i{old}", f"_{old}"):
            namespace.pop(name, None)
            hidden.pop(name, None)
        results = namespace.get("_oh")
        if type(results) is dict:
            results.pop(old, None)
