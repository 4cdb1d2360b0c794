"""Read a file that somebody else may have replaced by a link, a pipe or a device."""

from __future__ import annotations

import os
import stat

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular(path: str | bytes, most: int, *, folder: int | None = None) -> bytes | None:
    """Return the first bytes of a regular file; None if it cannot be read, or is none. A folder is given open."""
    try:
        return read_existing(path, most, folder=folder)
    except OSError:
        return None


def read_existing(path: str | bytes, most: int, *, folder: int | None = None) -> bytes | None:
    """Return the first bytes of a regular file; None if there is none. Raises OSError if it cannot be read."""
    try:
        fd = os.open(path, _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        # One system call may return less than there is, on a file server or when a signal comes.
        with open(fd, "rb", closefd=False) as file:
            # Python reserves all that it is asked for. A file may have grown, and those of the system have no size.
            content = file.read(min(most, status.st_size + 1))
            return content + file.read(most - len(content)) if len(content) > status.st_size else content
    finally:
        os.close(fd)
