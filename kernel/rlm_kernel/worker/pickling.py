"""Variables as bytes and back, inside a worker, as pickles whose every global is on our own list.

Unpickling runs whatever the bytes name, and anybody may have made these. So `Restorer` imports nothing by a name in the
pickle. A global is a built-in type, a constructor in `ADMITTED` whose module the policy admits, or a mark of this
module (`array`, `deferred`, …). Anything else is refused. Library classes written in Python are wrapped in
`_Constructor`: a pickle can call them but not change them. Functions and classes of the session are not pickled but
named. They stand for whatever their own source has made.
"""

from __future__ import annotations

import builtins
import importlib
import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rlm_kernel.worker.deferred import DeferredAnswer
from rlm_kernel.worker.function_sources import is_of_cells

PROTOCOL = 5

BUILTINS = frozenset(
    """
    bool bytearray bytes complex dict float frozenset int list object range set slice str tuple
    """.split()
)
ADMITTED: Mapping[str, frozenset[str]] = {
    "array": frozenset({"_array_reconstructor", "array"}),
    "collections": frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}),
    "datetime": frozenset({"date", "datetime", "time", "timedelta", "timezone"}),
    "decimal": frozenset({"Decimal"}),
    "fractions": frozenset({"Fraction"}),
    "ipaddress": frozenset({"IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"}),
    "pathlib": frozenset({"PosixPath", "PurePosixPath"}),
    "re": frozenset({"_compile"}),
    "types": frozenset({"SimpleNamespace"}),
}
MODULES = {"pathlib._local": "pathlib", "_pydatetime": "datetime"}
"""The modules that some classes name as their own, and where they are imported from."""


class Unpicklable(Exception):
    """The variable cannot be kept; the message says why."""


class TooLarge(Unpicklable):
    """The variable is larger than a snapshot allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is larger than {limit:,} bytes, the most that a snapshot keeps of one variable")


# -- marks: a pickle names one of these in place of a library's global, and `Restorer` gives each its meaning


def _mark(name: str) -> Callable[..., Any]:
    def mark(*_: Any) -> NoReturn:
        raise TypeError(f"{name} has a meaning only inside a snapshot")

    mark.__name__ = mark.__qualname__ = name
    return mark


named, context, deferred, array, scalar = map(_mark, ("named", "context", "deferred", "array", "scalar"))
MARKS = {mark.__name__: mark for mark in (named, context, deferred, array, scalar)}


class _Bounded(io.BytesIO):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.limit:
            raise TooLarge(self.limit)
        return super().write(data)


class _Pickler(pickle.Pickler):
    """Refuses to write what `Restorer` would refuse to read, so that the user hears of it when there is still time."""

    def __init__(self, out: io.BytesIO, namespace: Mapping[str, Any], contexts: Mapping[str, Any], limit: int) -> None:
        super().__init__(out, PROTOCOL)
        self._namespace, self._contexts, self._limit = namespace, contexts, limit

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, type):
            return self._class(value)
        if kind in (types.FunctionType, types.BuiltinFunctionType):
            return self._function(value)
        if kind is DeferredAnswer:
            return deferred, (int(value.number), str(value), str(value.status))
        name = next((name for name, known in self._contexts.items() if known is value), None)
        if name is not None:
            return context, (name,)
        return self._array(value, kind) if kind.__module__ == "numpy" else NotImplemented

    def _class(self, cls: type) -> Any:
        if is_of_cells(cls):
            return self._name(cls, f"the class {cls.__name__!r}")
        if not _is_admitted(cls.__module__, cls.__qualname__):
            raise Unpicklable(f"objects of {cls.__module__}.{cls.__qualname__} are not kept in snapshots")
        return NotImplemented

    def _function(self, function: Any) -> Any:
        if MARKS.get(function.__name__) is function:
            return NotImplemented
        module, name = str(function.__module__), str(function.__qualname__)
        if module == "__main__":
            return self._name(function, f"the function {name!r}")
        if not _is_admitted(module, name):
            raise Unpicklable(f"the function {module}.{name} is not kept in snapshots")
        return NotImplemented

    def _name(self, value: Any, what: str) -> Any:
        name = str(value.__name__)
        if self._namespace.get(name) is not value:
            raise Unpicklable(f"{what} is not a variable of the session under its own name")
        return named, (name,)

    def _array(self, value: Any, kind: type) -> Any:
        numpy = sys.modules["numpy"]
        if not isinstance(value, numpy.ndarray | numpy.generic):
            return NotImplemented
        if kind is not numpy.ndarray and not isinstance(value, numpy.generic):
            raise Unpicklable(f"arrays of the type {kind.__name__} are not kept in snapshots")
        if value.nbytes > self._limit:
            raise TooLarge(self._limit)
        if value.dtype.hasobject:
            # numpy keeps these as a pickle inside the array, which would go round the list of admitted globals.
            raise Unpicklable("arrays of Python objects are not kept in snapshots; convert it with .tolist()")
        data = io.BytesIO()
        numpy.lib.format.write_array(data, numpy.asarray(value), allow_pickle=False)
        return (array if kind is numpy.ndarray else scalar), (data.getvalue(),)


def dump(value: Any, namespace: Mapping[str, Any], contexts: Mapping[str, Any], limit: int) -> bytes:
    """Pickle one variable into at most ``limit`` bytes.

    Raises: Unpicklable, or whatever the person's own ``__reduce__`` raises.
    """
    out = _Bounded(limit)
    _Pickler(out, namespace, contexts, limit).dump(value)
    return out.getvalue()


def _is_admitted(module: str, name: str) -> bool:
    if module == "builtins":
        return name in BUILTINS or _is_exception(name)
    return name in ADMITTED.get(MODULES.get(module, module), frozenset())


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


class _Constructor:
    """A library class that a pickle may call, but neither change nor inspect.

    Pickle's BUILD opcode writes attributes into whatever object is on its stack, classes included.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        object.__setattr__(self, "_make", make)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("a library cannot be changed by a snapshot")

    def __call__(self, *args: Any) -> Any:
        return object.__getattribute__(self, "_make")(*args)


