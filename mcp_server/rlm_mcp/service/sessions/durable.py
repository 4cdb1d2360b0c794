"""`checkpoint: durable`: what cells change is saved to disk a moment later, so that variables outlive the machine.

A save waits until the session is idle, and the next cell waits for it. So many cells share one: it begins after
`limits.unsaved_seconds`, or earlier after `limits.unsaved_cells`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import field

from rlm_ipc.errors import KernelBusy
from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.service.background import BackgroundTasks
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import moment

_AGAIN_SECONDS = 10.0
"""After so long a save that failed is tried again; the next cell tries earlier."""


@dataclass(frozen=True, slots=True)
class UnsavedCells:
    """How many cells have changed variables that are not on disk, since when, and why if a save has failed."""

    cells: int = 0
    since: str | None = None
    reason: str | None = None


@dataclass(eq=False, slots=True)
class _State:
    """The cells of a session that are not on disk, since when (epoch seconds), and why if a save ``failed``."""

    cells: int = 0
    since: float = 0.0
    failed: str = ""
    due: asyncio.Event = field(default_factory=asyncio.Event)


class DurableSaves:
    """Saves sessions in time. ``save`` returns why it could not, empty if it could, and raises KernelBusy."""

    def __init__(self, save: Callable[[Session], Awaitable[str]], clock: Callable[[], float]) -> None:
        self._save, self._clock = save, clock
        self._states: dict[int, _State] = {}
        self._tasks = BackgroundTasks()

    def of(self, session: Session) -> UnsavedCells:
        """Tell what of a session is not on disk."""
        state = self._states.get(session.key)
        if state is None or not state.cells:
            return UnsavedCells()
        return UnsavedCells(state.cells, moment(state.since), state.failed or None)

    def changed(self, session: Session, ended: Sequence[float] = ()) -> bool:
        """Note that a cell, or what undoes cells, has changed variables; returns whether they are saved at all.

        Or that cells which have ``ended`` at these times did, under an earlier daemon (epoch seconds).
        """
        if session.policy.checkpoint != "durable":
            return False
        state = self._states.get(session.key)
        if state is None:
            state = self._states[session.key] = _State()
        if not state.cells:
            state.since = min(ended, default=self._clock())
            self._tasks.start(self._save_in_time(session, state))
        state.cells += len(ended) or 1
        if state.cells >= session.policy.limits.unsaved_cells or state.failed:
            state.due.set()
        return True

    def forget(self, session: int) -> None:
        """Let go of a session that has ended or rests."""
        if (state := self._states.pop(session, None)) is not None:
            state.cells = 0
            state.due.set()

    async def aclose(self) -> None:
        """Begin no more saves, and wait for the end of those under way."""
        self._tasks.cancel()
        await self._tasks.wait()

    async def _save_in_time(self, session: Session, state: _State) -> None:
        seconds = session.policy.limits.unsaved_seconds
        while state.cells:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await state.due.wait()
            state.due.clear()
            seconds = _AGAIN_SECONDS
            if not (taken := state.cells):  # the session has ended
                return
            try:
                reason = await self._save(session)
            except KernelBusy:  # its cell waits for an agent
                continue
            if not reason:
                state.cells -= min(taken, state.cells)
                state.since = self._clock()
                seconds = session.policy.limits.unsaved_seconds
            elif reason != state.failed:
                session.kernel.notice = f"variables could not be saved to disk: {reason}"
            state.failed = reason
