"""Functions of libraries that are replaced in the libraries themselves: each once, however often that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_made: Final[list[object]] = []
"""What has taken the place of a library's own."""


def replace_in(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` makes of the function that a module or a class has there in its place, unless that was done."""
    real = vars(owner)[name]
    if not any(real is made for made in _made):
        made = make(real)
        _made.append(made)
        setattr(owner, name, made)
