"""Edges between frames: what one waits for, notes on where it comes from, and the refusal of cycles.

A frame cannot start before everything it waits for has ended, nor before everything that the frames above it wait for.
A frame with children cannot end before they do. So a cycle may also lead through the tree. The search goes backwards
from the start of the frame that is to wait, over everything that has to happen before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import EdgeRefused, FrameWaits
from rlm_memory.frame_schema import edges as table
from rlm_memory.frames import counts
from rlm_memory.frames.rows import FrameRow, frame_id, get, note
from rlm_memory.frames.states import OPEN, WAITING_TYPES, EdgeType, Kind, Status, resolves
from rlm_memory.records import values_of
from rlm_memory.store import Store
from rlm_memory.tables import insert_into

MOST_EDGES = 1000
"""Maximum number of edges of one frame in either direction: its end has to visit each of them."""

_ADD = insert_into(table)
_REMOVE = "DELETE FROM frame_edges WHERE frame = :frame AND target = :target"
_WAITS = "SELECT target FROM frame_edges WHERE frame = :frame AND resolved = 0 ORDER BY target"
_OF = "SELECT frame, target, type, resolved FROM frame_edges WHERE frame = :frame ORDER BY target, type"
_COUNT = """
    SELECT max((SELECT count(*) FROM frame_edges WHERE frame = :frame),
        (SELECT count(*) FROM frame_edges WHERE target = :target))"""
_STANDING_BY = """
    SELECT DISTINCT e.frame FROM frame_edges e JOIN frames f ON f.key = e.frame
    WHERE e.type = 'on_failure' AND e.target IN (SELECT value FROM json_each(:keys)) AND f.status = 'planned'
    ORDER BY e.frame"""
# The start (S) of a frame, its end (E) and the end of all its children (C), each with what must happen before it.
_BEFORE: Final = {
    "S": (("E", "VALUES (:key)"), ("C", "VALUES (:key)"), ("S", "SELECT key FROM frames WHERE parent = :key")),
    "C": (
        ("E", "VALUES (:key)"),
        ("S", "SELECT frame FROM frame_edges WHERE target = :key AND type = 'waits_for'"),
    ),
    "E": (
        ("C", "SELECT parent FROM frames WHERE key = :key AND parent IS NOT NULL"),
        ("S", "SELECT frame FROM frame_edges WHERE target = :key AND type IN ('blocks', 'on_failure')"),
    ),
}
_LATER = """
    WITH RECURSIVE later(key, what) AS (
        VALUES (:key, 'S')
        UNION SELECT key, 'E' FROM later WHERE what IN ('S', 'C')
        UNION SELECT key, 'C' FROM later WHERE what = 'S'
        UNION SELECT f.key, 'S' FROM later JOIN frames f ON f.parent = later.key WHERE what = 'S'
        UNION SELECT f.parent, 'C' FROM later JOIN frames f ON f.key = later.key
            WHERE what = 'E' AND f.parent IS NOT NULL
        UNION SELECT e.frame, 'S' FROM later JOIN frame_edges e ON e.target = later.key
            WHERE (what = 'E' AND e.type IN ('blocks', 'on_failure')) OR (what = 'C' AND e.type = 'waits_for')
    ) SELECT 1 FROM later WHERE key = :on AND what = :ends LIMIT 1"""


@dataclass(frozen=True, slots=True)
class Edge:
    """``frame`` waits for ``target``, or has it as a note, which counts as resolved."""

    frame: int
    target: int
    type: EdgeType
    resolved: bool


def add(store: Store, frame: int, target: int, type_: EdgeType, *, author: str, now: float) -> Edge:
    """Make a frame wait for another, or note that it comes from it. Adding the same edge again changes nothing.

    Raises:
        UnknownFrame: there is no such frame.
        EdgeRefused: the frames are not open goals of one tree, there are too many edges, or they would form a cycle.
    """
    with store.transaction():
        row, other = get(store, frame), get(store, target)
        existing = {edge.type: edge for edge in edges_of(store, frame) if edge.target == target}
        if type_ in existing:
            return existing[type_]
        _check(row, other, type_, existing)
        if store.scalar(_COUNT, frame=frame, target=target) >= MOST_EDGES:
            raise EdgeRefused(
                row.id, other.id, f"a frame may have at most {MOST_EDGES} edges: put another frame in between"
            )
        if type_ in WAITING_TYPES:
            _check_circle(store, row, other, type_)
        resolved = other.open_children == 0 if type_ is EdgeType.WAITS_FOR else resolves(type_, other.status)
        edge = Edge(frame, target, type_, resolved)
        store.run(_ADD, **values_of(edge))
        if not resolved:
            counts.edge_added(store, frame, target)
        note(store, frame, "edge", author, now, type=type_, on=other.id)
        return edge


def remove(store: Store, frame: int, target: int, *, author: str, now: float) -> list[Edge]:
    """Remove all edges from a frame to another and return them."""
    with store.transaction():
        found = [edge for edge in edges_of(store, frame) if edge.target == target]
        store.run(_REMOVE, frame=frame, target=target)
        for edge in found:
            if not edge.resolved:
                counts.edge_removed(store, frame, target)
            note(store, frame, "edge removed", author, now, type=edge.type, on=frame_id(target))
    return found


def edges_of(store: Store, frame: int) -> list[Edge]:
    """List the edges of a frame to others."""
    return store.records(Edge, _OF, frame=frame)


def waits_for(store: Store, frame: int) -> list[str]:
    """List the ids of the frames that this frame itself waits for."""
    return [frame_id(key) for key in store.scalars(_WAITS, frame=frame)]


def check_waits(store: Store, row: FrameRow, chain: Iterable[FrameRow]) -> None:
    """Refuse to start a frame that waits, or is below one that waits; ``chain`` leads upwards from it.

    Raises:
        FrameWaits: it waits.
    """
    for upper in chain:
        if upper.waiting:
            raise FrameWaits(row.id, upper.id, waits_for(store, upper.key))


def standing_by(store: Store, keys: Collection[int]) -> list[int]:
    """List the frames planned in case these fail, if these have completed or are no longer wanted."""
    return store.scalars(_STANDING_BY, keys=json.dumps(list(keys)))


def _check(row: FrameRow, other: FrameRow, type_: EdgeType, known: Collection[EdgeType]) -> None:
    if Kind.SESSION in {row.kind, other.kind}:
        raise EdgeRefused(row.id, other.id, "a frame that stands for a session has no edges: name goals")
    if row.tree != other.tree:
        raise EdgeRefused(row.id, other.id, "they belong to different trees")
    if row.key == other.key:
        raise EdgeRefused(row.id, other.id, "it would wait for itself")
    if type_ not in WAITING_TYPES:
        return
    if row.status not in OPEN:
        raise EdgeRefused(row.id, other.id, f"{row.id} is {row.status}: reopen it first")
    if WAITING_TYPES & set(known):
        raise EdgeRefused(row.id, other.id, "it already waits for that frame in another way: remove that edge first")
    if type_ is EdgeType.ON_FAILURE and other.status in {Status.COMPLETED, Status.INVALIDATED}:
        raise EdgeRefused(row.id, other.id, f"{other.id} is {other.status}: it cannot fail any more")


def _check_circle(store: Store, row: FrameRow, other: FrameRow, type_: EdgeType) -> None:
    ends = "C" if type_ is EdgeType.WAITS_FOR else "E"
    if store.row(_LATER, key=row.key, on=other.key, ends=ends) is None:
        return
    way = _way(store, (row.key, "S"), (other.key, ends))
    raise EdgeRefused(row.id, other.id, f"they would wait in a circle: {' > '.join(way)}")


def _way(store: Store, start: tuple[int, str], goal: tuple[int, str]) -> Sequence[str]:
    """Return the frames of a shortest cycle, each waiting for the next one."""
    came: dict[tuple[int, str], tuple[int, str] | None] = {start: None}
    reached = [start]
    with store.transaction():
        while goal not in came:
            news = []
            for key, what in reached:
                for kind, query in _BEFORE[what]:
                    for earlier in store.scalars(query, key=key):
                        if (earlier, kind) not in came:
                            came[earlier, kind] = (key, what)
                            news.append((earlier, kind))
            reached = news
    way = [start[0]]
    at: tuple[int, str] | None = goal
    while at is not None:
        if way[-1] != at[0]:
            way.append(at[0])
        at = came[at]
    return [frame_id(key) for key in way]
