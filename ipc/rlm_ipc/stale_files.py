"""What kernels leave in the runtime folder: sockets, connection files, scratch and spool files.

If a supervisor was killed and its kernels ended with it, nobody owns these files. The next supervisor holds the
folder's lock and removes them. It lists them before it starts anything, so this module imports little.
"""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlm_ipc.kernel_reports import KernelInfo

ZYGOTE = "z"
"""The temporary folder of zygotes."""
FOLDERS = ("k", "connections", "scratch", "spool", ZYGOTE)


def find(runtime: str | os.PathLike[str]) -> list[str]:
    """List the contents of our folders; called before anything new is put into them."""
    found: list[str] = []
    for name in FOLDERS:
        folder = os.path.join(runtime, name)
        with suppress(OSError):
            found += (os.path.join(folder, entry) for entry in os.listdir(folder))
    return found


def remove(paths: Iterable[str]) -> None:
    """Remove files and folders; what cannot be removed is left for the next time."""
    from rlm_ipc.folder_removal import remove_folder

    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            remove_folder(path)
        else:
            with suppress(OSError):
                os.unlink(path)


def remove_of(kernel: KernelInfo, *, keep_scratch: bool) -> None:
    """Remove what an ended kernel leaves: its connection file, and its scratch folder unless a fork uses it."""
    from rlm_ipc.folder_removal import remove_folder

    if not keep_scratch:
        remove_folder(kernel.scratch)
    if kernel.connection_file:
        with suppress(FileNotFoundError):
            os.unlink(kernel.connection_file)
