"""``copy`` by the session's rules: an object says how it is copied, and could ask for another object to be changed.

``copy.copy(x)`` asks ``x`` for a function that creates the copy and for the state to give it. A class of the session
could name a library's object as the copy, and have any attribute of it set. And a library's data in an object is passed
to its class's method for that, which may be the session's. The functions are changed in place, because libraries copy
their arguments, too (``dataclasses.asdict``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.guards.attributes import refuse, wash
from rlm_sandbox.language_wall.modules.in_place import replace_in
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE
from rlm_sandbox.language_wall.names import is_private, may_store
from rlm_sandbox.language_wall.registry import CLEAN, USER, dict_of, is_user_function, may_touch_private, mro_of


def harden_copy() -> None:
    """Make ``copy`` set state only on an object of the class that is copied, and no attribute that is plumbing."""
    replace_in(copy, "_reconstruct", _reconstructing)
    vars(copy).update(_keep_alive=_keep_alive, setattr=_set_state)


def _reconstructing(real: Callable[..., Any]) -> Callable[..., Any]:
    def reconstruct(x: Any, memo: Any, func: Any, args: Any, state: Any = None, *rest: Any, **options: Any) -> Any:
        if IN_FORCE.stands and state is not None:
            func = _same_class(type(x), func)
        if IN_FORCE.stands and type(x) not in CLEAN and (type(x) in USER or _receives(type(x))):
            args, state = tuple(map(wash, args)), _washed(state, type(x))
        return real(x, memo, func, args, state, *rest, **options)

    return reconstruct


class _Kept:
    """Keeps alive what a deep copy has read, including live namespaces of libraries' objects; reveals nothing."""

    __slots__ = ("_objects",)

    def __init__(self) -> None:
        self._objects: list[Any] = []


def _keep_alive(x: Any, memo: Any) -> None:
    """The memo comes from the session, or is given to a method of its own."""
    kept = memo.get(id(memo))
    if type(kept) is not _Kept:
        kept = memo[id(memo)] = _Kept()
    kept._objects.append(x)


_RECEIVERS: Final = ("__setstate__", "__setattr__", "__getattribute__", "__getattr__")
"""Methods that receive the state of a copy, or return what they are passed to."""


def _washed(state: Any, cls: type) -> Any:
    """Return a state without what no session may hold, nor what receiving methods of its class may not read."""
    if type(state) is tuple:
        return tuple(_washed(part, cls) for part in state)
    if type(state) is not dict:
        return wash(state)
    received = _receives(cls)
    return {name: wash(value) for name, value in state.items() if not received or _may_read(cls, name)}


def _receives(cls: type) -> bool:
    """Return whether the session gets the state: also through a class of its own that was then refused."""
    own = [dict_of(base) for base in mro_of(cls) if base in USER or any(map(is_user_function, dict_of(base).values()))]
    return any(name in names for names in own for name in _RECEIVERS)


def _may_read(cls: type, name: Any) -> bool:
    return type(name) is not str or not is_private(name) or may_touch_private(cls, name)


def _same_class(cls: type, func: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        made = func(*args)
        if type(made) is not cls:
            raise TypeError(f"a copy of a '{cls.__name__}' object must be of the same class to receive its state")
        return made

    return make


def _set_state(obj: Any, name: str, value: Any) -> None:
    if IN_FORCE.stands and (type(name) is not str or not may_store(name)):
        refuse(str(name), "may not be part of the state of a copy")
    setattr(obj, name, value)
