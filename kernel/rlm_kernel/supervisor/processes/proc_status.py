"""What the system tells of a process by its pid: its parent, its effort, whether it listens to interrupts (proc(5))."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple

_LONGEST_STAT = 4096
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if there is no such process."""
    stat = _stat(pid)
    return int(stat[1]) if stat else None


def descendants_of(pid: int) -> list[int]:
    """The processes below one. It takes a look at every process of the machine."""
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
    """The process that a thread belongs to; None if there is no such thread."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{thread}/status", "rb") as status:
        return next((int(line[5:]) for line in status if line.startswith(b"Tgid:")), None)
    return None


def ignores_interrupts(pid: int) -> bool:
    """Whether a process ignores SIGINT now; False if there is no such process."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as status:
        for line in status:
            if line.startswith(b"SigIgn:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)
    return False


class Effort(NamedTuple):
    """The processor time that a process has ``used``, and whether it ``wants`` to run or waits for a page."""

    used: float
    wants: bool


def effort(pid: object) -> Effort:
    """What the process does now; no effort if there is no such process."""
    stat = _stat(pid)
    if not stat:
        return Effort(0.0, False)
    return Effort((int(stat[11]) + int(stat[12])) / TICKS_PER_SECOND, stat[0] in (b"R", b"D"))


def _stat(pid: object) -> list[bytes]:
    """The fields of a process from its state on (proc_pid_stat(5)); empty if there is no such process."""
    with contextlib.suppress(OSError, ValueError):
        # The system's own calls: the objects of `open` take ten times as long, and a copy is taken with each cell.
        stat = os.open(f"/proc/{int(str(pid))}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The program's name comes before, in parentheses. A process may choose it, with spaces and parentheses.
            return os.read(stat, _LONGEST_STAT).rpartition(b")")[2].split()
        finally:
            os.close(stat)
    return []
