"""The text output of one cell: gathered, published in pieces, and cut at the policy's cap, with all of it in a file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

STREAM_NAMES = {b"o": "stdout", b"e": "stderr"}
GATHER_SECONDS = 0.05

log = logging.getLogger(__name__)


class CellOutput:
    """The text of one cell.

    ``cap`` bytes of stdout and stderr together are shown. Longer output goes in full to the file ``spool``, up to
    ``spool_cap`` bytes, or is only counted if ``spool`` is None. ``publish(stream, text)`` gets the shown text, joined
    over some milliseconds: otherwise a loop that prints would send a message for every line.
    """

    def __init__(self, cap: int, spool: str | None, spool_cap: int, publish: Callable[[str, str], None]) -> None:
        self.cap, self.spool, self.spool_cap = cap, spool, spool_cap
        self.publish = publish
        self.published = True
        """Whether watchers should see what is written now; an earlier supervisor may have shown it already."""
        self.total = 0
        self.truncated = False
        self.shown: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._order: list[bytes] = []
        self._pending: list[tuple[str, bytes]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._file: BinaryIO | None = None
        self._spooled = 0

    def write(self, tag: bytes, data: bytes) -> None:
        """Take the bytes that code wrote to a stream."""
        if not data:  # a kernel that keeps writing nothing must not fill the lists below
            return
        room = max(0, self.cap - self.total)
        self.total += len(data)
        if self._file is not None:
            self._keep(data)
        elif room >= len(data) and self.spool is not None:
            self._order.append(data)
        if room >= len(data):
            self._show(STREAM_NAMES[tag], data)
        elif not self.truncated:
            self._cut(STREAM_NAMES[tag], data, room)

    def _cut(self, stream: str, data: bytes, room: int) -> None:
        self.truncated = True
        head = data[:room].decode("utf-8", "ignore").encode()
        self._show(stream, head)
        self._show(stream, f"\n[output cut: the limit of {self.cap:,} bytes for one cell is reached]\n".encode())
        if self.spool is not None:
            try:
                path = Path(self.spool)  # created only here, not for each cell
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("wb")
            except OSError as error:  # a full disk loses the rest of the output, not the cell
                log.warning("the full output of a cell cannot be kept: %s", error)
            for piece in (*self._order, data):
                self._keep(piece)
        self._order.clear()

    def _keep(self, data: bytes) -> None:
        if self._file is None:
            return
        piece = data[: max(0, self.spool_cap - self._spooled)]
        try:
            self._file.write(piece)
            self._spooled += len(piece)
        except OSError as error:
            log.warning("the output of a cell cannot be kept: %s", error)
            self.spool_cap = 0

    def _show(self, stream: str, data: bytes) -> None:
        self.shown[stream].append(data)
        if not self.published:
            return
        self._pending.append((stream, data))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self.flush)

    def flush(self) -> None:
        """Publish what has gathered, stream by stream in the order in which it was written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        while pending:
            stream = pending[0][0]
            run = 0
            while run < len(pending) and pending[run][0] == stream:
                run += 1
            self.publish(stream, b"".join(data for _, data in pending[:run]).decode("utf-8", "replace"))
            del pending[:run]

    def text(self, stream: str) -> str:
        """Return the shown part of ``stdout`` or ``stderr``, with a marker where it was cut."""
        return b"".join(self.shown[stream]).decode("utf-8", "replace")

    def close(self) -> Path | None:
        """Flush. Return the file that holds the whole output, if it was cut and kept."""
        self.flush()
        if self._file is None:
            return None
        try:
            self._file.close()
        except OSError as error:
            log.warning("the output of a cell cannot be kept: %s", error)
            self._spooled = 0
        self._file = None
        return None if self.spool is None else Path(self.spool)

    def miss(self, count: int) -> None:
        """Record that this many bytes were written and lost."""
        self.truncated, self.total = True, self.total + count
        self._show("stderr", f"\n[{count:,} bytes of output were lost with the supervisor]\n".encode())

    @property
    def spool_complete(self) -> bool:
        """True if the file holds every byte that was written."""
        return self._spooled == self.total
