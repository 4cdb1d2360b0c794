"""What gives way when memory is short, on the machine or in our control group, before the system kills somebody.

First go the copies that only a rollback needs, those of all sessions. Then the daemon is asked to save idle sessions
and let them rest, the one first that was left alone for longest; not one that is too large to be saved now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rlm_ipc.supervisor_protocol import Event, LowMemory
from rlm_kernel.supervisor.checkpoints import Checkpoints
from rlm_kernel.supervisor.free_memory import available_memory
from rlm_kernel.supervisor.request_queue import RequestQueue

SAVING = 4
"""To save a session takes so many times its memory: in the kernel, on the way, and in the daemon."""


class PressedSession(Protocol):
    """A session that may give memory back; see `session.SupervisedSession`."""

    kernel_id: str
    queue: RequestQueue
    checkpoints: Checkpoints

    @property
    def memory_bytes(self) -> int:
        """What its code has taken."""

    def report(self, event: Event) -> None:
        """Tell its callers."""


class MemoryPressure:
    """Sees to it that ``keep_free`` bytes stay free."""

    def __init__(self, keep_free: int) -> None:
        self._keep_free = keep_free
        self._asked: set[str] = set()

    def relieve(self, sessions: Iterable[PressedSession]) -> None:
        """Give up some memory if there is too little; what has been given up is free at the next call."""
        free = available_memory()
        if free is None or free >= self._keep_free:
            self._asked.clear()
            return
        found = list(sessions)
        given_up = [session.checkpoints.drop_oldest() for session in found]
        if any(given_up):
            return
        idle = (
            session
            for session in found
            if session.queue.idle and session.kernel_id not in self._asked and SAVING * session.memory_bytes < free
        )
        if (session := min(idle, key=lambda one: one.queue.last_used, default=None)) is not None:
            self._asked.add(session.kernel_id)
            session.report(LowMemory())
