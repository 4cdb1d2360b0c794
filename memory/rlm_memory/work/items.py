"""What a tracker knows about a task besides its goal: type, description, acceptance, priority, and its other names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.errors import RowRequestError
from rlm_memory.frames.rows import get as get_frame
from rlm_memory.frames.rows import note
from rlm_memory.frames.tree import LONGEST_GOAL
from rlm_memory.store import Store
from rlm_memory.tables import upsert_into
from rlm_memory.work.ready import PRIORITIES
from rlm_memory.work_schema import aliases as names
from rlm_memory.work_schema import items as table

TYPES = ("feature", "bug", "spike", "chore", "api", "test")
"""The types of work; the first is the default."""
_LONGEST = 16_384
_LONGEST_NAME = 200

_GET = "SELECT type, description, acceptance FROM frame_items WHERE frame = :frame"
_DESCRIBE, _NAME = upsert_into(table), upsert_into(names)
_SET_PRIORITY = "UPDATE frames SET priority = :priority WHERE key = :key"
_SET_GOAL = "UPDATE frames SET goal = :goal WHERE key = :key"
_OF_TREE = "SELECT frame, alias, data FROM frame_aliases WHERE tree = :tree AND source = :source ORDER BY frame"
_OF_FRAME = "SELECT source, alias, data FROM frame_aliases WHERE frame = :frame ORDER BY source, alias"


@dataclass(frozen=True, slots=True)
class Item:
    """The properties of a task."""

    type: str = TYPES[0]
    description: str = ""
    acceptance: str = ""


@dataclass(frozen=True, slots=True)
class Alias:
    """The name by which another tracker, ``source``, knows a frame; ``data`` is everything it says about it."""

    source: str
    alias: str
    data: Mapping[str, Any] = field(default_factory=dict)


def get(store: Store, frame: int) -> Item:
    """Return the properties of a task."""
    return store.record(Item, _GET, frame=frame) or Item()


def describe(
    store: Store, frame: int, *, type_: str | None = None, description: str | None = None, acceptance: str | None = None
) -> Item:
    """Set the properties that are given; the others stay.

    Raises:
        RowRequestError: there is no such type.
    """
    if type_ is not None and type_ not in TYPES:
        raise RowRequestError(f"there is no type of task {type_[:80]!r}; use one of {', '.join(TYPES)}")
    with store.transaction():
        old = get(store, frame)
        values = {
            "type": old.type if type_ is None else type_,
            "description": old.description if description is None else limits.storable(description, _LONGEST),
            "acceptance": old.acceptance if acceptance is None else limits.storable(acceptance, _LONGEST),
        }
        store.run(_DESCRIBE, frame=frame, **values)
    return Item(**values)


def set_priority(store: Store, frame: int, priority: int, *, author: str, now: float) -> None:
    """Change a frame's place in the queue.

    Raises:
        UnknownFrame: there is no such frame.
        RowRequestError: it is not one of the priorities.
    """
    if priority not in PRIORITIES:
        raise RowRequestError(f"a priority must be one of {', '.join(map(str, PRIORITIES))}")
    with store.transaction():
        was = get_frame(store, frame).priority
        store.run(_SET_PRIORITY, key=frame, priority=priority)
        note(store, frame, "priority", author, now, was=was, priority=priority)


def set_goal(store: Store, frame: int, goal: str, *, author: str, now: float) -> None:
    """Reword the goal of a frame.

    Raises:
        UnknownFrame: there is no such frame.
    """
    with store.transaction():
        was = get_frame(store, frame).goal
        store.run(_SET_GOAL, key=frame, goal=kept("goal", goal))
        note(store, frame, "goal", author, now, was=was)


def kept(name: str, value: Any) -> Any:
    """Return a value of a task in the form in which it is stored: texts are cut."""
    if not isinstance(value, str):
        return value
    return limits.storable_line(value, LONGEST_GOAL) if name == "goal" else limits.storable(value, _LONGEST)


def name(store: Store, frame: int, alias: Alias) -> None:
    """Record the name by which another tracker knows a frame."""
    with store.transaction():
        tree = get_frame(store, frame).tree
        called = limits.storable(alias.alias, _LONGEST_NAME)
        data = json.dumps(dict(alias.data))
        store.run(_NAME, tree=tree, source=alias.source, alias=called, frame=frame, data=data)


def aliases(store: Store, tree: str, source: str) -> list[tuple[int, Alias]]:
    """List the frames of a tree that another tracker knows, with what it says about them."""
    found = store.rows(_OF_TREE, tree=tree, source=source)
    return [(frame, Alias(source, alias, json.loads(data))) for frame, alias, data in found]


def aliases_of(store: Store, frame: int) -> list[Alias]:
    """List the names by which other trackers know a frame."""
    return store.records(Alias, _OF_FRAME, frame=frame)
