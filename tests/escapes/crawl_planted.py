"""Holes that are made on purpose: a crawler that does not find them proves nothing by finding nothing else."""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable
from typing import Any, Final


def planted_module(value: Any = None) -> tuple[Any, ...]:
    """Give a real module, within something harmless."""
    return ("x", {"inner": sys})


def planted_namespace(value: Any) -> Any:
    """Compare a live namespace with what is handed in."""
    return vars(collections).__eq__(value) or types.MappingProxyType(vars(collections)) == value


def planted_frame(value: Any) -> Any:
    """Hand a frame to what is called."""
    return value(sys._getframe())


def planted_store(value: Any) -> None:
    """Store on whatever is handed in."""
    value.__dict__["__wrapped__"] = 1  # what a store does that asks nobody


def planted_decorator(value: Any) -> Callable[[Any], Any]:
    """Hold a live namespace back until what came back is called, twice."""
    return lambda _inner: lambda *_more: vars(collections)


PLANTED: Final = {
    function.__name__: function
    for function in (planted_module, planted_namespace, planted_frame, planted_store, planted_decorator)
}
EXPECTED: Final = {
    "planted_module": "module",
    "planted_namespace": "live namespace",
    "planted_frame": "interpreter",
    "planted_store": "poison",
    "planted_decorator": "live namespace",
}
"""What each of them is found as."""
