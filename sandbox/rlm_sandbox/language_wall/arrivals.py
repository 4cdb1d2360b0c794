"""Which modules are completely imported: the parts of a half-imported module must not be changed or frozen.

Another thread of the session may be in the middle of an import, and code may end one wherever it likes.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any, Final

_ended: Final[set[str]] = set()
"""Modules whose code has finished, although the interpreter does not say so yet."""


def begin(name: str) -> None:
    """Record that the code of a module is about to run."""
    _ended.discard(name)


def end(name: str) -> None:
    """Record that the code of a module has finished."""
    _ended.add(name)


def whole(name: str) -> Any:
    """Return the module with that name; None if it has not been imported, or not completely."""
    module = sys.modules.get(name)
    if name not in _ended and isinstance(module, types.ModuleType):
        spec = vars(module).get("__spec__")
        return None if getattr(spec, "_initializing", False) else module
    return module


def came_since(done: dict[str, object]) -> Iterator[types.ModuleType]:
    """Yield the complete modules that are not ``done``; each counts as done when the next one is requested.

    They are compared by identity: after a failed import, a module of the same name comes again as another one.
    """
    # Nearly all are done each time, so the loop's cost for each of them matters.
    for name in [name for name, module in list(sys.modules.items()) if done.get(name) is not module]:
        module = sys.modules.get(name)
        if done.get(name) is not module and isinstance(module, types.ModuleType) and whole(name) is module:
            yield module
            done[name] = module
