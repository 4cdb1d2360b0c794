"""The parts of the wall that `_core` watches: our modules and classes, and those of libraries that they run on.

A session that reaches one of them through a yet unknown hole may change it, so that the wall exists in name only. The
kernel checks before each cell, and ends if something has changed.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterator
from typing import Final

from rlm_sandbox.language_wall import _core
from rlm_sandbox.language_wall.frozen_functions import freeze_all
from rlm_sandbox.language_wall.function_origins import functions_of
from rlm_sandbox.language_wall.modules.late_imports import LATE
from rlm_sandbox.language_wall.modules.system import MADE_AGAIN
from rlm_sandbox.language_wall.modules.wall_in_force import IN_FORCE

_PACKAGES: Final = ("rlm_sandbox.language_wall",)
_OURS: Final = ("rlm_sandbox",)
_LIBRARIES: Final = (
    "RestrictedPython.transformer",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "ast",
    "contextlib",
)
"""What runs when a cell is compiled, or a module imported."""


_noted: Final[list[tuple[int, tuple[str, ...]]]] = []
"""How many modules there were when the parts were last recorded, and for which packages."""


def note(*packages: str) -> None:
    """Record the parts of the wall as they are, so that `seal` has little left to do; for the zygote."""
    mark_ours(*packages)
    watched = [*_modules(_PACKAGES), *(sys.modules[name] for name in _LIBRARIES if name in sys.modules)]
    parts: list[object] = []
    for module in watched:
        parts += [vars(module), *_classes(module), *functions_of(module)]
    _core.note(parts)
    _noted[:] = [(len(sys.modules), packages)]


def seal(*packages: str) -> None:
    """Allow only our code and that of ``packages`` to change the wall from now on."""
    in_force: list[object] = [vars(IN_FORCE), vars(LATE)]
    # Walking through all modules would write to each of their objects, and copy its page in a fork: 7 MB a session.
    if _noted != [(len(sys.modules), packages)] or not _core.seal(in_force):
        note(*packages)
        _core.seal(in_force)


def mark_ours(*packages: str) -> None:
    """Let our code call the originals directly: it decides for the session."""
    for module in _modules((*_PACKAGES, *packages)):
        for function in functions_of(module):
            _core.mark(function.__code__, _core.OURS)


def freeze() -> None:
    """Refuse stores on our classes, on those of the standard library, and on any function; for the zygote.

    A method of a library stores on whatever it gets as ``self``: `csv.DictWriter.__init__(type, ...)`.
    """
    roots = (*_OURS, *sys.stdlib_module_names)
    listed = [
        module
        for name, module in list(sys.modules.items())
        if name.split(".", maxsplit=1)[0] in roots or name in _LIBRARIES
    ]
    for module in (*listed, *MADE_AGAIN):
        for cls in _classes(module):  # one by one: our `type` equals the real one, a set would hold only one of them
            if cls is not weakref.finalize:  # it keeps its state in the class
                _core.freeze(cls)
    freeze_all()


def _modules(packages: tuple[str, ...]) -> Iterator[types.ModuleType]:
    for name, module in list(sys.modules.items()):
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            yield module


def _classes(module: types.ModuleType) -> list[type]:
    return [value for value in vars(module).values() if issubclass(type(value), type)]
