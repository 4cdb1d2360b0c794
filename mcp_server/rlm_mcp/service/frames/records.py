"""The record of one frame, from its rows, for its log, its page and the record of its tree."""

from __future__ import annotations

from contextlib import suppress

from rlm_ipc.messages import alike
from rlm_ipc.tree_record import RecordedEvent, RecordedFrame
from rlm_memory import sessions
from rlm_memory.errors import SessionEnded
from rlm_memory.frames import rows
from rlm_memory.frames.rows import Event, FrameRow
from rlm_memory.frames.runtime import handed_over
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store


def record_of_frame(store: Store, row: FrameRow) -> RecordedFrame:
    """Return the record of a frame without its cells and contexts."""
    with store.transaction():
        session = session_of(store, row)
        kept = rows.compaction_of(store, row.key)
        return alike(
            RecordedFrame,
            row,
            parent=None if row.parent is None else rows.frame_id(row.parent),
            kind=row.kind.value,
            status=row.status.value,
            session=None if session is None else session.id,
            policy=None if session is None else session.policy,
            summary=kept.text if kept else "",
            summary_by=kept.source if kept else "",
            artifacts=kept.artifacts if kept else (),
            decisions=kept.decisions if kept else (),
            handed_over=tuple(value.name for value in handed_over(store, row.key)),
            events=tuple(map(_event, rows.events_of(store, row.key))),
            cells=(),
            contexts=(),
        )


def session_of(store: Store, row: FrameRow) -> SessionRow | None:
    """Return the session in which a frame runs or ran; None if it has none, or if that has ended."""
    with suppress(SessionEnded):
        return None if row.session is None else sessions.get(store, sessions.name_of(store, row.session))
    return None


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
