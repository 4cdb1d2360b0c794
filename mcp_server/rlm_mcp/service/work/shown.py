"""How much of a frame an answer shows: `minimal` for lists, `standard` to start it, `full` to continue it."""

from __future__ import annotations

from rlm_client.calls import Detail
from rlm_ipc.messages import JsonObject
from rlm_memory.frames import edges, rows
from rlm_memory.frames.rows import FrameRow
from rlm_memory.store import Store
from rlm_memory.work import handoffs, holders, items, leases, progress
from rlm_memory.work.board import state
from rlm_memory.work.paths import declared

LONGEST_GOAL = 200


def shown(store: Store, row: FrameRow, fields: Detail, *, now: float | None = None) -> JsonObject:
    """Return a frame as a client sees it."""
    holder = holders.find(store, row.holder) if leases.is_held(row) and row.holder else None
    stale = holder is not None and now is not None and holder.is_stale(now)
    said: JsonObject = {"id": row.id, "title": row.goal[:LONGEST_GOAL], "status": state(row, stale=stale)}
    if fields == "minimal":
        return said
    item = items.get(store, row.key)
    if len(row.goal) > LONGEST_GOAL:
        said["goal"] = row.goal
    said |= {"kind": row.kind.value, "type": item.type, "priority": row.priority}
    said |= {name: value for name in ("description", "acceptance") if (value := getattr(item, name))}
    if row.parent is not None:
        said["parent"] = rows.frame_id(row.parent)
    if paths := declared(store, [row.key]).get(row.key):
        said["paths"] = [path.removeprefix("/") or "." for path in paths]
    if waits := edges.waits_for(store, row.key):
        said["blocked_by"] = waits
    if fields == "full":
        said |= _whole(store, row)
    return said


def _whole(store: Store, row: FrameRow) -> JsonObject:
    said: JsonObject = {"fence": row.fence, "score": row.priority + 50 * row.dependents}
    if leases.is_held(row):
        said["holder"] = row.holder
    if notes := [edge for edge in edges.edges_of(store, row.key) if edge.resolved]:
        said["edges"] = [{"type": edge.type.value, "on": rows.frame_id(edge.target)} for edge in notes]
    kept = rows.compaction_of(store, row.key)
    if kept is not None:
        said["context_summary"] = kept.text
    if (left := handoffs.of_frame(store, row.key)) is not None:
        said["handoff_notes"] = {"status": left.status.value, "summary": handoffs.short(left.summary)}
    known = progress.get(store, row.key)
    if known.data:
        said |= {"wip": known.data, "wip_updated_at": known.updated_at}
    if names := items.aliases_of(store, row.key):
        said["aliases"] = [f"{alias.source}:{alias.alias}" for alias in names]
    return said
