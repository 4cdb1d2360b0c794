"""What a supervisor that was killed leaves in the runtime folder: sockets, connection files, scratch and spool files.

Its kernels ended with it, so nobody owns any of it. The next supervisor holds the folder's lock and removes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rlm_ipc.folder_removal import remove_folder

ZYGOTE = "z"
"""The temporary folder of zygotes."""
FOLDERS = ("k", "connections", "scratch", "spool", ZYGOTE)


def find(runtime: Path) -> list[Path]:
    """List what lies in our folders now; called before anything new is put into them."""
    found: list[Path] = []
    for name in FOLDERS:
        with suppress(OSError):
            found += (runtime / name).iterdir()
    return found


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders; what cannot be removed is left for the next time."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            with suppress(OSError):
                path.unlink()
