"""Read a file that somebody else may have replaced by a link, a pipe or a device."""

from __future__ import annotations

import os
import stat

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular(path: str | bytes, most: int, *, folder: int | None = None) -> bytes | None:
    """Return the first bytes of a regular file; None if it cannot be read, or is none. A folder is given open."""
    try:
        fd = os.open(path, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        # One system call may return less than there is, on a file server or when a signal comes.
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)
    except OSError:
        return None
    finally:
        os.close(fd)
