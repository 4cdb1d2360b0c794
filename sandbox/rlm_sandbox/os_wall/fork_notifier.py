"""The supervisor's side of process creation and of refusals: a worker forks only when the supervisor lets it.

In a closed session clone(2) stops in the kernel and waits on a descriptor that only the supervisor holds (seccomp's
user notification). When the supervisor has asked for a checkpoint, it lets the call continue. Code that tries to fork
on its own gets EPERM. Calls that no session may make stop there too, so that a process outside the session counts them.
Copies inherit the filter, so one gate serves a worker and all its copies.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import select
from collections.abc import Callable
from typing import NamedTuple

from rlm_sandbox.os_wall import libc, seccomp, syscalls

# SECCOMP_USER_NOTIF_FLAG_CONTINUE. seccomp_unotify(2) warns against it where a decision rests on memory that the caller
# may change meanwhile. The decision here rests on clone's flags, which are in a register.
_CONTINUE = 1
# _IOWR('!', 0, struct seccomp_notif) and _IOWR('!', 1, struct seccomp_notif_resp)
_RECEIVE, _SEND = 0xC0502100, 0xC0182101


class Notification(ctypes.Structure):
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


class Refused(NamedTuple):
    """A refused attempt: the id of the thread that made it, and the name of the call."""

    thread: int
    call: str


class ForkGate:
    """Answers the forks of one worker and its copies, and refuses every other call that stops there.

    Owns ``fd``; never blocks. Wait for `fileno` to become readable, then call `answer` once. ``on_refusal`` gets every
    attempt that is refused, while the thread that made it still waits.
    """

    def __init__(self, fd: int, on_refusal: Callable[[Refused], None] | None = None) -> None:
        self._fd = fd
        self._on_refusal = on_refusal
        self.hung_up = False
        """True once every process behind the gate is gone: stop watching it and `close`."""

    def fileno(self) -> int:
        """Return the descriptor to watch for reading."""
        return self._fd

    def answer(self, allow: bool | Callable[[int], bool], *, pid: int | None = None) -> bool:
        """Receive one attempt and answer it. Return True if a fork was let through; nothing else ever is.

        ``pid`` is the process that the supervisor asked: an attempt by another process, or by any thread of it but the
        first, is refused whatever ``allow`` says. If ``allow`` is a function, it is called with the id of the
        attempting thread. Also returns False when nobody waits (any more).

        The worker must block signals around a fork that it makes for the supervisor. A signal with a handler would end
        the call with EINTR, or restart it after it was let through.
        """
        attempt = self._receive()
        if attempt is None:
            return False
        call = _names().get(attempt.number, f"call {attempt.number}")
        allowed = (
            seccomp.is_copy(call, attempt.arguments[0])
            and pid in (None, attempt.pid)
            and (allow(attempt.pid) if callable(allow) else allow)
        )
        if not allowed and self._on_refusal is not None:
            self._on_refusal(Refused(attempt.pid, call))
        # Before the answer, not after: once the thread continues, its id may pass to another process.
        error = 0 if allowed else -seccomp.refusal(call)
        response = _Response(id=attempt.id, error=error, flags=_CONTINUE if allowed else 0)
        try:
            libc.ioctl(self._fd, _SEND, response)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the caller died, or a signal ended its call
                raise
            return False
        return allowed

    def close(self) -> None:
        """Close the gate. From now on every call that would stop there fails with ENOSYS."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _receive(self) -> Notification | None:
        # SECCOMP_IOCTL_NOTIF_RECV blocks until there is an attempt, even on a non-blocking descriptor: look first.
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        events = poll.poll(0)
        self.hung_up = any(event & select.POLLHUP for _, event in events)
        if not any(event & select.POLLIN for _, event in events):
            return None
        attempt = self._blank()
        try:
            libc.ioctl(self._fd, _RECEIVE, attempt)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the caller has gone between the two calls
                raise
            return None
        return attempt

    def _blank(self) -> Notification:
        """Return empty memory, into which the system receives an attempt."""
        return Notification()


@functools.cache
def _names() -> dict[int, str]:
    """Return the names of the calls of this machine."""
    return {number: name for name, number in syscalls.numbers(syscalls.ALL, platform.machine()).items()}
