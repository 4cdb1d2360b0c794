"""Whether stored files are still what was stored: verified against their hash once, and again when they have changed.

A file counts as unchanged while its inode, size and time of change (nanoseconds) are those of the last check. The
store's own files are never written again, so anything else means that another program, or the disk, has changed them.
"""

from __future__ import annotations

import os
import threading

import xxhash

from rlm_contexts.errors import ContentDamaged
from rlm_contexts.store.files import pieces_of
from rlm_contexts.text.model import StoredText

DATA_SEED = 1
"""A file that is not a text is hashed with another seed: its hash is never that of a text with the same bytes."""

_State = tuple[int, int, int, int]


def is_sound(fd: int, digest: str, *, data: bool) -> bool:
    """Return whether an open file has the hash in its name; ``data``: it is not a text."""
    found = xxhash.xxh3_128(seed=DATA_SEED if data else 0)
    for piece in pieces_of(fd):
        found.update(piece)
    return found.hexdigest() == digest.partition("-")[0]


class Soundness:
    """The files of one store that were found sound, with their status at that time. For any number of threads."""

    def __init__(self) -> None:
        self._found: dict[str, _State] = {}
        self._lock = threading.Lock()

    def note(self, fd: int, digest: str) -> None:
        """Record an open file, which was hashed as it was written, as sound."""
        with self._lock:
            self._found[digest] = _state(os.fstat(fd))

    def check(self, fd: int, stored: StoredText) -> None:
        """Verify the open file of a loaded text against its hash, unless that was done.

        Raises:
            ContentDamaged: It is not what was loaded.
        """
        state = _state(os.fstat(fd))
        if self._found.get(stored.digest) == state:
            return
        if not is_sound(fd, stored.digest, data=bool(stored.data)):
            with self._lock:
                self._found.pop(stored.digest, None)
            raise ContentDamaged(stored.digest)
        with self._lock:
            self._found[stored.digest] = state

    def is_current(self, status: os.stat_result, digest: str) -> bool:
        """Return whether a file is as it was when it was found sound."""
        return self._found.get(digest) == _state(status)

    def forget(self, digest: str) -> None:
        """Forget a text that is no longer stored."""
        with self._lock:
            self._found.pop(digest, None)


def _state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
