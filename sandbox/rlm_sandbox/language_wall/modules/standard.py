"""Safe replacements for standard functions that read attributes, evaluate text or make classes.

Each does what the original does for the session's own objects. They take the place of the originals in the
sanitised copies (``modules``); the original stays out of reach.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import dataclasses
import enum
import functools
import inspect
import itertools
import keyword
import sys
import time
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.evaluation import NamespaceView
from rlm_sandbox.language_wall.guards.attributes import protect, refuse, wash
from rlm_sandbox.language_wall.guards.class_cells import unseal
from rlm_sandbox.language_wall.guards.classes import (
    MetaSafe,
    check_namespace,
    claim,
    mark_class,
    put_token,
    register_class,
    unmark_class,
)
from rlm_sandbox.language_wall.guards.reads import SessionFormatter, read_named
from rlm_sandbox.language_wall.modules.copying import harden_copy
from rlm_sandbox.language_wall.modules.dates import harden_dates
from rlm_sandbox.language_wall.modules.fields import harden_fields, replace
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.modules.signatures import harden_signatures, signature
from rlm_sandbox.language_wall.modules.type_slots import modified, namespace_of, replace_slot
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE
from rlm_sandbox.language_wall.modules.warning_filters import WarningsState, harden_warnings
from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import HIDDEN, USER, cell_frame, dict_of, mro_of
from rlm_sandbox.namespaces import Namespace

_real_namedtuple: Final[Callable[..., Any]] = vars(collections)["namedtuple"]


def _named(replacement: Any, original: Any) -> Any:
    """Give a replacement the original's name and documentation, as it appears in help and error messages."""
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(replacement, attribute, getattr(original, attribute, None))
    return replacement


# -- typing and inspect


def get_type_hints(obj: Any, globalns: Any = None, localns: Any = None, include_extras: bool = False) -> dict[str, Any]:
    """``typing.get_type_hints``; text is evaluated under the policy, with the caller's variables or those given."""
    caller = cell_frame(sys._getframe(1))
    mine = NamespaceView(caller.f_globals) if globalns is None and caller is not None else globalns
    names = {
        key: value for given in (mine, localns) if type(given) in (dict, NamespaceView) for key, value in given.items()
    }
    hints: dict[str, Any] = {}
    if isinstance(obj, type):
        for base in reversed(mro_of(obj)):
            hints |= dict_of(base).get("__annotations__", {})
    else:
        hints |= getattr(obj, "__annotations__", None) or {}
    return {name: _hint(value, names, extras=include_extras) for name, value in hints.items()}


def _hint(value: Any, names: Mapping[str, Any], *, extras: bool) -> Any:
    if isinstance(value, str):
        value = IN_FORCE.evaluate(str.__str__(value), names)
    if value is None:
        return type(None)
    return value if extras else typing._strip_annotations(value)  # type: ignore[attr-defined]


def runtime_checkable(cls: Any) -> Any:
    """``typing.runtime_checkable`` of a protocol of the session's own: it stores in the class."""
    if not isinstance(cls, type) or cls not in USER:
        raise TypeError("only your own protocol classes can be made runtime-checkable in this session")
    return typing.runtime_checkable(cls)


def get_origin(tp: Any) -> Any:
    """``typing.get_origin``, without the raw ``type``."""
    return wash(typing.get_origin(tp))


def get_args(tp: Any) -> tuple[Any, ...]:
    """``typing.get_args``, without the raw ``type``."""
    return tuple(map(wash, typing.get_args(tp)))


def _harden_tasks() -> None:
    """``asyncio.Task.get_stack`` gives frames: not while user code runs, whoever asks for it."""
    vars(asyncio.mixins)["_LoopBoundMixin"]._get_loop = _bound_loop
    for name in ("get_stack", "print_stack"):
        real = dict_of(asyncio.Task)[name]
        if not hasattr(real, "__code__"):
            namespace_of(asyncio.Task)[name] = _without_frames(real)
    modified(asyncio.Task)
    for cls in (asyncio.Future, asyncio.Task):
        replace_slot(cls, "__init__", _with_real_loop(dict_of(cls)["__init__"]))
    replace_in(asyncio.TaskGroup, "__aenter__", _of_its_own)
    for handle in (asyncio.Handle, asyncio.TimerHandle):  # `__init__` leaves a context in whatever it is called with
        _core.admit(HIDDEN, handle)


