"""Reads frames without changing them: tree, contexts and logs as texts."""

from __future__ import annotations

from rlm_mcp.service.caller import Caller
from rlm_mcp.service.frames.changes import Part
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory.frames import rows, survey
from rlm_memory.store import Store


class FrameReading:
    """The texts of the frames of a caller's tree."""

    def __init__(self, store: Store, frames: Frames) -> None:
        self._store, self._frames = store, frames

    async def read(self, session: Session, caller: Caller, part: Part) -> str:
        """Return the tree, a line for each frame, or the context of a frame, or the log of an ended one."""
        at = self._frames.current(session, caller)
        if part.what == "tree":
            return "\n".join(survey.lines(self._store, at.tree))
        row = rows.same_tree(self._store, at, part.frame)
        return self._frames.context_of(session, row) if part.what == "context" else await self._frames.logs.read(row)
