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
    task: JsonObject = {"id": row.id, "title": row.goal[:LONGEST_GOAL], "status": state(row, stale=stale)}
    if fields == "minimal":
        return task
    item = items.get(store, row.key)
    if len(row.goal) > LONGEST_GOAL:
        task["goal"] = row.goal
    task |= {"kind": row.kind.value, "type": item.type, "priority": row.priority}
    task |= {name: value for name in ("description", "acceptance") if (value := getattr(item, name))}
    if row.parent is not None:
        task["parent"] = rows.frame_id(row.parent)
    if paths := declared(store, [row.key]).get(row.key):
        task["paths"] = [path.removeprefix("/") or "." for path in paths]
    if waits := edges.waits_for(store, row.key):
        task["blocked_by"] = waits
    if fields == "full":
        task |= _whole(store, row)
    return task


def _whole(store: Store, row: FrameRow) -> JsonObject:
    task: JsonObject = {"fence": row.fence, "score": row.priority + 50 * row.dependents}
    if leases.is_held(row):
        task["holder"] = row.holder
    if notes := [edge for edge in edges.edges_of(store, row.key) if edge.resolved]:
        task["edges"] = [{"type": edge.type.value, "on": rows.frame_id(edge.target)} for edge in notes]
    compaction = rows.compaction_of(store, row.key)
    if compaction is not None:
        task["context_summary"] = compaction.text
    if (hand_off := handoffs.of_frame(store, row.key)) is not None:
        task["handoff_notes"] = {"status": hand_off.status.value, "summary": handoffs.short(hand_off.summary)}
    known = progress.get(store, row.key)
    if known.data:
        task |= {"wip": known.data, "wip_updated_at": known.updated_at}
    if names := items.aliases_of(store, row.key):
        task["aliases"] = [f"{alias.source}:{alias.alias}" for alias in names]
    return task
