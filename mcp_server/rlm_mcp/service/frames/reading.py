"""Reads frames without changing them: tree, contexts and logs as texts."""

from __future__ import annotations

from rlm_mcp.service.caller import Caller
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory.frames import rows, survey
from rlm_memory.store import Store


class FrameReading:
    """The texts of the frames of a caller's tree."""

    def __init__(self, store: Store, frames: Frames) -> None:
        self._store, self._frames = store, frames

    def tree_of(self, session: Session, caller: Caller) -> str:
        """Return the tree, a line for each frame."""
        return "\n".join(survey.lines(self._store, self._frames.current(session, caller).tree))

    def context_of(self, session: Session, caller: Caller, frame: str) -> str:
        """Return the context of a frame."""
        at = self._frames.current(session, caller)
        return self._frames.context_of(session, rows.same_tree(self._store, at, frame))

    async def log_of(self, session: Session, caller: Caller, frame: str) -> str:
        """Return the log of an ended frame."""
        row = rows.same_tree(self._store, self._frames.current(session, caller), frame)
        return await self._frames.logs.read(row)
