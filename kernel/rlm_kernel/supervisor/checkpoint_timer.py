"""When the copies of a session are taken, beside those that a strict reply waits for: in the idle time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from rlm_kernel.supervisor.checkpoints import Checkpoints
from rlm_kernel.supervisor.session_policy import SessionPolicy
from rlm_kernel.supervisor.worker_link import ForkRefused, retrieved

IDLE_BEFORE_COPY_SECONDS = 0.1
IDLE_BEFORE_SHARING_SECONDS = 5.0
COPY_EVERY_SECONDS = 1.0


class CopiedSession(Protocol):
    """What has to be known of a session to copy it in time; see `session.SupervisedSession`."""

    @property
    def policy(self) -> SessionPolicy:
        """When it wants to be copied (``checkpoint``)."""
        ...

    @property
    def checkpoints(self) -> Checkpoints:
        """Its copies."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        ...

    def operation(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Do ``work`` between requests."""
        ...


class CheckpointTimer:
    """Takes the copies of one session."""

    def __init__(self, session: CopiedSession) -> None:
        self.session = session
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0.0

    async def now(self, *, prefault: bool = True) -> None:
        """Take a dormant copy. A kernel that cannot be copied goes on without one."""
        self._taken = time.monotonic()
        with suppress(ForkRefused, TimeoutError):
            await self.session.checkpoints.checkpoint(prefault=prefault)

    def due(self) -> bool:
        """Cells that follow each other without a pause would never be copied: then the next one waits for it."""
        checkpoints = self.session.checkpoints
        if self.session.policy.checkpoint != "lazy" or checkpoints.covered:
            return False
        return checkpoints.newest is None or time.monotonic() - self._taken >= COPY_EVERY_SECONDS

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
            if not self.session.checkpoints.fresh:
                self.session.operation(self.now).add_done_callback(retrieved)
            self._wait(IDLE_BEFORE_SHARING_SECONDS, self._share_if_idle)

    def _share_if_idle(self) -> None:
        """Have a session that is left alone share every page with its copy: half of what the two need.

        Until now the kernel had pages of its own made in advance, for a next cell that was to be expected.
        """
        if self.session.idle and self.session.checkpoints.newest is not None:
            self.session.operation(self._share).add_done_callback(retrieved)

    async def _share(self) -> None:
        await self.now(prefault=False)
