"""The path to a file: every directory entry on it, and which of them others could redirect."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath

__all__ = ["link_below", "way_to"]

_MOST_LINKS = 40
"""Symbolic links that Linux follows in one path."""


def link_below(path: str | PurePath, folders: Collection[str]) -> str | None:
    """Return the first symbolic link on the path to ``path`` that is below one of ``folders``, which are real paths."""
    for entry in way_to(path):
        inside = any(entry != folder and PurePath(entry).is_relative_to(folder) for folder in folders)
        if inside and os.path.islink(entry):
            return entry
    return None


def way_to(file: str | PurePath) -> Iterator[str]:
    """Yield every directory entry that is looked up to open a file, in order; symbolic links are followed."""
    here, links = "/", 0
    left = deque(Path(os.path.abspath(file)).parts[1:])
    while left:
        part = left.popleft()
        if part == "..":
            here = os.path.dirname(here)
            continue
        entry = os.path.join(here, part)
        yield entry
        if not os.path.islink(entry):
            here = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        target = Path(os.readlink(entry))
        here = "/" if target.is_absolute() else here
        left.extendleft(reversed([name for name in target.parts if name != "/"]))
