"""How a variable is read whole: pages of so many characters, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CHARS", "MOST_ITEMS", "after"]

CHARS = 500_000
MOST_ITEMS = 10
"""Items of a dictionary that are read one by one."""


def after(page: Mapping[str, Any]) -> int | None:
    """Return where the next page begins; None when there is none, or a line is longer than a page."""
    return page["next_offset"] if page["has_more"] and "cut" not in page else None
