"""Which lines a process keeps as a plain list: those that a cell goes through again and again, until it ends.

Making strings of lines costs about as much as an ordinary loop over them; keeping them costs more memory than the text.
So nothing is kept between cells, where copies of the process would have it too, nor beyond a part of what the session
may use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lines import Lines

_SHARE = 4  # kept lists take at most this part of a session's memory
_STRING = 72  # bytes that a string and its place in a list take beside its characters
_SPARSE = 2  # of a text that is not all ASCII: bytes in memory for one of UTF-8, about


class Keeper:
    """The lists that this process keeps: none before it is told for how much memory."""

    def __init__(self) -> None:
        self._most = self._used = 0
        self._holders: list[Lines] = []

    def allow(self, memory: int) -> None:
        """Keep lists in a part of so many bytes, which the session may use."""
        self._most = memory // _SHARE

    def admit(self, lines: Lines, size: int, *, pure_ascii: bool) -> bool:
        """Whether the strings of `lines`, of `size` bytes of UTF-8, may be kept; if so, until `release`."""
        cost = size * (1 if pure_ascii else _SPARSE) + len(lines) * _STRING
        if self._used + cost > self._most:
            return False
        self._used += cost
        self._holders.append(lines)
        return True

    def release(self) -> None:
        """Let go of all of them."""
        self._used = 0
        while self._holders:
            self._holders.pop().forget()


KEEPER = Keeper()
"""Of this process."""
