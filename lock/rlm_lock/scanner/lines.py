"""The daemon's lines to a scanner, and the scanner's lines to it."""

from __future__ import annotations

import json
import os
import select

from rlm_ipc.json_lines import LineSplitter, Oversized
from rlm_ipc.messages import plain
from rlm_lock.protocol import AnswerLine

_LONGEST = 8 << 20
_PIECE = 1 << 16


class DaemonGone(Exception):
    """Nobody asks any more."""


class Lines:
    """Reads lines as they arrive, and writes answers."""

    def __init__(self, reading: int, writing: int) -> None:
        """Args: descriptors to read from and to write to."""
        self._reading, self._writing = reading, writing
        self._splitter, self._lines = LineSplitter(_LONGEST), list[bytes]()

    def next(self, seconds: float) -> bytes | None:
        """Return the next line; None if there is none within that time.  Raises: DaemonGone."""
        while not self._lines:
            if not select.select([self._reading], [], [], max(seconds, 0))[0]:
                return None
            piece = os.read(self._reading, _PIECE)
            if not piece:
                raise DaemonGone
            for line in self._splitter.feed(piece):
                self._lines.append(line.head if isinstance(line, Oversized) else line)
        return self._lines.pop(0)

    def say(self, line: AnswerLine) -> None:
        """Write one line.  Raises: DaemonGone."""
        data = json.dumps(plain(line), separators=(",", ":")).encode() + b"\n"
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._writing, view) :]
        except OSError as problem:
            raise DaemonGone from problem
