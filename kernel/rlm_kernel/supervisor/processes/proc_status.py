"""What the system reports about a process by its pid: parent, effort, whether it listens to interrupts (proc(5))."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple

from rlm_ipc.process_identity import stat_fields

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if there is no such process."""
    stat = stat_fields(pid)
    return int(stat[1]) if stat else None


def descendants_of(pid: int) -> list[int]:
    """Return the processes below one. This looks at every process of the machine."""
    below: dict[int | None, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            below.setdefault(parent_of(int(name)), []).append(int(name))
    found, waiting = list[int](), [pid]
    while waiting:
        children = below.pop(waiting.pop(), [])
        found += children
        waiting += children
    return found


def process_of(thread: int) -> int | None:
    """Return the process that a thread belongs to; None if there is no such thread."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{thread}/status", "rb") as status:
        return next((int(line[5:]) for line in status if line.startswith(b"Tgid:")), None)
    return None


def ignores_interrupts(pid: int) -> bool:
    """Return whether a process ignores SIGINT now; False if there is no such process."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as status:
        for line in status:
            if line.startswith(b"SigIgn:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)
    return False


class Effort(NamedTuple):
    """The processor time that a process has ``used``, and whether it ``wants`` to run or waits for a page."""

    used: float
    wants: bool


def effort(pid: int | None) -> Effort:
    """Return the present effort of a process; none if there is no such process."""
    stat = stat_fields(pid or 0)
    if not stat:
        return Effort(0.0, False)
    return Effort((int(stat[11]) + int(stat[12])) / TICKS_PER_SECOND, stat[0] in (b"R", b"D"))
