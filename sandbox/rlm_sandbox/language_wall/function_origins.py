"""Which module a function is from, by the identity of its globals: what a function says of itself decides nothing."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_METHODS = (staticmethod, classmethod, types.MethodType)
_known: dict[int, str] = {}
_counted = [0]
"""How many modules there were when `_known` was built."""


def module_of(function: Any) -> str:
    """Return the name under which a function's (or method's) module was imported; empty if unknown."""
    inner = function.__func__ if type(function) is types.MethodType else function
    if type(inner) is not types.FunctionType:
        return ""
    if _counted[0] != len(sys.modules):
        _known.clear()
        _known.update({id(vars(module)): name for name, module in list(sys.modules.items()) if _is_module(module)})
        _counted[0] = len(sys.modules)
    return _known.get(id(inner.__globals__), "")


def is_from(function: Any, package: str) -> bool:
    """Return whether a function is from a package, or a module of it."""
    name = module_of(function)
    return name == package or name.startswith(f"{package}.")


def functions_of(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Yield the functions that a module defines, including those of its classes."""
    namespace = vars(module)
    for value in list(namespace.values()):
        found = [value] if type(value) is types.FunctionType else []
        if isinstance(value, type):
            found = [part for part in map(_function_of, list(vars(value).values())) if part is not None]
        yield from (function for function in found if function.__globals__ is namespace)


def _function_of(part: Any) -> types.FunctionType | None:
    # The type decides, not what the part says of itself: it may import what it stands for, and fail.
    inner: Any = part.fget if type(part) is property else part
    inner = inner.__func__ if issubclass(type(inner), _METHODS) else inner
    with suppress(Exception):
        inner = object.__getattribute__(inner, "__dict__").get("__wrapped__", inner)
    return inner if type(inner) is types.FunctionType else None


def _is_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType)
