"""Saved variables as they lie in files: what a session needs to have them again, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.formats.snapshot import IMAGE, Archive, Missing


@dataclass(frozen=True, slots=True)
class SavedImage:
    """An image of ``size`` bytes, read by ``pieces``, which raises SnapshotRefused if they are not what was written.

    ``created_at`` is in epoch seconds. ``shadowed`` are contexts whose names are those of variables, with the revision
    of each.
    """

    created_at: float
    size: int
    pieces: Callable[[], Iterator[bytes]]
    shadowed: Mapping[str, int]
    missing: Sequence[Missing]


def image_in(archive: Archive) -> SavedImage:
    """Return the image in a snapshot; it has no bytes if the snapshot has no variables."""
    told = archive.manifest
    size = told.files[IMAGE].size if told.variables and IMAGE in told.files else 0
    return SavedImage(told.created_at, size, partial(archive.pieces, IMAGE), told.shadowed, told.missing)
