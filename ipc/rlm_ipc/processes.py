"""Processes: parentage, dying together, and the end of processes that are not our children (Linux).

A kernel process that another one forked is a child of that one's parent. So the process that sees the other's end sees
its end too, and it does not die with the other. See clone(2), prctl(2), pidfd_open(2).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import select
import signal
import sys
import warnings
from functools import partial

from rlm_ipc import signals

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Final

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLONE_PARENT = 0x00008000  # the child gets our parent as its own, see clone(2)
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
# PyDLL keeps the interpreter lock during a call, CDLL would drop it: the child of a fork could never take it again,
# because the thread that holds it by then does not exist in the child.
_libc = ctypes.PyDLL(None, use_errno=True)
# Every C function is looked up at import, in the zygote. In a session the audit hook refuses `ctypes.dlsym`, and a
# lookup that only works because an earlier call cached it breaks when that call is moved.
_ppoll: Any = getattr(_libc, "ppoll", None)
_before_fork, _after_fork, _after_fork_in_child = (
    ctypes.pythonapi[name] for name in ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
)

_ALLOCATIONS_BEFORE_COLLECTION = 20_000
EXIT_FAULT = 70
EXIT_MEMORY = 71
EXIT_TAMPERED = 72


def prctl(option: int, value: int) -> None:
    """Make the system call with one argument; systems without it are left alone."""
    if sys.platform == "linux":
        _libc.prctl(*(ctypes.c_ulong(v) for v in (option, value, 0, 0, 0)))


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


class _PollFd(ctypes.Structure):
    """``struct pollfd``, see poll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


_SignalSet: Final = ctypes.c_ulong * 16
"""``sigset_t`` of any C library.

Created once: in a session's kernel no library derives from the interpreter's classes.
"""


@functools.cache
def _mask(numbers: frozenset[int]) -> ctypes.Array[ctypes.c_ulong]:
    """Return the set of these signals.

    Created once, because each fork needs the set of all, and nothing writes to it.
    """
    return _SignalSet(sum(1 << number - 1 for number in numbers))  # one bit for each signal, the first one is bit 0


def wait_for(descriptor: int, held: Iterable[int] = ()) -> Callable[[], int]:
    """Return a call that waits for input or for the other end to close, with the signals in ``held`` held back.

    Everything that it needs is created here: two waiting processes that share their memory should have next to none of
    their own, and anything that runs writes to pages.
    """
    mask = ctypes.byref(_mask(frozenset(held)))
    wanted = ctypes.byref(_PollFd(descriptor, select.POLLIN, 0))
    return partial(_ppoll, wanted, ctypes.c_ulong(1), None, mask)


def fork_sibling(
    *,
    asleep: int | None = None,
    first: Callable[[], object] | None = None,
    pause: Callable[[int], object] | None = None,
) -> int:
    """Fork a child whose parent is *our parent*. Return 0 in the child, its pid here.

    With ``asleep``, a descriptor, the child does nothing but ``first`` until something can be read from it, or its
    other end is closed: not even what CPython does after a fork. Nor does this process before it has called ``pause``
    with the pid. So they share their memory.

    It is a raw clone(CLONE_PARENT) between CPython's own at-fork hooks. glibc's at-fork work is skipped, so this is
    only for a process with a single thread (malloc's locks are free then); the caller has checked `thread_count`.
    """
    if _SYS_CLONE is None:
        raise OSError(f"fork_sibling is not known on {os.uname().machine}")
    sleep = None if asleep is None else wait_for(asleep, signals.ALL)
    # The system call itself: glibc's fork() cannot pass CLONE_PARENT. Stack 0 without CLONE_VM means a copy of ours.
    fork = partial(_libc.syscall, *map(ctypes.c_ulong, (_SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)))
    _before_fork()  # takes the import lock, so that the child does not inherit it half-way
    pid = int(fork())
    if pid == 0:
        if sleep is not None:
            if first is not None:
                first()
            sleep()
        _after_fork_in_child()
        return 0
    error = ctypes.get_errno() if pid < 0 else 0  # before anything else calls into C and changes it
    if pid > 0 and pause is not None:
        pause(pid)
    _after_fork()
    if pid < 0:
        raise OSError(error, os.strerror(error))
    return pid


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
