"""Which processes are a session's: by its Unix session (setsid), which its kernel and all its copies are of.

A test that counts the host's children instead counts the processes of other tests, that come and go meanwhile.
"""

import os

import psutil


def copies_of(pid: int) -> set[int]:
    """The other processes of a kernel's session."""
    return members(session_of(pid)) - {pid}


def members(session: int | None) -> set[int]:
    """All processes of a Unix session."""
    return {pid for pid in psutil.pids() if session is not None and session_of(pid) == session}


def session_of(pid: int) -> int | None:
    """The Unix session of a process; None when there is no such process."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
