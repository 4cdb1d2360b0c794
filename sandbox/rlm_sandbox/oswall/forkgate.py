"""The host's side of process creation: a confined kernel forks only when the host lets it.

In a closed session clone(2) stops in the kernel and waits on a descriptor that only the host holds. When
the host has asked for a checkpoint it lets the call continue; whatever code in the kernel tries to fork on
its own gets EPERM. Copies inherit the filter, so one gate serves a kernel and all its copies.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Callable

from rlm_sandbox.oswall import libc

_CONTINUE = 1
# _IOWR('!', 0, struct seccomp_notif) and _IOWR('!', 1, struct seccomp_notif_resp)
_RECEIVE, _SEND = 0xC0502100, 0xC0182101


class _Notification(ctypes.Structure):
    """struct seccomp_notif, with struct seccomp_data in place."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("number", ctypes.c_int32),
        ("architecture", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 6),
    )


class _Response(ctypes.Structure):
    """struct seccomp_notif_resp."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("error", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class ForkGate:
    """Answers the forks of one confined kernel and its copies. Owns ``fd``; never blocks.

    Wait for `fileno` to become readable, then call `answer` once.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.hung_up = False
        """Every process behind the gate is gone: stop watching it and `close`."""

    def fileno(self) -> int:
        """The descriptor to watch for reading."""
        return self._fd

    def answer(self, allow: bool | Callable[[int], bool], *, pid: int | None = None) -> bool:
        """Receive one attempt to fork and answer it. True when a fork was let through.

        ``pid`` is the process that the host asked: an attempt by another process, or by a thread of it that
        is not its first, is refused whatever ``allow`` says. A function as ``allow`` is asked about the number
        of the attempting thread. False also when nobody is waiting (any more).

        The kernel must block signals around the forks it makes for the host: a signal that it handles ends
        the call with EINTR, or starts it anew after it was let through.
        """
        attempt = self._receive()
        if attempt is None:
            return False
        allowed = (allow(attempt.pid) if callable(allow) else allow) and pid in (None, attempt.pid)
        response = _Response(id=attempt.id, error=0 if allowed else -errno.EPERM, flags=_CONTINUE if allowed else 0)
        try:
            libc.ioctl(self._fd, _SEND, response)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return allowed

    def close(self) -> None:
        """Close the gate: from now on every fork behind it fails with ENOSYS."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _receive(self) -> _Notification | None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        events = poll.poll(0)
        self.hung_up = any(event & select.POLLHUP for _, event in events)
        if not any(event & select.POLLIN for _, event in events):
            return None
        attempt = _Notification()
        try:
            libc.ioctl(self._fd, _RECEIVE, attempt)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the caller has gone between the two calls
                raise
            return None
        return attempt
