"""A fork gate whose attempts outlive the supervisor that received them.

The system delivers each attempt once. The process that made it waits for the answer, and no signal but SIGKILL ends
that wait. So the attempt is received into memory that the keeper holds, too. The system itself writes it there, within
the call that receives it: at no instant is it known only to a process that may die.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

from rlm_sandbox.os_wall.fork_notifier import ForkGate, Notification, Refused

_BYTES = ctypes.sizeof(Notification)


def new_memory() -> int:
    """Return a descriptor of memory for one attempt."""
    fd = os.memfd_create("gate", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class KeptGate(ForkGate):
    """A gate that receives into ``memory``, a descriptor of `new_memory`, which the caller owns.

    It first answers the attempt that an earlier supervisor has ``left`` there. Nobody knows whether that one would have
    let it through, so it is refused.
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

    def _receive(self) -> Notification | None:
        return self._blank() if self.left else super()._receive()

    def _blank(self) -> Notification:
        return Notification.from_buffer(self._memory)
