"""What gives way when memory is short, on the machine or in our control group, before the system kills something.

Copies that only a rollback needs go first, those of all sessions. Then idle sessions are saved and suspended, one after
the other, starting with the one unused for longest, but not one that is too large to be saved now.

A session that is about to get saved variables is promised the memory for them: it waits for that, and so does any
session that starts meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from rlm_kernel.supervisor.processes.free_memory import available_memory
from rlm_kernel.supervisor.session import SupervisedSession

SAVING, SAVING_BYTES = 1.25, 32 << 20
"""Memory for saving a session: this multiple of its memory, and this many bytes on the way."""
MAKING_ROOM_SECONDS = 10.0
"""How long the next session waits for one that was asked to make room, and may not do so."""
AGAIN_SECONDS = 20.0
"""How long until one that has not made room is asked again; it may have been used meanwhile."""
GIVING_BACK_SECONDS = 1.0
"""How long the system may take to return the memory of processes that have just ended."""
WAIT_SECONDS = 30.0
PAUSE_SECONDS = 0.1
PROMISED_SECONDS = 60.0
"""After this time an unconfirmed promise ends: the daemon may have died."""


class MemoryPressure:
    """Ensures that ``keep_free`` bytes stay free.

    ``make_room`` has a session saved and ended, which takes a while; it returns False for one that has to stay.
    """

    def __init__(self, keep_free: int, make_room: Callable[[SupervisedSession], bool]) -> None:
        self._keep_free, self._make_room = keep_free, make_room
        self._asked: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        """When the sessions that were asked ended."""
        self._promised: dict[str, tuple[int, float]] = {}

    def promise(self, kernel_id: str, size: int) -> None:
        """Count memory that a kernel has not taken yet."""
        self._promised[kernel_id] = size, time.monotonic() + PROMISED_SECONDS

    def kept(self, kernel_id: str) -> None:
        """Record that the kernel has taken what it was promised, or never will."""
        self._promised.pop(kernel_id, None)

    @property
    def wanted(self) -> int:
        """Return the bytes that must be free before anything starts."""
        now = time.monotonic()
        promised = sum(size for size, until in self._promised.values() if now < until)
        return max(self._keep_free, promised + SAVING_BYTES if promised else 0)

    async def wait(self, sessions: Callable[[], Collection[SupervisedSession]]) -> None:
        """Wait while memory is short and room is being made."""
        until = time.monotonic() + WAIT_SECONDS
        while self.relieve(sessions(), self.wanted) and time.monotonic() < until:
            await asyncio.sleep(PAUSE_SECONDS)

    def relieve(self, sessions: Collection[SupervisedSession], wanted: int = 0) -> bool:
        """Give up some memory if there is too little. Return whether a later call will free more."""
        needed, promised = max(wanted, self._keep_free), self.wanted
        free = available_memory(enough=max(needed, promised))
        if free is None or free >= needed:
            if free is None or free >= promised:  # less is enough here than for a caller that waits for room
                self._asked.clear()
                self._ended.clear()
            return False
        if sum(session.checkpoints.drop_oldest() for session in sessions):
            return True
        now, there = time.monotonic(), {session.kernel_id for session in sessions}
        for name in self._asked.keys() - there:
            self._ended.setdefault(name, now)
        if any(now - since < GIVING_BACK_SECONDS for since in self._ended.values()):
            return True
        if any(now - since < MAKING_ROOM_SECONDS for name, since in self._asked.items() if name in there):
            return True
        for session in sorted(sessions, key=lambda one: (self._asked.get(one.kernel_id, 0.0), one.queue.last_used)):
            takes = SAVING * session.memory_bytes + SAVING_BYTES
            if (
                session.queue.idle
                and now - self._asked.get(session.kernel_id, -AGAIN_SECONDS) >= AGAIN_SECONDS
                and takes < free
                and self._make_room(session)
            ):
                self._asked[session.kernel_id] = now
                return True
        return False
