"""Pins on what is being loaded: from the moment a text is stored to the moment something refers to it.

Between the two only the loader knows about the text, and a collector would think that nobody wants it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from rlm_contexts.store import files


class _Pins:
    """Descriptors that are closed together; later ones are closed at once."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._lock = threading.Lock()
        self._over = False

    def add(self, fd: int) -> None:
        with self._lock:
            self._fds.append(fd)
        if self._over:  # the caller that waited for the load has given up
            self.close()

    def close(self) -> None:
        self._over = True
        with self._lock:
            while self._fds:
                os.close(self._fds.pop())


_CURRENT: ContextVar[_Pins | None] = ContextVar("pins", default=None)


@contextmanager
def holding() -> Iterator[None]:
    """Keep what this task and its threads store or look up, until the end of the block."""
    pins = _Pins()
    before = _CURRENT.set(pins)
    try:
        yield
    finally:
        _CURRENT.reset(before)
        pins.close()


def hold(root: Path, digest: str) -> None:
    """Take a pin on a stored text for the enclosing block, if there is one."""
    pins = _CURRENT.get()
    if pins is not None and (fd := files.pin(files.text_path(root, digest))) is not None:
        pins.add(fd)


def hold_draft(fd: int) -> None:
    """Turn the lock on a draft, which has just got its name, into a pin for the enclosing block."""
    pins = _CURRENT.get()
    if pins is not None:
        fcntl.flock(fd, fcntl.LOCK_SH)
        pins.add(os.dup(fd))  # the lock belongs to the open file, and stays when the draft is closed
