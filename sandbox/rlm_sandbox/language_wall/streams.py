"""What user code gets for ``sys.stdout`` and ``sys.stderr``: text methods and nothing behind them."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any


class SafeStream:
    """Writes to a stream without leading to it: a kernel's stream holds its session and its sockets."""

    __slots__ = ("_flush", "_write", "encoding", "errors", "name")

    mode = "w"
    closed = False
    newlines = None
    line_buffering = False

    def __init__(self, real: Any, name: str) -> None:
        self._write: Callable[[str], Any] = real.write
        self._flush: Callable[[], Any] = real.flush
        self.encoding = "utf-8"
        self.errors = "strict"
        self.name = name

    def write(self, text: str, /) -> int:
        """Write text; returns the number of characters."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._write(str.__str__(text))
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        """Write each of the lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand on what was written."""
        self._flush()

    def isatty(self) -> bool:
        """No terminal is there."""
        return False

    def writable(self) -> bool:
        """Text can be written."""
        return True

    def readable(self) -> bool:
        """Nothing can be read."""
        return False

    def seekable(self) -> bool:
        """There is no position."""
        return False

    def fileno(self) -> int:
        """There is no descriptor."""
        raise io.UnsupportedOperation("fileno")

    def close(self) -> None:
        """The stream is the kernel's: it stays open."""


def safe_stream(real: Any) -> SafeStream:
    """A stream that writes to ``real`` and gives nothing else of it."""
    name = getattr(real, "name", "stdout")
    return SafeStream(real, name if isinstance(name, str) else "stdout")


def print(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:  # noqa: A001
    """``print`` of the session: what one call prints leaves in one piece."""
    # Python's own writes each value, and each space between two, by itself. Here a write is a message.
    stream = sys.stdout if file is None else file
    if type(stream) is SafeStream and type(sep) is str and type(end) is str and _are_plain(values):
        try:
            text = sep.join(map(str, values)) + end
        except ValueError:  # an int of too many digits: the values before it are printed
            pass
        else:
            stream.write(text)
            if flush:
                stream.flush()
            return
    builtins.print(*values, sep=sep, end=end, file=file, flush=flush)


print.__doc__ = builtins.print.__doc__


def _are_plain(values: Iterable[object]) -> bool:
    """Whether no code of a session runs to make text of them: it could print too, and what comes first would change."""
    for value in values:
        kind = type(value)
        if kind is not str and kind is not int and kind is not float and kind is not bool and kind is not NoneType:
            return False
    return True
