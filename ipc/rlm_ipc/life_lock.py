"""A file that a front locks for its whole life, so that a new daemon knows which clients of the last one are alive.

The system drops the lock however the process ends. Standard library only: part of the front.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress

from rlm_ipc.instance_lock import is_locked

_FOLDER = "fronts"
_NAME = re.compile(r"[0-9]{1,10}-[0-9a-f]{8}")
_held: dict[str, int] = {}
"""Descriptors by path: they stay open until the process ends."""


def is_name(name: str) -> bool:
    """Whether it is the name of such a file."""
    return _NAME.fullmatch(name) is not None


def hold(runtime: str) -> str:
    """Create and lock a file in the runtime folder. Return its name, or an empty string if that is impossible."""
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.makedirs(os.path.join(runtime, _FOLDER), mode=0o700, exist_ok=True)
        path = _path(runtime, name)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return ""
    _held[path] = descriptor
    return name


def let_go(runtime: str, name: str) -> None:
    """Remove the file of this process, which is ending."""
    if name:
        with suppress(OSError):
            os.unlink(_path(runtime, name))


def is_held(runtime: str, name: str) -> bool:
    """Whether the process that created the file is alive."""
    if not is_name(name):
        return False
    try:
        descriptor = os.open(_path(runtime, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    return is_locked(descriptor)


def remove_unheld(runtime: str) -> None:
    """Remove the files of processes that have ended."""
    with suppress(OSError):
        for name in os.listdir(os.path.join(runtime, _FOLDER)):
            if not is_held(runtime, name):
                let_go(runtime, name)


def _path(runtime: str, name: str) -> str:
    return os.path.join(runtime, _FOLDER, name)
