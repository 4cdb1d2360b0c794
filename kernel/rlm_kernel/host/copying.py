"""When the copies of a session are taken, beside those that a strict reply waits for: in the idle time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlm_kernel.host.peer import ForkRefused, retrieved

if TYPE_CHECKING:
    from rlm_kernel.host.session import KernelSession

IDLE_BEFORE_COPY_SECONDS = 0.1
IDLE_BEFORE_SHARING_SECONDS = 5.0
COPY_EVERY_SECONDS = 1.0


class Copying:
    """Takes the copies of one session."""

    def __init__(self, session: KernelSession) -> None:
        self.session = session
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0.0

    async def now(self, *, expectant: bool = True) -> None:
        """Take a dormant copy. A kernel that cannot be copied goes on without one."""
        self._taken = time.monotonic()
        try:
            await self.session.images.checkpoint(expectant=expectant)
        except (ForkRefused, TimeoutError) as error:
            self.session.emit(self.session.kernel_id, {"event": "checkpoint_refused", "reason": str(error)})

    def due(self) -> bool:
        """Cells that follow each other without a pause would never be copied: then the next one waits for it."""
        images = self.session.images
        if self.session.policy.checkpoint != "lazy" or images.covered:
            return False
        return images.newest is None or time.monotonic() - self._taken >= COPY_EVERY_SECONDS

    def later(self) -> None:
        """Take one as soon as the session is idle, if that is worth it."""
        if self.session.policy.checkpoint != "off" and not self.session.closed:
            self._wait(IDLE_BEFORE_COPY_SECONDS, self._if_idle)

    def cancel(self) -> None:
        """Take none that was meant for later."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def _if_idle(self) -> None:
        if self.session.idle:
            if not self.session.images.fresh:
                self.session.operation(self.now).add_done_callback(retrieved)
            self._wait(IDLE_BEFORE_SHARING_SECONDS, self._share_if_idle)

    def _share_if_idle(self) -> None:
        """Have a session that is left alone share every page with its copy: half of what the two need.

        Until now the kernel had pages of its own made in advance, for a next cell that was to be expected.
        """
        if self.session.idle and self.session.images.newest is not None:
            self.session.operation(self._share).add_done_callback(retrieved)

    async def _share(self) -> None:
        await self.now(expectant=False)