def _of_its_own(real: Any) -> Any:
    """A group keeps the loop in itself: not in another object that it is called with."""

    def __aenter__(self: Any) -> Any:  # noqa: N807
        if type(self) is not asyncio.TaskGroup and is_armed():
            raise TypeError("only a TaskGroup can be entered as one")
        return real(self)

    return _named(__aenter__, real)


def _with_real_loop(real: Any) -> Any:
    """A future tells its loop what to call in which context: a loop of the session's would be given the kernel's."""

    def __init__(self: Any, *args: Any, loop: Any = None, **options: Any) -> None:  # noqa: N807
        if loop is not None and asyncio.AbstractEventLoop not in mro_of(type(loop)) and is_armed():
            raise TypeError("a future takes no loop of your own in this session: leave the argument out")
        real(self, *args, loop=loop, **options)

    return _named(__init__, real)


_loop_numbers: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int]] = weakref.WeakKeyDictionary()
_numbers: Final = itertools.count()


def _bound_loop(self: Any) -> asyncio.AbstractEventLoop | None:
    """Of a lock or a queue, which keeps the number of its loop: much code reads and compares what objects keep."""
    loop = asyncio._get_running_loop()
    number = None if loop is None else _loop_numbers.setdefault(loop, next(_numbers))
    if self._loop is None:
        self._loop = number
    if self._loop is not loop and self._loop != number:
        raise RuntimeError(f"{self!r} is bound to a different event loop")
    return loop


def _without_frames(real: Any) -> Any:
    def checked(self: Any, **options: Any) -> Any:
        if is_armed():
            refuse(real.__name__)
        return real(self, **options)

    return _named(checked, real)


def getmro(cls: Any) -> Any:
    """``inspect.getmro`` under the session's rules."""
    return read_named(cls, "__mro__")


def getmembers(obj: Any, predicate: Callable[[Any], bool] | None = None) -> list[tuple[str, Any]]:
    """``inspect.getmembers``: the members that the session's ``getattr`` gives."""
    found = []
    for name in sorted({str.__str__(name) for name in dir(obj)}):
        try:
            value = read_named(obj, name)
        except Exception:
            continue
        if predicate is None or predicate(value):
            found.append((name, value))
    return found


# -- classes


def _check_fields(cls: Any) -> None:
    """A field's name becomes source text and an attribute to read: it must be an ordinary identifier."""
    annotations = dict_of(cls).get("__annotations__", {})
    if type(annotations) is not dict:
        raise TypeError("__annotations__ of a dataclass must be a dict")
    for name in annotations:
        _check_field_name(name)


def _check_field_name(name: Any) -> None:
    if type(name) is not str or not name.isidentifier() or keyword.iskeyword(name):
        raise TypeError("field names must be identifiers")
    if name.startswith("__") and access(name) is not AttributeAccess.PRIVATE:
        raise TypeError(f"a dataclass may not have a field named '{name}' in this session")


def dataclass(cls: Any = None, /, **options: Any) -> Any:
    """``dataclasses.dataclass``; what it makes is the session's own class."""

    def wrap(cls: Any) -> Any:
        if cls not in USER:
            raise TypeError("only a class of your own can become a dataclass in this session")
        if any("__getattr__" in dict_of(base) for base in mro_of(type(cls)) if base in USER):
            raise TypeError("a class whose metaclass defines __getattr__ cannot become a dataclass in this session")
        _check_fields(cls)
        token = mark_class(cls)
        try:
            return claim(token, dataclasses.dataclass(cls, **options))  # another class, where it has slots
        finally:
            unmark_class(cls, token)

    return wrap if cls is None else wrap(cls)


def make_dataclass(cls_name: str, fields: Iterable[Any], *, bases: tuple[Any, ...] = (), **options: Any) -> Any:
    """``dataclasses.make_dataclass``; what it makes is the session's own class."""
    fields = [field if isinstance(field, str) else tuple(field) for field in fields]
    for field in fields:
        _check_field_name(field if isinstance(field, str) else field[0])
    check_namespace(options.get("namespace") or {})
    options["namespace"] = namespace = dict(options.get("namespace") or {})
    token = put_token(namespace)
    return claim(token, dataclasses.make_dataclass(cls_name, fields, bases=bases, **options))


