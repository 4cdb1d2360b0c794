"""What a session has lost with a process of its, as its callers are told."""

from __future__ import annotations


def in_words(lost: int, in_cell: bool) -> str:
    """``lost`` completed cells (-1: every variable), noticed ``in_cell`` or between two."""
    if lost < 0:
        return "its variables are lost; loaded contexts are there again"
    if lost:
        return f"variables are as they were {lost} completed cell(s) earlier"
    return "variables are as they were before this cell" if in_cell else "no variable was lost"
