"""Replaces functions of libraries in the libraries themselves, each of them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_made: Final[list[object]] = []
"""The replacements."""


def replace_in(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute of a module or class by ``make(attribute)``, unless it has been replaced already."""
    real = vars(owner)[name]
    if not any(real is made for made in _made):
        made = make(real)
        _made.append(made)
        setattr(owner, name, made)
