"""The pid namespace of a private session, as the supervisor holds it."""

from __future__ import annotations

import os


class Space:
    """A pin on a pid namespace, shared by all of its processes that the supervisor knows.

    The namespace's init process waits for the other end of the pipe. When the last holder closes it, or the supervisor
    and the keeper die, init ends, and the kernel kills every process in the namespace with it. So a process that a
    worker forked unasked cannot outlive its session.
    """

    def __init__(self) -> None:
        """Raises OSError when there is no descriptor left."""
        self._reading, self._pin = os.pipe()
        self._holders = 1

    @property
    def pin(self) -> int:
        """The descriptor that keeps the namespace."""
        return self._pin

    @classmethod
    def of(cls, pin: int) -> Space:
        """The space that a descriptor pins, which it takes over."""
        space = cls.__new__(cls)
        space._reading, space._pin, space._holders = -1, pin, 1
        return space

    def hand_over(self) -> int:
        """The descriptor for the init process; the caller owns it from here on."""
        handed, self._reading = self._reading, -1
        return handed

    def share(self) -> Space:
        """The same space for another process, which must `release` it."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Give up one hold on the namespace."""
        self._holders -= 1
        if self._holders == 0:
            os.close(self._pin)
            if self._reading >= 0:
                os.close(self._reading)
