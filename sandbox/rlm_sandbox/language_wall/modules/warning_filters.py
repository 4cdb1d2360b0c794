"""``warnings`` that calls nothing of the session's choice.

``catch_warnings`` stores the module in the object itself, so that a derived class with its own ``__setattr__`` or
descriptor would receive it. Here it stores an object that has only what it reads and stores there.

Warnings are raised in the middle of the wall's own work, while a module is imported. So a filter holds strings,
patterns and classes that ask no metaclass, and a warning is shown by the function that showed it before.
"""

from __future__ import annotations

import functools
import re
import types
import warnings
from collections.abc import Callable
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.modules.in_place import replace_in


def _forward(name: str, allows: Callable[[Any], bool]) -> property:
    given: list[Any] = []

    def read(_: Any) -> Any:
        value = getattr(warnings, name)
        if not any(value is known for known in given):
            given.append(value)
        return value

    def store(_: Any, value: Any) -> None:
        if not (allows(value) or any(value is known for known in given)):
            raise TypeError(f"warnings.{name} may not be replaced in this session: catch them with record=True")
        setattr(warnings, name, value)

    return property(read, store)


def _never(_: Any) -> bool:
    return False


def _appends(function: Any) -> bool:
    return type(function) is types.BuiltinFunctionType and type(function.__self__) is list


def _are_filters(filters: Any) -> bool:
    return type(filters) is list and all(map(_is_filter, filters))


def _is_filter(entry: Any) -> bool:
    if type(entry) is not tuple or len(entry) != 5:
        return False
    action, message, category, module, line = entry
    texts = all(type(text) in (str, re.Pattern, types.NoneType) for text in (message, module))
    categories = category if type(category) is tuple else (category,)
    return texts and type(action) is str and all(type(cls) is type for cls in categories) and type(line) is int


class WarningsState:
    """The parts of the module that change while warnings are caught."""

    __slots__ = ()

    @property
    def filters(self) -> list[Any]:
        """A copy, as what is stored is: code that has a list may put anything into it."""
        return list(warnings.filters)

    @filters.setter
    def filters(self, value: Any) -> None:
        copy = list(value) if type(value) is list else value
        if not _are_filters(copy):
            raise TypeError("warnings.filters may hold texts and plain categories only in this session")
        warnings.filters = copy

    showwarning = _forward("showwarning", _never)
    _showwarnmsg_impl = _forward("_showwarnmsg_impl", _appends)
    _showwarning_orig = _forward("_showwarning_orig", _never)
    _filters_mutated = _forward("_filters_mutated", _never)


_STATE: Final = WarningsState()


def harden_warnings() -> None:
    """Change the class in place, because it can be found among the bases of others, and what adds filters."""
    replace_in(warnings.catch_warnings, "__init__", _catching)
    replace_in(warnings, "_add_filter", _adding)


def _catching(real: Any) -> Any:
    @functools.wraps(real)
    def __init__(self: Any, *, record: bool = False, module: Any = None, **options: Any) -> None:  # noqa: N807
        state = _STATE if module is None and is_armed() else module
        real(self, record=record, module=state, **options)

    return __init__


def _adding(add: Any) -> Any:
    @functools.wraps(add)
    def _add_filter(*entry: Any, **options: Any) -> None:
        if is_armed() and not _is_filter(entry):
            raise TypeError("a filter of warnings takes texts, and a category that has no metaclass")
        add(*entry, **options)

    return _add_filter
