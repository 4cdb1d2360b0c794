"""Methods that Cython compiled made to look at the object that they are called with (see `_core`)."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any, Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.registry import dict_of, is_class

_SHARED: Final = "_cython_"
"""How the modules begin in which Cython keeps what those that it compiled share, one for each of its versions."""
_TYPE: Final = "cython_function_or_method"
_done: Final[set[str]] = set()
"""Modules whose classes have been checked."""


class _Ordinary:
    """A class as Python code makes it."""


def harden_methods() -> None:
    """Check the methods of the classes of modules that have come since it was done last; called after each import."""
    new = [cls for name in list(sys.modules) if name not in _done for cls in _classes_of(name)]
    shared = [vars(module) for name, module in list(sys.modules.items()) if name.startswith(_SHARED)]
    for kind in (found[_TYPE] for found in shared if _TYPE in found):
        for cls in new:
            if any(type(value) is kind for value in dict_of(cls).values()):
                _core.check_methods(cls, kind, _Ordinary)


def _classes_of(name: str) -> Iterator[type]:
    _done.add(name)
    module: Any = sys.modules[name]
    yield from filter(is_class, list(vars(module).values())) if isinstance(module, types.ModuleType) else ()
