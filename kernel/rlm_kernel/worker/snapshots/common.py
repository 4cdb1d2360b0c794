"""What saving and restoring have in common."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final, Protocol

from rlm_sandbox.language_wall.registry import CLEAN, USER, dict_of, mro_of
from rlm_sandbox.namespaces import Namespace

Names = Namespace


class Unkept(Exception):
    """A value that a snapshot does not keep or does not restore; the message says why."""


class Unavailable(Unkept):
    """The restoring session lacks what a value needs. This costs the variables that need it, no others."""


class Making(Protocol):
    """What a kind needs of the `restoring.Restorer` that creates an object with it."""

    environment: Any
    kept: list[Any]


class Lost:
    """Stands for what this session cannot create, until the variables that hold it are left out."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


identity: Final[Callable[[Any], int]] = object.__hash__
"""Distinguishes objects as `id` does. But `id` raises an audit event, which takes longer than all else."""

VALUES: Final = (str, bytes, int, float, complex, tuple, frozenset)
"""Classes whose objects get their value when they are created, and keep it."""
HOLDERS: Final = (dict, list, set, bytearray)
"""Classes whose objects are created empty, and filled later."""
COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
OF_FUNCTION: Final = 0x0003
"""CO_OPTIMIZED and CO_NEWLOCALS: the code of a function, not of a class body or a module."""
_ABSTRACT: Final = frozenset({"typing", "abc", "enum", "collections.abc"})
_HEAP_TYPE: Final = 1 << 9


def own(cls: Any) -> bool:
    """Return whether it is a class of the session."""
    return issubclass(type(cls), type) and cls in USER


class Shape:
    """How objects of a session's class are created: by which class outside the session, and with which slots."""

    __slots__ = ("base", "clean", "cls", "compares", "has_hash", "slots")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.base = _maker_of(cls)
        self.slots = _slots_of(cls)
        self.clean = cls in CLEAN
        self.has_hash = self.base not in VALUES and type(_static(cls, "__hash__")) is types.FunctionType
        self.compares = _is_written(cls, "__hash__") or _is_written(cls, "__eq__")
        """Whether code of a cell may run when a dict or a set takes an object of it."""


def _maker_of(cls: type) -> type:
    for base in mro_of(cls):
        if base in USER:
            continue
        if base in VALUES or base in HOLDERS or base is object or issubclass(base, BaseException):
            return base
        plain = base.__flags__ & _HEAP_TYPE and "__new__" not in dict_of(base)
        if not plain and base.__module__ not in _ABSTRACT:
            return base
    return object


def _slots_of(cls: type) -> Names:
    """Return the slots that the classes of the session declare, by name; for equal names that of the nearer class."""
    found: Names = {}
    for base in mro_of(cls):
        if base in USER:
            for name, value in dict_of(base).items():
                if type(value) is types.MemberDescriptorType:
                    found.setdefault(name, value)
    return dict(sorted(found.items()))


def _static(cls: type, name: str) -> Any:
    return next((dict_of(base)[name] for base in mro_of(cls) if name in dict_of(base)), None)


def _is_written(cls: type, name: str) -> bool:
    found = _static(cls, name)
    return type(found) is types.FunctionType and not found.__code__.co_filename.startswith("<string>")


def expect(value: Any, *allowed: type) -> Any:
    """Return ``value``, if it is exactly of one of these types."""
    if type(value) not in allowed:
        raise Unkept(f"a {type(value).__name__} stands where a {allowed[0].__name__} belongs")
    return value


def names_in(value: Any) -> Names:
    """Return a copy of a table of names. Not the table: a finaliser could change that between the check and the use."""
    names = dict(expect(value, dict))
    for name in names:
        expect(name, str)
    return names
