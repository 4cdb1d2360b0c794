"""Finding a value's class without asking the value or its class."""

from __future__ import annotations

from collections.abc import Container


def one_of(kind: type, kinds: Container[type]) -> bool:
    """Return whether a class is one of some built-in ones.

    No other class's metaclass is asked: it may be a session's.
    """
    return type(kind) is type and kind in kinds
