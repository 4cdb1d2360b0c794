"""A tree of frames as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_memory.frames.rows import FrameRow

__all__ = ["lines"]


def lines(found: Sequence[FrameRow], depth: int = 0) -> list[str]:
    """Return a line for each frame of a tree, its root first: each behind its parent, siblings by age.

    Frames of ``depth`` stand at the margin.
    """
    below: dict[int | None, list[FrameRow]] = {}
    for row in found[1:]:
        below.setdefault(row.parent, []).append(row)
    said: list[str] = []
    left = [found[0]]
    while left:
        row = left.pop()
        said.append(f"{'  ' * (row.depth - depth)}{row.id} {row.status} {row.goal[:120]}")
        left += reversed(below.get(row.key, []))
    return said
