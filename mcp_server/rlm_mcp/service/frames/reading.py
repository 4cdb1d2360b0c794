"""What is read of frames without a change: tree, contexts and logs as texts."""

from __future__ import annotations

from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory.frames import rows, survey
from rlm_memory.store import Store

__all__ = ["FrameReading"]


class FrameReading:
    """The texts of the frames of a caller's tree."""

    def __init__(self, store: Store, frames: Frames) -> None:
        self._store, self._frames = store, frames

    def tree_of(self, session: Session, client: ClientInfo, asked: str | None) -> str:
        """Return the tree, a line for each frame."""
        return "\n".join(survey.lines(self._store, self._frames.current(session, client, asked).tree))

    def context_of(self, session: Session, client: ClientInfo, asked: str | None, frame: str) -> str:
        """Return the context of a frame."""
        at = self._frames.current(session, client, asked)
        return self._frames.context_of(session, rows.same_tree(self._store, at, frame))

    async def log_of(self, session: Session, client: ClientInfo, asked: str | None, frame: str) -> str:
        """Return the log of a frame that has ended."""
        row = rows.same_tree(self._store, self._frames.current(session, client, asked), frame)
        return await self._frames.logs.read(row)
