"""``obj.__class__ = Other`` and ``obj.__dict__ = values``, on objects that belong entirely to the session.

The rules of the wall depend on the class of an object, and many checks are made once for several uses. They stay true,
because the object was clean before and is clean afterwards.
"""

from __future__ import annotations

from typing import Any, Final

from rlm_sandbox.language_wall import advice
from rlm_sandbox.language_wall.guards.attributes import AttributeRefused
from rlm_sandbox.language_wall.registry import CLEAN, USER, is_class, mro_of

_setattr: Final = setattr


class Replacing:
    """Stands for the object in such an assignment; compiled code never keeps it."""

    __slots__ = ("_target",)

    _target: Any

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)

    def __setattr__(self, name: str, value: Any) -> None:
        target = object.__getattribute__(self, "_target")
        if name == "__class__":
            allowed = _is_plain(type(target)) and is_class(value) and _is_plain(value)
        else:
            allowed = type(target) in CLEAN and not is_class(target) and (type(value) is dict or type(value) in CLEAN)
        if not allowed:
            refusal = advice.denied_store(name)
            raise AttributeRefused(f"{refusal.reason}, except on objects of your own classes. {refusal.instead}")
        _setattr(target, name, value)


def _is_plain(cls: type) -> bool:
    """Return whether a class derives only from classes of the session, all with the ordinary metaclass.

    Others bring their own layout, or C code that trusts what their classes define (exception groups do).
    """
    return type(cls) is type and all(base in USER or base is object for base in mro_of(cls))
