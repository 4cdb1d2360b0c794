"""The threads of a kernel process besides the serving one, and which of them a copy can have again.

A copy has only the thread that forked. An idle pool can restart its threads there, so nobody misses them. Any other
thread of the session is missing in the copy, and its work is not done.
"""

from __future__ import annotations

import queue
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pools

from rlm_ipc import processes
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.worker_requests import OtherThreads
from rlm_sandbox.language_wall.audit_hook import trusted

RESTARTING = ("pyarrow", "numexpr", "numpy")
"""Libraries that notice a fork made by the C library, and restart their own threads in the child."""
STUCK = ("polars",)
"""Libraries whose threads do not restart in a child: their next call there would never return."""
LIBRARY_THREAD = "(a thread of a library)"
MOST_NAMES, LONGEST_NAME = 16, 60

_IDLE = pools._worker.__code__
"""What the innermost frame of a pool's thread runs while it waits for work."""
_FIELDS: Callable[[threading.Thread], Mapping[str, object]] = vars(threading.Thread)["__dict__"].__get__
"""Reads the fields of a thread without asking a class of the session."""

IdlePools = tuple[weakref.ref[ThreadPoolExecutor], ...]


@dataclass(frozen=True, slots=True)
class Threads:
    """The other threads: ``names`` of those that a copy lacks, and idle ``pools``, which restart theirs there."""

    names: tuple[str, ...] = ()
    pools: IdlePools = ()
    libraries: int = 0

    def told(self) -> OtherThreads:
        """Return what the supervisor is told about them."""
        stuck = next((name for name in STUCK if self.libraries and name in sys.modules), "")
        return OtherThreads(self.names, self.libraries, stuck)


_NONE = Threads()


@trusted
def others() -> Threads:
    """Look at them. Nothing of the session runs for it."""
    # Count in the system and not in Python: a compiled library starts threads that `threading` has never heard of.
    count = processes.thread_count()
    if count <= 1:
        return _NONE
    frames, idle, names, python_threads = sys._current_frames(), [], [], 0
    for thread in threading.enumerate():
        if thread is threading.main_thread():
            continue
        python_threads += 1
        own = _FIELDS(thread)
        number = own.get("_ident")
        pool = _idle_pool(frames.get(number)) if type(number) is int else None
        if pool is None:
            names.append(_name_in(own))
        else:
            idle.append(pool)
    libraries = max(0, count - 1 - python_threads)
    if libraries and not any(name in sys.modules for name in RESTARTING):
        names += [LIBRARY_THREAD] * libraries
    return Threads(tuple(names[:MOST_NAMES]), tuple(idle), libraries)


def _idle_pool(frame: types.FrameType | None) -> weakref.ref[ThreadPoolExecutor] | None:
    """Return the pool of a thread that waits for its work, if nothing waits for the thread; otherwise None."""
    if frame is None or frame.f_code is not _IDLE:
        return None
    known = frame.f_locals
    work, pool = known.get("work_queue"), known.get("executor_reference")
    if type(work) is not queue.SimpleQueue or work.qsize() or type(pool) is not weakref.ref:
        return None
    return pool if type(pool()) is ThreadPoolExecutor else None


def _name_in(own: Mapping[str, object]) -> str:
    name = own.get("_name")
    return name[:LONGEST_NAME] if type(name) is str else "a thread"


def restart(idle: Iterable[weakref.ref[ThreadPoolExecutor]]) -> None:
    """Let these pools, in a copy that has none of their threads, start new ones when they get work."""
    for reference in idle:
        if (pool := reference()) is not None:
            pool.__dict__.update(
                _threads=set(),
                _idle_semaphore=threading.Semaphore(0),
                _work_queue=queue.SimpleQueue(),
                _shutdown_lock=threading.Lock(),
            )
