"""Pipes that the supervisor and the keeper hold: the holders of the other end are ended when both release theirs."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Self

_F_SETSIG = 10


class HeldPipe:
    """The writing end of a pipe, ``held`` for the processes of a session that the supervisor knows."""

    def __init__(self) -> None:
        """Raises OSError when there is no descriptor left."""
        self._reading, self.held = os.pipe()
        self._holders = 1

    @classmethod
    def of(cls, held: int) -> Self:
        """Return the pipe of a writing end, and take ownership of it."""
        pipe = cls.__new__(cls)
        pipe._reading, pipe.held, pipe._holders = -1, held, 1
        return pipe

    def hand_over(self) -> int:
        """Return the reading end; the caller owns it from here on."""
        handed, self._reading = self._reading, -1
        return handed

    def share(self) -> Self:
        """Return the same pipe for another process, which must `release` it."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Give up one hold."""
        self._holders -= 1
        if self._holders == 0:
            os.close(self.held)
            if self._reading >= 0:
                os.close(self._reading)


class Space(HeldPipe):
    """A pin on a pid namespace.

    The namespace's init process waits for the end of the pipe. Then it ends, and the system kills every process in the
    namespace with it. So a process that a worker forked without permission cannot outlive its session.
    """


class Tether(HeldPipe):
    """What a session's process group hangs on: closing the pipe kills all while a member holds the reading end.

    It is a pipe, because on a socket a member that waits for input would keep the signal from all. Each group has its
    own: a process that holds one end of a pipe can open the other (``/proc/self/fd``), and a writer sends the signal.
    """

    def __init__(self, group: int) -> None:
        """Raises OSError when there is no descriptor left, or no such group."""
        super().__init__()
        try:
            fcntl.fcntl(self._reading, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self._reading, _F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self._reading, fcntl.F_SETFL, os.O_RDONLY | os.O_NONBLOCK | os.O_ASYNC)
        except OSError:
            self.release()
            raise
