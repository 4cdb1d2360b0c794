"""Removing a folder that a session could write to, whatever it contains."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress

_REAL_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Remove ``folder``, however deep it is and whatever its permissions are; what cannot be removed stays.

    `shutil.rmtree` calls itself for each level before Python 3.13. Here deep folders are moved up and emptied there. No
    symbolic link is followed, even if one is placed there in the meantime.
    """
    with suppress(OSError):
        top = _opened(os.fspath(folder), None)
        try:
            waiting = _emptied(top, top)
            while waiting:
                name = waiting.pop()
                with suppress(OSError):
                    place = _opened(name, top)
                    try:
                        waiting += _emptied(place, top)
                    finally:
                        os.close(place)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(folder)


def _opened(name: str, above: int | None) -> int:
    """Open a folder, and let its owner list and change it: otherwise it could not even be moved."""
    place = os.open(name, os.O_PATH | _REAL_FOLDER, dir_fd=above)
    try:
        itself = f"/proc/self/fd/{place}"
        os.chmod(itself, 0o700)
        return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)


def _emptied(folder: int, top: int) -> list[str]:
    """Remove the files of an open folder, and move its folders into ``top``. Return their names there."""
    names = []
    with os.scandir(folder) as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in inside:
        with suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
            elif folder == top:
                names.append(name)
            else:
                os.close(_opened(name, folder))
                names.append(uuid.uuid4().hex)
                os.rename(name, names[-1], src_dir_fd=folder, dst_dir_fd=top)
    return names
