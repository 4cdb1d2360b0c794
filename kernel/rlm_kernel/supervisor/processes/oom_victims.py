"""Which process the system ends first when memory runs out: the one whose session loses least, never the supervisor.

A process in a cell whose session has a checkpoint goes first: only that cell is undone, and the memory that it filled
is free again. Then come sleeping copies, then zygotes, which can be restarted. The last process that holds a session's
variables goes last.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

RUNS_A_COPIED_CELL = 950
COPY = 800
REPLACEABLE = 600
LIVE = 300
_MOST = 1000


def prefer(pid: int | None, score: int) -> None:
    """Make the system prefer that process by ``score`` thousandths of the memory; at least as much as this one."""
    with suppress(OSError, ValueError):  # it has ended, or the system does not let us
        told = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(told, b"%d" % min(_MOST, _own_score() + score))
        finally:
            os.close(told)


@cache
def _own_score() -> int:
    """Return this process's own score, which is constant: every cell asks for it."""
    return max(0, int(Path("/proc/self/oom_score_adj").read_text()))
