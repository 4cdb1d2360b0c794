"""The process numbers that the kernels of a private session have for themselves, as the supervisor holds them."""

from __future__ import annotations

import os


class Space:
    """A pin: the first process of these numbers ends, and with it all that bear them, once nobody holds the space.

    Each process that the supervisor knows there holds it. So what a kernel has forked unasked does not outlive its
    session, nor the supervisor.
    """

    def __init__(self) -> None:
        """Raises OSError when there is no descriptor left."""
        self._reading, self._pin = os.pipe()
        self._holders = 1

    def hand_over(self) -> int:
        """The descriptor for the first process, which is the caller's from here on."""
        handed, self._reading = self._reading, -1
        return handed

    def share(self) -> Space:
        """The same space for another process, which has to `release` it."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Have nothing to do with it any more."""
        self._holders -= 1
        if self._holders == 0:
            os.close(self._pin)
            if self._reading >= 0:
                os.close(self._reading)
