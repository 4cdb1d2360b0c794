"""What a session was refused: attempts that its walls have seen.

The supervisor counts the system calls that stop at the session's gate. What the audit hook refuses, and cells that do
not compile under the policy, are counted in the kernel, which may be hostile: these numbers are what it says, and only
ever grow. A refused cell has attempted nothing, and is most often an honest mistake: it counts towards no limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlm_ipc.kernel_reports import Refused
from rlm_ipc.worker_protocol import RefusedAttempts

MOST_TOLD = 1_000_000
"""The most refusals that a kernel is believed to have had since it last told of them."""


class Refusals:
    """Counts for one session, and calls ``on_limit`` with the reason, once, when they reach ``limit`` (0: never)."""

    def __init__(self, limit: int, on_limit: Callable[[str], None]) -> None:
        self.calls = 0
        self.latest = ""
        """The system call that was refused last."""
        self.audited = 0
        self.cells = 0
        """Cells that did not compile under the policy."""
        self._limit, self._on_limit = limit, on_limit
        self._over = False

    def refused(self, call: str) -> None:
        """A system call was refused; the thread that made it still waits."""
        self.calls += 1
        self.latest = call
        self._compare()

    def told(self, attempts: RefusedAttempts) -> None:
        """The kernel says how many attempts its audit hook, and cells its compiler refused since it last said so."""
        audited, cells = (min(max(count, 0), MOST_TOLD) for count in (attempts.audit, attempts.cells))
        self.audited += audited
        self.cells += cells
        if audited:
            self._compare()

    def info(self) -> Refused:
        """What callers of the supervisor see of them."""
        return Refused(self.calls, self.latest, self.audited, self.cells)

    def _compare(self) -> None:
        if not self._over and 0 < self._limit <= self.calls + self.audited:
            self._over = True
            made = f"{self.calls} system calls and {self.audited} refused by the audit hook"
            why = f"{self._limit} refused attempts end it by its policy (limits.refused_attempts); it made {made}"
            # Not now: whoever counts is in the middle of an answer.
            asyncio.get_running_loop().call_soon(self._on_limit, why)
