"""Which modules are there as a whole: what changes or freezes the parts of a module must not be done to half of one.

Another thread of the session may be in the middle of an import, and code may end one wherever it likes.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any, Final

_ended: Final[set[str]] = set()
"""Modules whose code has run to its end, though the interpreter has yet to say so."""


def begin(name: str) -> None:
    """Take note that the code of a module is about to run."""
    _ended.discard(name)


def end(name: str) -> None:
    """Take note that the code of a module has run."""
    _ended.add(name)


def whole(name: str) -> Any:
    """The module of that name; None if it has not been imported, or not to its end."""
    module = sys.modules.get(name)
    if name not in _ended and isinstance(module, types.ModuleType):
        spec = vars(module).get("__spec__")
        return None if getattr(spec, "_initializing", False) else module
    return module


def came_since(done: dict[str, object]) -> Iterator[types.ModuleType]:
    """The whole modules that are not ``done``; each is when the next one is asked for.

    They go by identity: a module whose import has failed comes again, as another one of the same name.
    """
    # Nearly all are done each time: what the loop does for each of them counts.
    for name in [name for name, module in list(sys.modules.items()) if done.get(name) is not module]:
        module = sys.modules.get(name)
        if done.get(name) is not module and isinstance(module, types.ModuleType) and whole(name) is module:
            yield module
            done[name] = module
