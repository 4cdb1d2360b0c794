"""Counts that decide readiness. The transaction that changes their cause updates them in the frame's row.

* ``waiting``: edges of the frame that are not resolved.
* ``dependents``: unresolved edges of other frames that end at this one.
* ``open_children``: children that are planned, running or blocked, without frames that stand for sessions.
* ``closed_above``: frames above that are *closed*: they wait, or are neither planned nor running. The count is not
  maintained below a frame that has completed or failed, where nothing is to be done. Reopening such a frame updates
  it there.

So a frame may be worked on when it is planned and `waiting`, `open_children` and `closed_above` are 0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rlm_memory.frames.states import ENDED_FOR_GOOD, NO_TASKS_BELOW, OPEN, EdgeType, Kind, Status, resolves
from rlm_memory.store import Store

_CHILD = """
    UPDATE frames SET open_children = open_children + :by WHERE key = :parent RETURNING open_children"""
_PLACE = """
    SELECT coalesce(p.closed_above + (p.waiting > 0 OR p.status NOT IN ('planned', 'in_progress')), 0) AS above,
        f.closed_above AS was, f.waiting FROM frames f LEFT JOIN frames p ON p.key = f.parent WHERE f.key = :key"""
_RESOLVE = """
    UPDATE frame_edges SET resolved = CASE type WHEN 'blocks' THEN :blocks ELSE :on_failure END
    WHERE target = :target AND type IN ('blocks', 'on_failure')
        AND resolved <> CASE type WHEN 'blocks' THEN :blocks ELSE :on_failure END
    RETURNING frame, resolved"""
_RESOLVE_CHILDREN = """
    UPDATE frame_edges SET resolved = :now WHERE target = :target AND type = 'waits_for' AND resolved <> :now
    RETURNING frame, resolved"""
_WAIT = """
    UPDATE frames SET waiting = waiting + :by WHERE key IN (SELECT value FROM json_each(:keys))
    RETURNING key, waiting, status"""
_DEPEND = "UPDATE frames SET dependents = dependents + :by WHERE key = :target"
_OWN = "UPDATE frames SET closed_above = closed_above + :by WHERE key = :key"
_SHIFT = """
    WITH RECURSIVE below(key) AS (
        SELECT f.key FROM json_each(:keys) k JOIN frames f ON f.parent = k.value
        WHERE f.status IN ('planned', 'in_progress', 'blocked', 'invalidated')
        UNION ALL
        SELECT f.key FROM below JOIN frames f ON f.parent = below.key
        WHERE f.status IN ('planned', 'in_progress', 'blocked', 'invalidated')
    ) UPDATE frames SET closed_above = closed_above + :by * times.number
    FROM (SELECT key, count(*) AS number FROM below GROUP BY key) AS times WHERE frames.key = times.key"""
_FROM_OUTSIDE = """
    SELECT frame, target FROM frame_edges WHERE NOT resolved
    AND target IN (SELECT value FROM json_each(:gone)) AND frame NOT IN (SELECT value FROM json_each(:gone))"""
_TO_OUTSIDE = """
    SELECT target, count(*) AS number FROM frame_edges WHERE NOT resolved
    AND frame IN (SELECT value FROM json_each(:gone)) AND target NOT IN (SELECT value FROM json_each(:gone))
    GROUP BY target"""


def is_closed(status: Status, waiting: int) -> bool:
    """Whether nothing below a frame may start."""
    return waiting > 0 or status in NO_TASKS_BELOW


def added(store: Store, parent: int | None, kind: Kind) -> None:
    """Update the counts after a frame was inserted below ``parent``."""
    _count_child(store, parent, kind, 1)


def removed(store: Store, keys: Sequence[int], parent: int | None, kind: Kind, status: Status) -> None:
    """Update the counts before a frame and everything below it (``keys``) is deleted.

    The other arguments describe the top one.
    """
    gone = json.dumps(keys)
    freed: dict[int, int] = defaultdict(int)
    for row in store.rows(_FROM_OUTSIDE, gone=gone):
        freed[row["frame"]] -= 1
    for row in store.rows(_TO_OUTSIDE, gone=gone):
        store.run(_DEPEND, target=row["target"], by=-row["number"])
    _wait(store, freed)
    if status in OPEN:
        _count_child(store, parent, kind, -1)


def changed(store: Store, key: int, parent: int | None, kind: Kind, was: Status, now: Status) -> None:
    """Update the counts after a frame went from one status to another."""
    if _means(was) == _means(now):  # starting it changes nothing for others
        return
    found = store.returned(_RESOLVE, target=key, **_resolved_by(now))
    _tell(store, key, [(row["frame"], bool(row["resolved"])) for row in found])
    (place,) = store.rows(_PLACE, key=key)
    by = int(is_closed(now, place["waiting"])) - int(is_closed(was, place["waiting"]))
    if was in ENDED_FOR_GOOD:  # changes above it did not reach it in the meantime
        behind = place["above"] - place["was"]
        store.run(_OWN, key=key, by=behind)
        by += behind
    _shift(store, [key], by)
    if (now in OPEN) != (was in OPEN):
        _count_child(store, parent, kind, 1 if now in OPEN else -1)


def moved(store: Store, key: int, parent: int | None, to: int, kind: Kind, status: Status) -> None:
    """Update the counts after a frame was moved from one parent to another."""
    (place,) = store.rows(_PLACE, key=key)
    store.run(_OWN, key=key, by=place["above"] - place["was"])
    _shift(store, [key], place["above"] - place["was"])
    if status in OPEN:
        _count_child(store, parent, kind, -1)
        _count_child(store, to, kind, 1)


def edge_added(store: Store, frame: int, target: int) -> None:
    """Update the counts after an unresolved edge was inserted."""
    _tell(store, target, [(frame, False)])


def edge_removed(store: Store, frame: int, target: int) -> None:
    """Update the counts after an unresolved edge was deleted."""
    _tell(store, target, [(frame, True)])


def _means(status: Status) -> tuple[object, ...]:
    """Return what the status of a frame means for other frames."""
    return *_resolved_by(status).values(), status in NO_TASKS_BELOW, status in OPEN, status in ENDED_FOR_GOOD


def _resolved_by(status: Status) -> Mapping[str, bool]:
    return {kind.value: resolves(kind, status) for kind in (EdgeType.BLOCKS, EdgeType.ON_FAILURE)}


def _count_child(store: Store, parent: int | None, kind: Kind, by: int) -> None:
    """Add ``by`` to the open children of ``parent``.

    The first and the last child switch the edges that wait for all children.
    """
    if parent is None or kind is Kind.SESSION:
        return
    left: int = store.returned(_CHILD, parent=parent, by=by)[0][0]
    if left == max(by, 0):
        found = store.returned(_RESOLVE_CHILDREN, target=parent, now=left == 0)
        _tell(store, parent, [(row["frame"], bool(row["resolved"])) for row in found])


def _tell(store: Store, target: int, edges: Iterable[tuple[int, bool]]) -> None:
    """Count edges that end at ``target``: each item is the waiting frame and whether its edge is resolved now."""
    by: dict[int, int] = defaultdict(int)
    for frame, resolved in edges:
        by[frame] += -1 if resolved else 1
    if by:
        store.run(_DEPEND, target=target, by=sum(by.values()))
        _wait(store, by)


def _wait(store: Store, by: Mapping[int, int]) -> None:
    """Change how many edges these frames wait for.

    A frame that starts or stops waiting closes or opens everything below it.
    """
    for step in {change for change in by.values() if change}:
        keys = json.dumps([frame for frame, change in by.items() if change == step])
        turned = [
            row["key"]
            for row in store.returned(_WAIT, keys=keys, by=step)
            if is_closed(status := Status(row["status"]), row["waiting"]) != is_closed(status, row["waiting"] - step)
        ]
        _shift(store, turned, 1 if step > 0 else -1)


def _shift(store: Store, keys: Sequence[int], by: int) -> None:
    """Add ``by`` to the number of closed frames above everything below these frames."""
    if keys and by:
        store.run(_SHIFT, keys=json.dumps(keys), by=by)
