"""Which class a value has, without asking the value or its class."""

from __future__ import annotations

from collections.abc import Container


def one_of(kind: type, kinds: Container[type]) -> bool:
    """Whether a class is one of some built-in ones. The metaclass of any other is not asked: it may be a session's."""
    return type(kind) is type and kind in kinds
