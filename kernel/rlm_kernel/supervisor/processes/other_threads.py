"""Whether the other threads of a kernel are idle, seen from outside: a kernel cannot see itself, and could lie.

A copy is made of one thread. Work of another thread would be cut off half-way in it, with its locks held. So a copy is
made only while every other thread waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from typing import NamedTuple

from rlm_ipc.outcomes import NoCopy
from rlm_ipc.worker_requests import OtherThreads
from rlm_kernel.supervisor.processes.worker_link import ForkRefused

LOOK_SECONDS = 0.02
"""How long a thread must have been idle, unless the call in which it waits shows that it waits for another thread."""
LOOKS_AT_LIBRARIES = 10
"""The threads of a library wait for more work without sleeping, for a tenth of a second."""
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine())
_NO_TIMEOUT = b"0x0"
_OPENMP = (b"libgomp", b"libomp", b"libiomp")


class Seen(NamedTuple):
    """One look at a thread: whether it is ``parked`` until another thread wakes it, or runs, and its ``effort``."""

    parked: bool = False
    runs: bool = False
    effort: tuple[bytes, ...] = ()


def count(pid: int) -> int:
    """Return how many threads a process has besides its first one; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return max(0, os.stat(f"/proc/{pid}/task").st_nlink - 3)  # "." and ".." are links too
    return 0


async def demand_still(pid: int, told: OtherThreads) -> None:
    """Raise `ForkRefused` while the process has a thread that runs, or one that no copy could do without.

    ``told`` is the process's own report about them.
    """
    if told.stuck:
        raise ForkRefused(told.stuck, why=NoCopy.LIBRARY_THREADS)
    if told.libraries and _has_openmp(pid):
        raise ForkRefused("OpenMP", why=NoCopy.LIBRARY_THREADS)
    before = _look(pid)
    for _ in range(LOOKS_AT_LIBRARIES if told.libraries else 1):
        if all(seen.parked for seen in before.values()):
            return
        await asyncio.sleep(LOOK_SECONDS)
        now = _look(pid)
        if before.keys() == now.keys() and not any(_has_moved(before[tid], seen) for tid, seen in now.items()):
            return
        before = now
    raise ForkRefused("a thread of a library", told.names, why=NoCopy.THREAD_RUNS)


def _look(pid: int) -> dict[str, Seen]:
    """Return a look at each thread but the first one, which waits for us."""
    found = {}
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            if tid != str(pid):
                found[tid] = _seen(f"/proc/{pid}/task/{tid}")
    return found


def _has_moved(before: Seen, now: Seen) -> bool:
    return not now.parked and (now.runs or now.effort != before.effort)


def _seen(task: str) -> Seen:
    with contextlib.suppress(OSError):  # some systems do not report it
        call = _read(f"{task}/syscall").split()
        if len(call) > 4 and call[0] == _FUTEX and call[4] == _NO_TIMEOUT:
            return Seen(parked=True)
    try:
        switches = [line for line in _read(f"{task}/status").splitlines() if b"ctxt_switches" in line]
        fields = _read(f"{task}/stat").rpartition(b")")[2].split()  # the name before it may be anything
        return Seen(runs=fields[0] == b"R", effort=(*switches, *fields[11:13]))
    except (OSError, IndexError):  # it has ended
        return Seen()


def _has_openmp(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return any(name in _read(f"/proc/{pid}/maps") for name in _OPENMP)
    return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
