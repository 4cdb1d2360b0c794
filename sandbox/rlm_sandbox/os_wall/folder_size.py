"""How much is on disk in a folder that a session may write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

SMALLEST_ENTRY_BYTES = 4096
"""The size of an empty file or folder, so that a million of them do not count as nothing."""

_BLOCK_BYTES = 512


def folder_bytes(folder: Path, *, stop_at: int) -> int:
    """Return the bytes on disk of everything in ``folder``; counting ends as soon as ``stop_at`` is reached.

    The folder belongs to a session that may be hostile while we look: symbolic links are not followed, entries may
    vanish, and a path too long to look at counts as ``stop_at``.
    """
    total = 0
    folders = [os.fspath(folder)]
    while folders and total < stop_at:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    used = entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    total += max(used, SMALLEST_ENTRY_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    if total >= stop_at:
                        return total
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return stop_at
    return total
