"""What a kernel is given before its cells: saved variables when it is new, and what frames below hand over."""

from __future__ import annotations

import asyncio

from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.sessions.kernel_events import Fresh, KernelEvents

__all__ = ["KernelDeliveries"]


class KernelDeliveries:
    """Notes what a session's kernel has not been given yet, and gives it."""

    def __init__(self, events: KernelEvents) -> None:
        self._events = events
        self.fill: Fresh | None = events.fill
        """Fills a kernel that has just started, after its contexts and before its first cell."""
        self.fresh = False
        """Whether the kernel has just started."""
        self.frames_ended, self._told = 1, 0
        """How often frames below have ended, and of how many of these ends the kernel knows."""

    @property
    def due(self) -> bool:
        """Whether there may be anything to give."""
        return self.fresh or self._told != self.frames_ended

    async def give(self, client: SupervisorClient, kernel_id: str) -> None:
        """Give the kernel what it lacks."""
        fresh, self.fresh = self.fresh, False
        try:
            filled = fresh and self.fill is not None and await self.fill(client, kernel_id)
            ended = self.frames_ended
            # Saved variables are later than what was handed over before they were saved.
            await self._events.deliver(client, kernel_id, again=fresh and not filled)
            self._told = ended  # another one may have ended meanwhile
        except asyncio.CancelledError:  # not an error, of which the kernel would die again
            self.fresh = self.fresh or fresh
            raise
