"""Methods that Cython compiled made to look at the object that they are called with (see `_core`)."""

from __future__ import annotations

import sys
from typing import Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.arrivals import came_since
from rlm_sandbox.language_wall.registry import dict_of, is_class

_SHARED: Final = "_cython_"
"""How the modules begin in which Cython keeps what those that it compiled share, one for each of its versions."""
_TYPE: Final = "cython_function_or_method"
_done: Final[dict[str, object]] = {}
"""Modules whose classes have been checked."""


class _Ordinary:
    """A class as Python code makes it."""


def harden_methods() -> None:
    """Check the methods of the classes of modules that have come since it was done last; called after each import."""
    kinds: list[type] | None = None
    checked: dict[int, object] = {}  # most classes are in several modules
    for module in came_since(_done):
        if kinds is None:
            kinds = _kinds()
        for cls in filter(is_class, list(vars(module).values())):
            if id(cls) in checked:
                continue
            checked[id(cls)] = cls  # kept, so that no other class gets its id
            # Most classes have none: one set of types is a tenth of the cost of asking each value. It is a set of ids,
            # because the type of a value may have a hash of its own, or none.
            found = {id(type(value)) for value in dict_of(cls).values()} if kinds else ()
            for kind in kinds:
                if id(kind) in found:
                    _core.check_methods(cls, kind, _Ordinary)


def _kinds() -> list[type]:
    """The classes of methods that Cython has compiled."""
    shared = [vars(module) for name, module in list(sys.modules.items()) if name.startswith(_SHARED)]
    return [found[_TYPE] for found in shared if _TYPE in found]
