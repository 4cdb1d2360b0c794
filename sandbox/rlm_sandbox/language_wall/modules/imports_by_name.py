"""Libraries that import a module whose name is data: a session may only name what its policy admits, if it exists.

The name is that of a backend for pictures, an option, or an attribute of the `ImportError` that a traceback shows.
These modules get another ``importlib`` and another ``__import__``. A name that no module of theirs has reveals nothing.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import is_armed
from rlm_sandbox.language_wall.modules.late_imports import LATE

_MODULES: Final = ("matplotlib.backends.registry", "matplotlib.pyplot", "pandas.plotting._core")
_FOR_ALL: Final = frozenset({"matplotlib_inline"})
"""The backend of notebooks, which every kernel with matplotlib uses."""


def harden_imports() -> None:
    """Change the modules that have been imported."""
    for name in _MODULES:
        namespace: Any = vars(sys.modules[name]) if name in sys.modules else {}
        if namespace.get("importlib") is importlib:
            namespace["importlib"] = _STANDS_IN
    if "traceback" in sys.modules:
        vars(sys.modules["traceback"])["__import__"] = _imported


def _import(name: Any, package: Any = None) -> types.ModuleType:
    if is_armed():
        if type(name) is not str or package is not None:
            raise ImportError("a library imports no module that is named so in this session")
        top = name.partition(".")[0]
        if name not in sys.modules and top not in _FOR_ALL and not LATE.admits(top):
            raise ImportError(f"a library may not import '{name}' for this session: its policy does not admit it")
    return importlib.import_module(name, package)


def _imported(name: Any) -> types.ModuleType:
    """Act as ``__import__`` for `traceback`, which looks for names similar to a missing one."""
    if type(name) is not str or name not in sys.modules:
        raise ImportError("no module of that name has been imported")
    return sys.modules[name]


_STANDS_IN: Final = types.ModuleType("importlib")  # of this type, so that no copy of a module provides it
vars(_STANDS_IN).update(import_module=_import, __getattr__=lambda name: getattr(importlib, name))
