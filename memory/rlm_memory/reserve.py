"""Disk space reserved for deleting: SQLite records what it deletes, which it could not do on a full disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BYTES = 1 << 20
_PIECE = bytes(64 << 10)


class Reserve:
    """A file of one megabyte, or as much as fits, that is given up for a while."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def give(self) -> None:
        """Give up the reserved space."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def take(self) -> None:
        """Reserve as much space as there is, unless it is already reserved."""
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                while os.fstat(file).st_size < BYTES:
                    os.write(file, _PIECE)
            finally:
                os.close(file)
