"""The record of a tree: all that is kept of a frame and of those below it."""

from __future__ import annotations

from rlm_ipc.tree_record import RecordedEvent, RecordedFrame, TreeRecord
from rlm_mcp.service.errors import fault_from
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.record import cell_of, context_of, query_of
from rlm_memory import contexts, queries, sessions
from rlm_memory.errors import UnknownFrame
from rlm_memory.frames import rows
from rlm_memory.frames.rows import Event, FrameRow
from rlm_memory.frames.runtime import handed_over
from rlm_memory.frames.states import Kind
from rlm_memory.journal import JournalEntry
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

__all__ = ["FrameTrees"]


class FrameTrees:
    """Records trees as they are now; nothing changes by it."""

    def __init__(self, store: Store, frames: Frames, cells: Journal) -> None:
        self._store, self._frames, self._cells = store, frames, cells

    async def record(self, frame: str, *, cells: bool) -> TreeRecord:
        """Return a frame with all below it; raises ToolFault when there is none."""
        try:
            found = rows.whole(self._store, rows.frame_key(frame))
        except UnknownFrame as error:
            raise fault_from(error) from error
        return TreeRecord(frame, tuple([await self._recorded(row, cells=cells) for row in found]))

    async def _recorded(self, row: FrameRow, *, cells: bool) -> RecordedFrame:
        session = None if row.session is None else sessions.get(self._store, sessions.name_of(self._store, row.session))
        ran = await self._ran(row, session) if cells else []
        known = queries.of_session(self._store, session.key) if session is not None and ran else ()
        asked = {query.id: query_of(query) for query in known}
        stands = cells and session is not None and row.kind is Kind.SESSION
        kept = rows.compaction_of(self._store, row.key)
        return RecordedFrame(
            id=row.id,
            parent=None if row.parent is None else rows.frame_id(row.parent),
            kind=row.kind.value,
            goal=row.goal,
            status=row.status.value,
            author=row.author,
            session=None if session is None else session.id,
            policy=None if session is None else session.policy,
            created_at=row.created_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            summary=kept.text if kept else "",
            summary_by=kept.source if kept else "",
            artifacts=kept.artifacts if kept else (),
            decisions=kept.decisions if kept else (),
            handed_over=tuple(value.name for value in handed_over(self._store, row.key)),
            log=row.log,
            events=tuple(_event(event) for event in rows.events_of(self._store, key=row.key)),
            cells=tuple(cell_of(cell, asked) for cell in ran),
            contexts=tuple(map(context_of, contexts.of_session(self._store, row.session or 0))) if stands else (),
        )

    async def _ran(self, row: FrameRow, session: SessionRow | None) -> list[JournalEntry]:
        if row.kind is not Kind.SESSION:
            return await self._frames.logs.cells(row)
        if session is None:
            return []
        return [cell for cell in self._cells.of_session(session.key) if cell.frame is None]


def _event(event: Event) -> RecordedEvent:
    said = event.data
    return RecordedEvent(
        event.number,
        event.at,
        event.author,
        event.verb,
        status=str(said.get("status", "")),
        along="along_with" in said or "below" in said,
        fork=bool(said.get("fork", True)),
        failed=tuple(said.get("answer", {}).get("failed", ())),
    )
