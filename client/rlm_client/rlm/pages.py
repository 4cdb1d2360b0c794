"""Reads a whole variable in pages of a fixed number of characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CHARS", "MOST_ITEMS", "after"]

CHARS = 500_000
MOST_ITEMS = 10
"""The most items of a dictionary that are read one by one."""


def after(page: Mapping[str, Any]) -> int | None:
    """Return the start of the next page; None if there is none, or if a line is longer than a page."""
    return page["next_offset"] if page["has_more"] and "cut" not in page else None
