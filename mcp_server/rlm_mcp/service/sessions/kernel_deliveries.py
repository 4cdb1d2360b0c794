"""What a kernel is given before its cells: saved variables when it is new, and what frames below hand over."""

from __future__ import annotations

from rlm_ipc.errors import KernelDied, ProcessError
from rlm_ipc.supervisor_protocol import Recovered
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.sessions.kernel_events import Fresh, KernelEvents

LOST = "the kernel ended between two calls; its variables are lost, contexts are kept"

_TRIES = 3
"""So many processes may die of what they are given, or meanwhile, before the caller is told."""


class NotGiven(ProcessError):
    """A kernel has not been given what was saved for it. The next call tries again."""

    code = "kernel_died"
    hint = "call again; to start without the saved variables, pass the name of another session"


class BackToSaved(KernelDied):
    """The kernel is gone, and the next one is given what was saved of its session last."""

    hint = "run the code again; a fresh kernel starts with the saved variables and every loaded context"

    def __init__(self) -> None:
        super().__init__(
            "the kernel has ended; variables return to their last saved values; the next answer says when that was"
        )


class KernelDeliveries:
    """Notes what a session's kernel has not been given yet, and gives it."""

    def __init__(self, events: KernelEvents) -> None:
        self._events = events
        self.fill: Fresh | None = events.fill
        """Fills a kernel that has just started, after its contexts and before its first cell."""
        self.fresh = False
        """Whether the kernel has no variables yet: it has just started."""
        self.outdated = False
        """Whether the disk has later variables than the kernel, which has gone back to an earlier copy."""
        self._again = False
        """Whether it has not been given what earlier kernels have got from frames below."""
        self.frames_ended, self._told = 1, 0
        """How often frames below have ended, and of how many of these ends the kernel knows."""

    @property
    def due(self) -> bool:
        """Whether there may be anything to give."""
        return self.fresh or self._again or self._told != self.frames_ended

    @property
    def loss(self) -> str:
        """What the next cell has to hear of a kernel that is gone, unless it hears which saved variables are back."""
        return "" if self.fresh or self._events.has_saved() else LOST

    def recovered(self, event: Recovered) -> None:
        """Take note that another process has taken over."""
        if event.anew:
            self.frames_ended += 1  # `frames` has gone with the variables
            self._events.began_anew()
        self.outdated |= event.lost > 0 and self._events.saved_later(event.lost)

    async def give(self, client: SupervisorClient, kernel_id: str) -> None:
        """Give the kernel what it lacks. A process that dies meanwhile is replaced, and that one lacks it, too.

        Raises:
            NotGiven: One after the other has died.
        """
        for _ in range(_TRIES):
            try:
                return await self._give(client, kernel_id)
            except KernelDied as error:
                died = error
        said = f"{_TRIES} kernels in a row ended while the saved variables were restored; the variables stay saved"
        raise NotGiven(f"{said}: {died.reason}")

    async def _give(self, client: SupervisorClient, kernel_id: str) -> None:
        if self.fresh:
            # Saved variables are later than what was handed over before they were saved.
            self._again = self.fill is None or not await self.fill(client, kernel_id)
            self.fresh = False
        ended = self.frames_ended
        await self._events.deliver(client, kernel_id, again=self._again)
        self._again, self._told = False, ended  # another one may have ended meanwhile
