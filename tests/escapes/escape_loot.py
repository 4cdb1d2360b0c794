"""What a session must never hold, and how to tell."""

from __future__ import annotations

import builtins
import os
import sys
import types
from typing import Any, Final

from rlm_sandbox.language_wall.guards.classes import SafeType
from rlm_sandbox.language_wall.registry import HIDDEN, is_sanitised

SECRET: Final = "the host's secret"
"""The contents of the file, and of the environment variable, that no case may learn."""
ESCAPED: Final = "ESCAPED"
"""What a case puts into ``loot`` when it has seen for itself that it got out."""

_ORIGINALS: Final = (
    builtins.eval,
    builtins.exec,
    builtins.compile,
    builtins.open,
    builtins.getattr,
    builtins.setattr,
    builtins.delattr,
    builtins.vars,
    builtins.globals,
    builtins.locals,
    builtins.__import__,
    builtins.__build_class__,
)
"""What goes by the session's rules when code of the session calls it: see `must_be_tried`."""
_RAW_FUNCTIONS: Final = (
    *_ORIGINALS,
    object.__getattribute__,
    type.__getattribute__,
    object.__setattr__,
    type.__setattr__,
    os.system,
    os.popen,
    sys._getframe,
)
_RAW_TYPES: Final = (types.FrameType, types.CodeType, types.CellType)
_MODULES: Final = (
    "subprocess",
    "socket",
    "ctypes",
    "posix",
    "_posixsubprocess",
    "_ctypes",
    "_socket",
    "pickle",
    "_pickle",
)


def capability(value: Any) -> str:
    """Name what a session must never hold; empty for a harmless value."""
    kind = type(value)
    if kind is types.ModuleType or issubclass(kind, types.ModuleType):
        return "" if is_sanitised(value) else f"module {value.__name__}"
    if kind in _RAW_TYPES:
        return f"a {kind.__name__}"
    if issubclass(kind, type):
        return _capability_of_class(value)
    if any(value is raw for raw in _RAW_FUNCTIONS):
        return f"the raw {value.__name__}"
    if kind in (dict, types.MappingProxyType):
        raw = dict(value).get("__builtins__")
        held = raw is builtins or (isinstance(raw, dict) and raw.get("eval") is builtins.eval)
        return "a library's globals" if held or value.get("eval") is builtins.eval else ""
    if issubclass(kind, str | bytes | bytearray):
        return holds_secret(value)
    owner = getattr(value, "__self__", None)
    if isinstance(owner, types.ModuleType) and owner.__name__ in _MODULES:
        return f"{owner.__name__}.{value.__name__}"
    return ""


def must_be_tried(value: Any) -> bool:
    """Whether a capability is one only if the session can do something with it: an original, or a raw metaclass."""
    return any(value is original for original in _ORIGINALS) or _is_raw_metaclass(value)


def _is_raw_metaclass(value: Any) -> bool:
    hidden = issubclass(type(value), type) and issubclass(value, type) and value in HIDDEN
    return value is type or (hidden and value is not SafeType)


def _capability_of_class(value: Any) -> str:
    if _is_raw_metaclass(value):
        return "the raw metaclass"
    return f"class {value.__module__}.{value.__name__}" if value.__module__ in _MODULES else ""


def holds_secret(value: str | bytes | bytearray) -> str:
    """Whether a text has the secret in it, or says that the case got out."""
    plain = str.__str__(value) if isinstance(value, str) else bytes(value).decode(errors="replace")
    return "the secret" if SECRET in plain else ESCAPED if plain == ESCAPED else ""
