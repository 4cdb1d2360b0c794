"""The refused attempts of a session, as its walls have seen them.

The supervisor itself counts the system calls that stop at the session's gate. The worker counts what its audit hook
refuses, and the cells that do not compile. A worker may be hostile, so its counts can only add to the total. A refused
cell has attempted nothing and is usually an honest mistake, so it counts towards no limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlm_ipc.kernel_reports import Refused
from rlm_ipc.worker_protocol import RefusedAttempts

MOST_TOLD = 1_000_000
"""Maximum number of refusals that one report of a kernel may add."""


class Refusals:
    """Counts for one session, and calls ``on_limit`` with the reason, once, when they reach ``limit`` (0: never)."""

    def __init__(self, limit: int, on_limit: Callable[[str], None]) -> None:
        self.calls = 0
        self.latest = ""
        """The latest system call that was refused."""
        self.audited = 0
        self.cells = 0
        """Cells that did not compile under the policy."""
        self._limit, self._on_limit = limit, on_limit
        self._over = False

    def refused(self, call: str) -> None:
        """Count a system call that is being refused; its thread still waits for the answer."""
        self.calls += 1
        self.latest = call
        self._compare()

    def told(self, attempts: RefusedAttempts) -> None:
        """Add a kernel's own count since its last report: attempts at the audit hook, and cells refused."""
        audited, cells = (min(max(count, 0), MOST_TOLD) for count in (attempts.audit, attempts.cells))
        self.audited += audited
        self.cells += cells
        if audited:
            self._compare()

    def info(self) -> Refused:
        """Return the counts, as callers of the supervisor see them."""
        return Refused(self.calls, self.latest, self.audited, self.cells)

    def _compare(self) -> None:
        if not self._over and 0 < self._limit <= self.calls + self.audited:
            self._over = True
            made = f"{self.calls} system calls and {self.audited} refused by the audit hook"
            why = f"{self._limit} refused attempts end it by its policy (limits.refused_attempts); it made {made}"
            # Not now: the caller is still answering the attempt, and ending the session would close its gate.
            asyncio.get_running_loop().call_soon(self._on_limit, why)
