"""The turns of a frame: notes, tool calls and cells, for a model that continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from rlm_mcp.service.caller import Caller
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory.errors import StoreFault, UnknownFrame
from rlm_memory.frames import transcript
from rlm_memory.frames.transcript import ToolCall
from rlm_memory.store import Store

log = logging.getLogger(__name__)


class FrameTurns:
    """Adds notes to frames, and shows their turns."""

    def __init__(self, store: Store, frames: Frames, clock: Clock) -> None:
        self._store, self._frames, self._clock = store, frames, clock

    def note(self, session: Session, caller: Caller, frame: str | None, said: str) -> ToolAnswer:
        """Add a note to a frame, or to the current one."""
        row, at = self._frames.named(session, caller, frame)
        transcript.note(self._store, row.key, said, now=self._clock())
        return self._frames.told(row, at, {"noted": True}, ())

    def called(
        self, session: Session, caller: Caller, tool: str, arguments: Callable[[], Mapping[str, Any]], result: str
    ) -> None:
        """Record a tool call with its frame, if there is one. A failure does not fail the call."""
        try:
            frame = self._frames.of_call(session, caller)
            if frame is not None:
                transcript.called(self._store, frame, ToolCall(tool, arguments(), result, self._clock()))
        except (StoreFault, UnknownFrame):
            log.warning("a call of %s is missing from the turns of its frame", tool, exc_info=True)

    async def show(self, session: Session, caller: Caller, frame: str | None) -> ToolAnswer:
        """Show the turns of a frame, within their budget, and the counts of its conversation."""
        row, at = self._frames.named(session, caller, frame)
        cells = await self._frames.logs.cells(row)
        context = await asyncio.to_thread(transcript.context_of, self._store, row.key, cells=cells)
        fields = {"stats": context.stats(), "turns": context.get_active_context("pruned")}
        return self._frames.told(row, at, fields, ("turns",))
