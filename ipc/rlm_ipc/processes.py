"""Processes: parentage, dying together, start-up, and forks of a process with threads (Linux).

See prctl(2). `rlm_kernel.worker._forks` forks a process that has one thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import warnings

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Looked up at import, in the zygote: in a session the audit hook refuses `ctypes.dlsym`, and a lookup that only works
# because an earlier call cached it breaks when that call is moved.
_prctl = getattr(ctypes.CDLL(None), "prctl", None)

_ALLOCATIONS_BEFORE_COLLECTION = 20_000
EXIT_FAULT = 70
EXIT_MEMORY = 71
EXIT_TAMPERED = 72


def prctl(option: int, value: int) -> None:
    """Make the system call with one argument; systems without it are left alone."""
    if _prctl is not None:
        _prctl(*(ctypes.c_ulong(v) for v in (option, value, 0, 0, 0)))


def become_subreaper() -> None:
    """Make orphaned descendants children of this process (the supervisor), so that none is ever lost."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel send SIGKILL to this process when its parent's main thread ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """Take `die_with_parent` back."""
    prctl(PR_SET_PDEATHSIG, 0)


def trim_heap() -> None:
    """Return memory freed by imports and start-up: several megabytes in a process that then lives for days."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def begin_startup() -> None:
    """Pause the garbage collector: imports create objects that stay, and visiting them repeatedly takes a sixth longer.

    `finish_startup` resumes it.
    """
    gc.disable()


def finish_startup() -> None:
    """Tell the collector and the heap that start-up is over: its objects live as long as this process.

    Objects of requests die young, by their counts; searching them for cycles every 700 allocations costs a few per cent
    of each request.
    """
    gc.collect()
    # Frozen objects are never visited again. The collector writes to the header of each object that it visits, and a
    # forked process would get a copy of every page that it writes to.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BEFORE_COLLECTION)
    gc.enable()
    trim_heap()


def thread_count() -> int:
    """Return the number of system threads of this process, from the link count of a folder that helpers cannot list."""
    # "." and ".." are links too. In a session, Landlock denies reading the folder, but not stat.
    return os.stat("/proc/self/task").st_nlink - 2


def fork_leaving_threads() -> int:
    """Fork a process with several threads; only the caller's continues in the child. Return 0 there, its pid here.

    It runs the C library's own fork, which puts malloc's locks in order, twice: the process in between ends at once, so
    that the subreaper adopts the child. Locks held by the other threads stay locked in the child forever.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # CPython 3.12 warns about the very threads we ask about
        between = os.fork()
        if between == 0:
            _fork_again(writing)
    os.close(writing)
    if between == 0:
        os.close(reading)
        return 0
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(between, 0)
    if not answer:
        raise OSError("the second fork was refused")
    return int(answer)


def _fork_again(writing: int) -> None:
    """Fork again; only the child returns."""
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)  # the empty pipe tells the first process
    if pid:
        os.write(writing, str(pid).encode())
        os._exit(0)  # not sys.exit: no handler or buffer of the session may run twice


def describe_exit(status: int | None) -> str:
    """Describe an exit status in words: ``"was killed by SIGSEGV"``, ``"exited with 3"``."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
