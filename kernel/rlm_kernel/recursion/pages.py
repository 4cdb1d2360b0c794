"""How a variable is read whole: pages of so many lines and characters, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CHARS", "LINES", "after"]

LINES, CHARS = 20_000, 500_000


def after(page: Mapping[str, Any]) -> int | None:
    """Return where the next page begins; None when there is none, or a line is longer than a page."""
    return page["next_offset"] if page["has_more"] and "cut_line" not in page else None
