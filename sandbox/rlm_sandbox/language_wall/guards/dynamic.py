"""``getattr``, ``setattr``, ``vars``: builtins whose attribute names are known only at run time.

The compiler checks every attribute name in the source. It cannot see these names, so the same rules are applied here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall import _core, advice
from rlm_sandbox.language_wall.guards.attributes import check_store
from rlm_sandbox.language_wall.guards.namespaces import namespace_of
from rlm_sandbox.language_wall.guards.reads import read_named
from rlm_sandbox.language_wall.names import AttributeAccess, access

_getattr: Final = getattr
_setattr: Final = setattr
_delattr: Final = delattr

guarded_getattr: Final = _core.getattr
"""``getattr(obj, name[, default])`` under the rules of the session; names known to be harmless are read in C."""
guarded_hasattr: Final = _core.hasattr
"""``hasattr(obj, name)``: False for an attribute that the session refuses."""


def _read_by_rules(*args: Any) -> Any:
    """Act as ``getattr(obj, name[, default])`` for a name that is not known yet, or not harmless."""
    if not 2 <= len(args) <= 3:
        return _getattr(*args)  # Python's own TypeError
    obj, name = args[:2]
    try:
        # An exact `str`: a subclass could compare equal to one name here and to another in the look-up.
        if type(name) is str and access(name) is AttributeAccess.NATIVE:
            _core.admit(_core.HARMLESS, name)
            return _getattr(obj, name)
        return read_named(obj, name)
    except AttributeError:
        if len(args) == 2:
            raise
        return args[2]


_core.give_getattr(_read_by_rules)


def guarded_setattr(obj: Any, name: str, value: Any, /) -> None:
    """Act as ``setattr(obj, name, value)`` under the rules of the session."""
    check_store(obj, name)
    _setattr(obj, name, value)


def guarded_delattr(obj: Any, name: str, /) -> None:
    """Act as ``delattr(obj, name)`` under the rules of the session."""
    check_store(obj, name)
    _delattr(obj, name)


def guarded_vars(*args: Any) -> Any:
    """Act as ``vars(obj)``: the live namespace of the session's own objects, the public part of others."""
    if len(args) != 1:
        raise TypeError("vars() needs an object in this session; use your variables by their names")
    return namespace_of(args[0])


class CallRefused(CellError, EOFError):
    """A blocked builtin was called; a program that reads until the input ends takes it for that end."""

    rule = "builtin"


def refused_call(name: str) -> Callable[..., NoReturn]:
    """Return the stand-in for a blocked builtin that code may mention: it refuses every call."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        refusal = advice.blocked_builtin(name)
        raise CallRefused(f"{refusal.reason}. {refusal.instead}")

    refused.__name__ = refused.__qualname__ = name
    return refused


for _function, _name in ((guarded_setattr, "setattr"), (guarded_delattr, "delattr"), (guarded_vars, "vars")):
    _function.__name__ = _function.__qualname__ = _name
