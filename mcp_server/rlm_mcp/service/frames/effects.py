"""The effects of push and pop on kernels, the content store and files; see `rlm_memory.frames.runtime.Effects`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.logs import FrameLogs
from rlm_mcp.service.frames.summaries import FrameSummaries
from rlm_mcp.service.frames.values import FrameValues
from rlm_mcp.service.sessions.forks import Forks
from rlm_mcp.service.sessions.sessions import Session, Sessions
from rlm_memory.frames.results import HandedOver
from rlm_memory.frames.rows import FrameRow


@dataclass
class FrameEffects:
    """The effects of one call: ``caller`` is its session.

    ``policy`` and ``name`` are those for the session of a push (None: its parent's policy, a generated name).
    """

    live: Sessions
    forks: Forks
    logs: FrameLogs
    values: FrameValues
    summaries: FrameSummaries
    caller: Session | None = None
    policy: str | None = None
    name: str | None = None
    forked: JsonObject | None = None
    """The answer's fields about the session that a push opened."""

    async def open_session(self, frame: FrameRow, source: int | None, opened: Callable[[int], None]) -> None:
        """Fork the session ``source``, else that of the caller."""
        parent = await self.live.woken(source) or self.caller
        if parent is None:
            raise ToolFault("no_kernel", f"no session above frame {frame.id} is open", "push it from a session")
        _, answer = await self.forks.fork(parent, self.name, self.policy, opened)
        self.forked = answer.fields

    async def store_values(self, frame: FrameRow, names: Sequence[str]) -> list[HandedOver]:
        """Serialise variables of the frame's session."""
        session = await self.live.woken(frame.session)
        if session is None:
            hint = "pop without hand_over, or put what matters into the summary"
            raise ToolFault("no_kernel", f"frame {frame.id} has no open session", hint)
        return await self.values.store(session, names)

    def extracted(self, frames: Sequence[int]) -> None:
        """Ask for summaries."""
        self.summaries.ask(frames)

    async def write_log(self, frame: FrameRow, session: int | None) -> str:
        """Write the Markdown log."""
        return await self.logs.write_log(frame, session)

    async def write_notebook(self, frame: FrameRow, session: int) -> None:
        """Write the notebook."""
        await self.logs.write_notebook(frame, session)

    async def end_session(self, session: int) -> None:
        """End a session that existed only for frames."""
        found = await self.live.woken(session)
        if found is not None:
            await self.live.end(found)
