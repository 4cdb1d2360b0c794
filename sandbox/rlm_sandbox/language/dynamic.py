"""``getattr``, ``setattr``, ``vars``: builtins whose attribute names are known at run time only."""

from __future__ import annotations

from typing import Any, Final

from rlm_sandbox.language.guards import check_store
from rlm_sandbox.language.guards_read import namespace_of, read_named
from rlm_sandbox.language.names import Access, access
from rlm_sandbox.language.registry import REGISTRY

_getattr: Final = getattr
_setattr: Final = setattr
_delattr: Final = delattr
_names: Final = REGISTRY.shelf.names
_MAX_NAMES: Final = 20_000


def guarded_getattr(*args: Any) -> Any:
    """``getattr(obj, name[, default])`` under the rules of the session."""
    if not 2 <= len(args) <= 3:
        return _getattr(*args)  # Python's own TypeError
    obj, name = args[:2]
    try:
        if type(name) is str:
            if name in _names:
                return _getattr(obj, name)
            if access(name) is Access.NATIVE:
                if len(_names) < _MAX_NAMES:
                    _names.add(name)
                return _getattr(obj, name)
        return read_named(obj, name)
    except AttributeError:
        if len(args) == 2:
            raise
        return args[2]


def guarded_hasattr(*args: Any) -> bool:
    """``hasattr(obj, name)``: False for what the session does not give."""
    if len(args) != 2:
        return hasattr(*args)  # Python's own TypeError
    try:
        guarded_getattr(*args)
    except AttributeError:
        return False
    return True


def guarded_setattr(obj: Any, name: str, value: Any, /) -> None:
    """``setattr(obj, name, value)`` under the rules of the session."""
    check_store(obj, name)
    _setattr(obj, name, value)


def guarded_delattr(obj: Any, name: str, /) -> None:
    """``delattr(obj, name)`` under the rules of the session."""
    check_store(obj, name)
    _delattr(obj, name)


def guarded_vars(*args: Any) -> Any:
    """``vars(obj)``: the live namespace of the session's own objects, the public part of others."""
    if len(args) != 1:
        raise TypeError("vars() takes the object whose attributes you want; name your variables themselves")
    return namespace_of(args[0])


for _function, _name in (
    (guarded_getattr, "getattr"),
    (guarded_hasattr, "hasattr"),
    (guarded_setattr, "setattr"),
    (guarded_delattr, "delattr"),
    (guarded_vars, "vars"),
):
    _function.__name__ = _function.__qualname__ = _name