class Restorer(pickle.Unpickler):
    """Reads one variable. ``made`` are the session's own functions and classes, made again from their source."""

    def __init__(
        self,
        data: bytes,
        *,
        admits: Callable[[str], bool],
        made: Mapping[str, Any],
        contexts: Mapping[str, Any],
        query: Callable[[int, str, str], Any],
    ) -> None:
        super().__init__(io.BytesIO(data))
        self._admits = admits
        self._marks: dict[str, Callable[..., Any]] = {
            "named": lambda name: known(made, name, "a function or class"),
            "context": lambda name: known(contexts, name, "a loaded context"),
            "deferred": query,
            "array": _read_array,
            "scalar": lambda data: _read_array(data)[()],
        }

    def find_class(self, module: str, name: str) -> Any:
        """The object that a global in the pickle stands for. The name in the pickle decides no import."""
        if module == __name__:
            if name in {"array", "scalar"}:
                self._check("numpy")
            return _Constructor(known(self._marks, name, "a mark"))
        if not _is_admitted(module, name):
            raise Unpicklable(f"a snapshot may not create objects of {module[:80]}.{name[:80]}")
        if module == "builtins":
            return getattr(builtins, name)
        home = MODULES.get(module, module)
        self._check(home)
        found = getattr(importlib.import_module(home), name)
        return found if _is_fixed(found) else _Constructor(found)

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refused: snapshots have none."""
        raise Unpicklable("it refers to something outside the snapshot")

    def _check(self, module: str) -> None:
        if not self._admits(module):
            raise Unpicklable(f"it needs the module {module!r}, which this session's policy does not admit")


def _is_fixed(found: Any) -> bool:
    """Whether it is a type that nobody can change. Only such a type may be handed out without a `_Constructor`."""
    heap, immutable = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
    return isinstance(found, type) and (not found.__flags__ & heap or bool(found.__flags__ & immutable))


def known(table: Mapping[str, Any], name: Any, what: str) -> Any:
    """Look up a name from a snapshot in ``table``; raises Unpicklable."""
    if not isinstance(name, str) or name not in table:
        raise Unpicklable(f"it needs {what} named {str(name)[:80]!r}, which was not restored")
    return table[name]


def _read_array(data: Any) -> Any:
    numpy = importlib.import_module("numpy")
    if type(data) is not bytes:
        raise Unpicklable("an array of the snapshot is damaged")
    return numpy.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
