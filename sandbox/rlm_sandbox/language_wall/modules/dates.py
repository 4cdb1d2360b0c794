"""C methods that create their result with the class of the object that they are called on, and trust it.

They write into what the class has created as if it were of their own kind. A class of the session may create anything:
a library's function, for example, which has the namespace of its module where a simple namespace has its own.
"""

from __future__ import annotations

import datetime as dt
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.modules.type_slots import modified, namespace_of
from rlm_sandbox.language_wall.registry import USER, dict_of, mro_of

_LOOKS_ITSELF: Final = (3, 13)


def harden_dates() -> None:
    """Change the methods in place: classes that derive from theirs call them too."""
    if sys.version_info < _LOOKS_ITSELF:
        _once(dt.date, "replace", _replacing)
    _once(dt.datetime, "astimezone", _moving)
    if "__replace__" in dict_of(types.SimpleNamespace):  # since 3.13
        _once(types.SimpleNamespace, "__replace__", _replacing_names)


def _once(cls: type, name: str, make: Callable[[Any], Any]) -> None:
    real: Any = dict_of(cls)[name]
    if hasattr(real, "__code__"):
        return
    made = make(real)
    for attribute in ("__name__", "__qualname__", "__doc__"):  # not `wraps`, which would keep the real one in it
        setattr(made, attribute, getattr(real, attribute))
    namespace_of(cls)[name] = made
    modified(cls)


def _replacing(real: Any) -> Any:
    """Before 3.13: a ``datetime`` made so takes whatever stood in its memory for its time zone."""

    def replace(self: Any, /, *args: Any, **changes: Any) -> Any:
        if issubclass(type(self), dt.datetime):
            raise TypeError("date.replace() takes a date: write moment.replace(...) for a datetime")
        return real(self, *args, **changes)

    return replace


def _moving(real: Any) -> Any:
    """It writes its time zone into the sum of a moment and a difference."""

    def astimezone(self: Any, /, tz: Any = None) -> Any:
        cls = type(self)
        if cls not in USER or dt.datetime not in mro_of(cls):
            return real(self, tz)
        moment = real(_parts(dt.datetime, self), tz)
        return _parts(cls, moment)

    return astimezone


def _parts(cls: Any, moment: Any) -> Any:
    """A moment of that class, whatever methods it has in place of the library's."""
    *parts, fold = (part.__get__(moment) for part in _PARTS)
    return cls(*parts, fold=fold)


_PARTS: Final = tuple(
    dict_of(cls)[name]
    for cls, names in (
        (dt.date, "year month day"),
        (dt.datetime, "hour minute second microsecond tzinfo fold"),
    )
    for name in names.split()
)


def _replacing_names(real: Any) -> Any:
    """Since 3.13, for ``copy.replace``."""
    values_of = dict_of(types.SimpleNamespace)["__dict__"].__get__

    def __replace__(self: Any, /, **changes: Any) -> Any:  # noqa: N807
        values = values_of(self)
        made = type(self)()
        values_of(made).update(values | changes)  # a TypeError unless it is a simple namespace
        return made

    return __replace__
