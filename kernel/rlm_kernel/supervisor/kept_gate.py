"""A fork gate whose attempts outlive the supervisor that has received them.

The system gives each attempt out once. Whoever made it then waits for the answer, and no signal but SIGKILL ends that
wait. So the attempt is received into memory that the keeper holds, too. The system itself writes it there, within the
call that receives it: at no instant does only a process know of it that may die.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
from collections.abc import Callable

from rlm_sandbox.os_wall import fork_notifier, libc
from rlm_sandbox.os_wall.fork_notifier import ForkGate, Refused

_BYTES = ctypes.sizeof(fork_notifier._Notification)


def new_memory() -> int:
    """A descriptor of memory for one attempt."""
    fd = os.memfd_create("gate", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class KeptGate(ForkGate):
    """A gate that receives into ``memory``, a descriptor of `new_memory`; it stays the caller's.

    The first thing that it answers is the attempt that an earlier supervisor has ``left`` there. Nobody knows whether
    that one would have let it through, so it is refused.
    """

    def __init__(self, fd: int, memory: int, on_refusal: Callable[[Refused], None] | None = None) -> None:
        super().__init__(fd, on_refusal)
        self._memory = mmap.mmap(memory, _BYTES)
        self.left = any(self._memory[:_BYTES])

    def answer(self, allow: bool | Callable[[int], bool], *, pid: int | None = None) -> bool:
        """Answer the attempt that was left, or receive one and answer it."""
        if self.left:
            allow = False
        allowed = super().answer(allow, pid=pid)
        self.left = False
        self._memory[:_BYTES] = bytes(_BYTES)  # the system receives into empty memory only
        return allowed

    def _receive(self) -> fork_notifier._Notification | None:
        attempt = fork_notifier._Notification.from_buffer(self._memory)
        if self.left:
            return attempt
        poll = select.poll()  # the call that receives waits for an attempt, even on a descriptor that does not block
        poll.register(self.fileno(), select.POLLIN)
        events = poll.poll(0)
        self.hung_up = any(event & select.POLLHUP for _, event in events)
        if not any(event & select.POLLIN for _, event in events):
            return None
        try:
            libc.ioctl(self.fileno(), fork_notifier._RECEIVE, attempt)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the caller has gone between the two calls
                raise
            return None
        return attempt
