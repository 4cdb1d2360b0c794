"""``warnings.catch_warnings`` that keeps no module in its objects.

It stores the module in the object itself, so that a class derived from it, with a ``__setattr__`` or a descriptor of
its own, is handed it. Here it stores something that has what it reads and stores there, and nothing else.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed


def _forward(name: str) -> property:
    def read(_: Any) -> Any:
        return getattr(warnings, name)

    def store(_: Any, value: Any) -> None:
        setattr(warnings, name, value)

    return property(read, store)


class WarningsState:
    """What of the module changes while warnings are caught."""

    __slots__ = ()

    filters = _forward("filters")
    showwarning = _forward("showwarning")
    _showwarnmsg_impl = _forward("_showwarnmsg_impl")
    _showwarning_orig = _forward("_showwarning_orig")
    _filters_mutated = _forward("_filters_mutated")


_STATE: Final = WarningsState()
_changed: Final[list[Any]] = []
"""The class that was changed."""


def harden_warnings() -> None:
    """Change the class in place: it can be found among the bases of others."""
    cls: Any = warnings.catch_warnings
    if cls in _changed:
        return
    _changed.append(cls)
    real = cls.__init__

    @functools.wraps(real)
    def __init__(self: Any, *, record: bool = False, module: Any = None, **options: Any) -> None:  # noqa: N807
        state = _STATE if module is None and is_armed() else module
        real(self, record=record, module=state, **options)

    cls.__init__ = __init__