def namedtuple(typename: str, field_names: Any, *, module: str | None = None, **options: Any) -> Any:
    """``collections.namedtuple``; what it makes is the session's own class."""
    return register_class(_real_namedtuple(typename, field_names, module=module or "__main__", **options))


class SafeABCMeta(abc.ABCMeta, metaclass=MetaSafe):
    """``abc.ABCMeta`` whose classes are checked and registered."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: Namespace, /, **kwargs: Any) -> Any:
        """Make a class from a checked namespace."""
        namespace = dict(namespace)
        check_namespace(namespace)
        unseal(namespace)
        return register_class(super().__new__(mcls, name, bases, namespace, **kwargs))


class StandIn:
    """Stands for a type of the interpreter: ``isinstance`` works, making objects does not."""

    __slots__ = ("__name__", "_check")

    __name__: str
    _check: Callable[[Any], bool]

    def __init__(self, name: str, cls: type) -> None:
        object.__setattr__(self, "__name__", name)
        object.__setattr__(self, "_check", lambda value: isinstance(value, cls))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"'{self.__name__}' is read-only")

    def __instancecheck__(self, value: Any) -> bool:
        return bool(self._check(value))

    def __or__(self, other: Any) -> Any:
        return typing.Any

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<class '{self.__name__}'>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the session has no such objects of its own making."""
        raise TypeError(f"'{self.__name__}' objects cannot be created in this session")


# -- timeit


def timeit(stmt: Any = "pass", setup: Any = "pass", timer: Any = None, number: int = 1_000_000, **_: Any) -> float:
    """``timeit.timeit`` of a callable; text is not compiled."""
    if isinstance(stmt, str) or (isinstance(setup, str) and setup != "pass"):
        raise TypeError("timeit takes functions in this session: write timeit.timeit(lambda: ..., number=n)")
    if callable(setup):
        setup()
    clock = timer or time.perf_counter
    start = clock()
    for _round in range(number):
        stmt()
    return float(clock() - start)


def repeat(stmt: Any = "pass", setup: Any = "pass", timer: Any = None, repeat: int = 5, number: int = 1_000_000) -> Any:
    """``timeit.repeat`` of a callable."""
    return [timeit(stmt, setup, timer, number) for _ in range(repeat)]


@functools.cache
def standard_shims() -> dict[str, object]:
    """The replacements, by the full name of what they replace."""
    protect(dataclasses.Field, WarningsState)
    harden_signatures()
    _harden_tasks()
    harden_fields()
    harden_copy()
    harden_dates()
    harden_warnings()
    replaced: dict[str, tuple[Any, Any]] = {
        "typing.get_type_hints": (get_type_hints, typing.get_type_hints),
        "typing.runtime_checkable": (runtime_checkable, typing.runtime_checkable),
        "typing.get_origin": (get_origin, typing.get_origin),
        "typing.get_args": (get_args, typing.get_args),
        "inspect.signature": (signature, inspect.signature),
        "inspect.getmro": (getmro, inspect.getmro),
        "inspect.getmembers": (getmembers, inspect.getmembers),
        "dataclasses.dataclass": (dataclass, dataclasses.dataclass),
        "dataclasses.make_dataclass": (make_dataclass, dataclasses.make_dataclass),
        "dataclasses.replace": (replace, dataclasses.replace),
        "collections.namedtuple": (namedtuple, _real_namedtuple),
        "abc.ABCMeta": (SafeABCMeta, abc.ABCMeta),
    }
    shims = {name: _named(*pair) for name, pair in replaced.items()}
    shims |= {"string.Formatter": SessionFormatter, "timeit.timeit": timeit, "timeit.repeat": repeat}
    SessionFormatter.__name__ = SessionFormatter.__qualname__ = "Formatter"
    return shims | _stand_ins()


def _stand_ins() -> dict[str, object]:
    kinds = {
        "types.FunctionType": ("function", types.FunctionType),
        "types.LambdaType": ("function", types.FunctionType),
        "types.ModuleType": ("module", types.ModuleType),
        "types.TracebackType": ("traceback", types.TracebackType),
        "types.FrameType": ("frame", types.FrameType),
        "types.CodeType": ("code", types.CodeType),
        "enum.EnumMeta": ("EnumType", enum.EnumMeta),
        "enum.EnumType": ("EnumType", enum.EnumMeta),
    }
    return {name: StandIn(*kind) for name, kind in kinds.items()}
