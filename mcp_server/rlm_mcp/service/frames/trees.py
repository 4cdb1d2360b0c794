"""The record of a tree: a frame and all frames below it."""

from __future__ import annotations

from dataclasses import replace

from rlm_ipc.tree_record import RecordedFrame, TreeRecord
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.frames.records import record_of_frame, session_of
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.record import cell_of, context_of, query_of
from rlm_memory import contexts, queries
from rlm_memory.frames import rows
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Kind
from rlm_memory.journal import JournalEntry
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store


class FrameTrees:
    """Records trees as they are, without changing them."""

    def __init__(self, store: Store, frames: Frames, cells: Journal) -> None:
        self._store, self._frames, self._cells = store, frames, cells

    async def record(self, frame: str, *, cells: bool) -> TreeRecord:
        """Return a frame and all frames below it; raises UnknownFrame."""
        found = rows.whole(self._store, rows.frame_key(frame))
        return TreeRecord(frame, tuple([await self._recorded(row, cells=cells) for row in found]))

    async def _recorded(self, row: FrameRow, *, cells: bool) -> RecordedFrame:
        found = record_of_frame(self._store, row)
        if not cells:
            return found
        session = session_of(self._store, row)
        ran = await self._ran(row, session)
        known = queries.of_session(self._store, session.key) if session is not None and ran else ()
        asked = {query.id: query_of(query) for query in known}
        stands = session is not None and row.kind is Kind.SESSION
        texts = contexts.of_session(self._store, row.session or 0) if stands else ()
        return replace(found, cells=tuple(cell_of(cell, asked) for cell in ran), contexts=tuple(map(context_of, texts)))

    async def _ran(self, row: FrameRow, session: SessionRow | None) -> list[JournalEntry]:
        if row.kind is not Kind.SESSION:
            return await self._frames.logs.cells(row)
        if session is None:
            return []
        return [cell for cell in self._cells.of_session(session.key) if cell.frame is None]
