"""Frames at a glance, for somebody who watches: all of them once, and then only those that have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, text

from rlm_memory.frames.rows import frame_id
from rlm_memory.store import Store

__all__ = ["LONGEST_GLANCE", "FrameGlance", "Survey", "running", "state_of_all", "state_of_tree"]

LONGEST_GLANCE = 240
"""Characters shown of a goal and of a summary."""

_GLANCE = """
    SELECT f.key, f.parent, f.kind, substr(f.goal, 1, :longest) AS goal, f.status, s.id AS session, f.started_at,
        f.ended_at, coalesce(substr(c.text, 1, :longest), '') AS summary,
        coalesce(json_array_length(c.artifacts), 0) AS artifacts
    FROM frames f LEFT JOIN sessions s ON s.key = f.session
    LEFT JOIN frame_compactions c ON c.number = (SELECT max(l.number) FROM frame_compactions l WHERE l.frame = f.key)
"""
_ALL = text(f"{_GLANCE} ORDER BY f.key")
_CHANGED = text(f"""{_GLANCE} WHERE f.key IN (
    SELECT frame FROM frame_events WHERE number > :event
    UNION SELECT frame FROM frame_compactions WHERE number > :compaction) ORDER BY f.key""")
_RUNNING = text(f"{_GLANCE} WHERE f.status = 'in_progress' AND f.kind != 'session' ORDER BY f.key LIMIT :most")
# Sessions come and go by the column alone: their number tells that it has changed.
_STATE = text("""
    SELECT (SELECT coalesce(max(number), 0) FROM frame_events) AS event,
        (SELECT coalesce(max(number), 0) FROM frame_compactions) AS compaction,
        (SELECT count(*) FROM frames) AS frames,
        (SELECT count(*) FROM frames WHERE session IS NOT NULL) AS sessions""")
# A log that is written anew changes no row of its frame: that it is owed no more tells of it.
_STATE_OF_ALL = text("""
    SELECT (SELECT coalesce(max(number), 0) FROM frame_events) AS event,
        (SELECT coalesce(max(number), 0) FROM frame_compactions) AS compaction,
        (SELECT count(*) FROM frames) AS frames, (SELECT count(*) FROM frame_operations) AS owed""")
# From the newest event back: that of a tree which somebody works in is among the first.
_STATE_OF_TREE = text("""
    SELECT (SELECT count(*) FROM frames WHERE tree = :tree) AS frames, (
        SELECT number FROM frame_events CROSS JOIN frames ON frames.key = frame_events.frame
        WHERE frames.tree = :tree ORDER BY number DESC LIMIT 1) AS event""")


@dataclass(frozen=True, slots=True)
class FrameGlance:
    """One frame; ``parent`` is an id, ``session`` the name of the one that it runs or ran in, times in epoch seconds.

    ``goal`` and ``summary`` are cut to `LONGEST_GLANCE`; ``artifacts`` is how many there are.
    """

    id: str
    parent: str | None
    kind: str
    goal: str
    status: str
    session: str | None
    started: float | None
    ended: float | None
    summary: str
    artifacts: int


class Survey:
    """What one who watches knows of all frames. `look` brings it up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state: Mapping[str, Any] | None = None
        self.known: dict[str, FrameGlance] = {}

    def look(self) -> bool:
        """Bring ``known`` up to date; returns whether anything may have changed."""
        with self._store.transaction() as connection:
            state = connection.execute(_STATE).mappings().one()
            if state == self._state:
                return False
            before, self._state = self._state, dict(state)
            if before is not None:
                since = {"event": before["event"], "compaction": before["compaction"], "longest": LONGEST_GLANCE}
                for row in connection.execute(_CHANGED, since).mappings():
                    found = _glance(row)
                    self.known[found.id] = found
            here = sum(found.session is not None for found in self.known.values())
            if before is None or (len(self.known), here) != (state["frames"], state["sessions"]):
                found_rows = connection.execute(_ALL, {"longest": LONGEST_GLANCE}).mappings()
                self.known = {found.id: found for found in map(_glance, found_rows)}
        return True


def state_of_all(store: Store) -> Mapping[str, int]:
    """Return numbers of which one changes whenever anything of any frame does, its log included."""
    with store.transaction() as connection:
        return dict(connection.execute(_STATE_OF_ALL).mappings().one())


def state_of_tree(store: Store, tree: str) -> Mapping[str, int | None]:
    """Return numbers of which one changes whenever a frame of the tree comes, goes or changes."""
    with store.transaction() as connection:
        return dict(connection.execute(_STATE_OF_TREE, {"tree": tree}).mappings().one())


def running(store: Store, most: int) -> list[FrameGlance]:
    """List the goals that are worked for, the oldest first, ``most`` at most; no frames that stand for sessions."""
    with store.transaction() as connection:
        rows = connection.execute(_RUNNING, {"longest": LONGEST_GLANCE, "most": most}).mappings()
        return [_glance(row) for row in rows]


def _glance(row: RowMapping) -> FrameGlance:
    return FrameGlance(
        id=frame_id(row["key"]),
        parent=None if row["parent"] is None else frame_id(row["parent"]),
        kind=row["kind"],
        goal=row["goal"],
        status=row["status"],
        session=row["session"],
        started=row["started_at"],
        ended=row["ended_at"],
        summary=row["summary"],
        artifacts=row["artifacts"],
    )
