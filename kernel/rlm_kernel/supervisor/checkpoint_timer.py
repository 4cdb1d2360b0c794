"""When copies of a session are taken: in its idle time, except for those that a strict reply waits for.

A fork costs the running cell nothing but the pages that it writes to afterwards, and those are copied while the agent
thinks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from rlm_kernel.supervisor.checkpoints import Checkpoints
from rlm_kernel.supervisor.session_policy import SessionPolicy
from rlm_kernel.supervisor.worker_link import ForkRefused, retrieved

IDLE_BEFORE_PREFAULT_SECONDS = 0.01
IDLE_BEFORE_COPY_SECONDS = 0.1
IDLE_BEFORE_SHARING_SECONDS = 5.0
COPY_EVERY_SECONDS = 1.0


class CopiedSession(Protocol):
    """What the timer needs from a session; see `session.SupervisedSession`."""

    @property
    def policy(self) -> SessionPolicy:
        """Its policy, whose ``checkpoint`` says when it is copied."""
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

    async def now(self) -> None:
        """Take a dormant copy. A kernel that cannot be copied goes on without one."""
        self._taken = time.monotonic()
        with suppress(ForkRefused, TimeoutError):
            await self.session.checkpoints.checkpoint()

    def due(self) -> bool:
        """Whether the next cell must wait for a copy: cells without a pause between them would never be copied."""
        checkpoints = self.session.checkpoints
        if self.session.policy.checkpoint != "lazy" or checkpoints.covered:
            return False
        return checkpoints.newest is None or time.monotonic() - self._taken >= COPY_EVERY_SECONDS

    def later(self) -> None:
        """Take a copy as soon as the session is idle, if a new one is worth it, and make ready for the next cell."""
        if self.session.policy.checkpoint != "off" and not self.session.closed:
            taken = self.session.checkpoints.fresh
            self._wait(IDLE_BEFORE_PREFAULT_SECONDS if taken else IDLE_BEFORE_COPY_SECONDS, self._if_idle)

    def cancel(self) -> None:
        """Take no copy that was planned for later."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def _if_idle(self) -> None:
        if self.session.idle:
            self.session.operation(self._make_ready).add_done_callback(retrieved)
            self._wait(IDLE_BEFORE_SHARING_SECONDS, self._share_if_idle)

    async def _make_ready(self) -> None:
        if not self.session.checkpoints.fresh:
            await self.now()
        self.session.checkpoints.prefault()

    def _share_if_idle(self) -> None:
        """Take a new copy of a session that is left alone, so that both share every page: half of their memory.

        Until now the kernel kept pages that it had copied ahead for the cell that was expected next.
        """
        if self.session.idle and self.session.checkpoints.newest is not None:
            self.session.operation(self.now).add_done_callback(retrieved)
