"""Adds and changes tasks of the queue: goal, kind, priority, type, paths, and dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault, refuse_unknown
from rlm_memory.frames import edges, rows, tree
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import EdgeType, Kind
from rlm_memory.frames.tree import Plan
from rlm_memory.places import path_in_worktree
from rlm_memory.store import Store
from rlm_memory.work import items, paths
from rlm_memory.work.ready import PRIORITIES

_KINDS = {kind.value: kind for kind in (Kind.TASK, Kind.STORY, Kind.EPIC)}
_TEXTS = ("goal", "parent", "kind", "type", "description", "acceptance")
_EDGES = tuple(kind.value for kind in EdgeType)
_KNOWN = {*_TEXTS, *_EDGES, "priority", "paths", "drop"}
_TAKES = f"data takes {', '.join(sorted(_KNOWN))}"
_AUTHOR = "work"


def add(
    store: Store, at: FrameRow, frame: str | None, data: Mapping[str, Any], workspace: str, *, now: float
) -> JsonObject:
    """Add a task below ``parent`` or the root, or change the named frame: completely or not at all.

    Raises:
        ToolFault: a field of ``data`` is unknown or has a wrong type.
        UnknownFrame: the tree has no such frame.
        RowRequestError: a dependency, the parent or the goal is not possible.
    """
    _check(data, new=frame is None)
    with store.transaction():
        root = rows.root_of(store, at.tree) or at
        if frame is None:
            above = rows.same_tree(store, at, data["parent"]) if "parent" in data else root
            kind = _KINDS[data.get("kind", "task")]
            wanted = Plan(data["goal"], kind=kind, priority=data.get("priority", 500))
            if wanted.priority not in PRIORITIES:
                raise _refused(f"priority must be one of {', '.join(map(str, PRIORITIES))}")
            row = tree.plan(store, wanted, above.key, author=_AUTHOR, now=now)
        else:
            row = rows.same_tree(store, at, frame)
            if "priority" in data:
                items.set_priority(store, row.key, data["priority"], author=_AUTHOR, now=now)
        texts = {name: data[name] for name in ("description", "acceptance") if name in data}
        if texts or "type" in data:
            items.describe(store, row.key, type_=data.get("type"), **texts)
        if "paths" in data:
            paths.declare(store, row.key, [path_in_worktree(workspace, path) for path in _list(data, "paths")])
            rows.note(store, row.key, "paths", _AUTHOR, now)
        for target in _list(data, "drop"):
            edges.remove(store, row.key, rows.same_tree(store, at, target).key, author=_AUTHOR, now=now)
        for name in _EDGES:
            for target in _list(data, name):
                edges.add(
                    store, row.key, rows.same_tree(store, at, target).key, EdgeType(name), author=_AUTHOR, now=now
                )
        return {"added" if frame is None else "changed": row.id}


def _check(data: Mapping[str, Any], *, new: bool) -> None:
    refuse_unknown("work", data, _KNOWN, _TAKES)
    if new and not isinstance(data.get("goal"), str):
        raise _refused("a new task needs a goal")
    if not new and {"goal", "parent", "kind"} & set(data):
        raise _refused("goal, parent and kind of a frame cannot change; add another one that supersedes it")
    if bad := [name for name in _TEXTS if not isinstance(data.get(name, ""), str)]:
        raise _refused(f"{bad[0]} must be a text")
    if data.get("kind", "task") not in _KINDS:
        raise _refused(f"kind must be one of {', '.join(_KINDS)}")
    if type(data.get("priority", 500)) is not int:
        raise _refused("priority must be a number")


def _list(data: Mapping[str, Any], name: str) -> Sequence[str]:
    value = data.get(name, [])
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise _refused(f"{name} must be a string or a list of strings")
    return found


def _refused(why: str) -> ToolFault:
    return ToolFault("invalid_arguments", f"work: {why}", _TAKES)
