"""Room on the disk that is kept for deleting: SQLite writes down what it deletes, so on a full disk it could not."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BYTES = 1 << 20
_PIECE = bytes(64 << 10)


class Reserve:
    """A file of a megabyte, or of what there was room for, which is given up for a while."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def give(self) -> None:
        """Leave its room to others."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def take(self) -> None:
        """Take as much room as there is, unless it has that already."""
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                while os.fstat(file).st_size < BYTES:
                    os.write(file, _PIECE)
            finally:
                os.close(file)
