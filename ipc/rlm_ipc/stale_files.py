"""What kernels leave in the runtime folder: sockets, connection files, scratch and spool files.

If a supervisor was killed and its kernels ended with it, nobody owns these files. The next supervisor holds the
folder's lock and removes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rlm_ipc.folder_removal import remove_folder
from rlm_ipc.kernel_reports import KernelInfo

ZYGOTE = "z"
"""The temporary folder of zygotes."""
FOLDERS = ("k", "connections", "scratch", "spool", ZYGOTE)


def find(runtime: Path) -> list[Path]:
    """List the contents of our folders; called before anything new is put into them."""
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


def remove_of(kernel: KernelInfo, *, keep_scratch: bool) -> None:
    """Remove what an ended kernel leaves: its connection file, and its scratch folder unless a fork uses it."""
    if not keep_scratch:
        remove_folder(Path(kernel.scratch))
    if kernel.connection_file:
        Path(kernel.connection_file).unlink(missing_ok=True)
