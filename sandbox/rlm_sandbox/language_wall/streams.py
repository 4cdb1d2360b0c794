"""What user code gets for ``sys.stdout`` and ``sys.stderr``: text methods and nothing behind them."""

from __future__ import annotations

import builtins
import io
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any


class SafeStream:
    """Writes to a stream without leading to it: a kernel's stream holds its session and its sockets."""

    __slots__ = ("_flush", "_waiting", "_write", "encoding", "errors", "name")

    mode = "w"
    closed = False
    newlines = None
    line_buffering = False

    def __init__(self, real: Any, name: str) -> None:
        self._write: Callable[[str], Any] = real.write
        self._flush: Callable[[], Any] = real.flush
        self._waiting: deque[str] = deque()
        self.encoding = "utf-8"
        self.errors = "strict"
        self.name = name

    def write(self, text: str, /) -> int:
        """Write text. Return the number of characters."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._waiting.append(str.__str__(text))
        self._hand_on()
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        """Write each of the lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Pass on what was written."""
        self._flush()

    def isatty(self) -> bool:
        """Return False: there is no terminal."""
        return False

    def writable(self) -> bool:
        """Return True: text can be written."""
        return True

    def readable(self) -> bool:
        """Return False: nothing can be read."""
        return False

    def seekable(self) -> bool:
        """Return False: there is no position."""
        return False

    def fileno(self) -> int:
        """Refuse: there is no descriptor."""
        raise io.UnsupportedOperation("fileno")

    def close(self) -> None:
        """Do nothing: the stream is the kernel's and stays open."""

    def _print(self, values: Iterable[object], sep: str, end: str) -> None:
        """Write the values' texts in one piece; if a value raises, write those before it."""
        try:
            for number, value in enumerate(values):
                if number:
                    self._waiting.append(sep)
                self._waiting.append(str(value))  # what this prints itself comes after what waits
            self._waiting.append(end)
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        taken = []
        try:
            while True:
                taken.append(self._waiting.popleft())
        except IndexError:  # rather than a check before each: another thread may take what is there
            pass
        if taken:
            self._write("".join(taken))


def safe_stream(real: Any) -> SafeStream:
    """Return a stream that writes to ``real`` and exposes nothing else of it."""
    name = getattr(real, "name", "stdout")
    return SafeStream(real, name if isinstance(name, str) else "stdout")


def print(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:  # noqa: A001
    """Act as ``print`` of the session: the output of one call leaves in one piece."""
    # Python's own writes each value, and each space between two, separately. Here a write is a message.
    stream = sys.stdout if file is None else file
    if type(stream) is SafeStream and type(sep) is str and type(end) is str:
        stream._print(values, sep, end)
        if flush:
            stream.flush()
    else:
        builtins.print(*values, sep=sep, end=end, file=file, flush=flush)


print.__doc__ = builtins.print.__doc__
