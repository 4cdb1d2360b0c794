"""Imports tasks of other trackers into the queue, and exports them: their names become aliases of frames.

The file's data of a task is kept with its alias. The next file is compared with that: changes in the file are applied,
unless the same field has changed here as well; then the version here is kept, and reported. An export writes the
imported data with the changes made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlm_contexts.loading.places import PathReach
from rlm_ipc.json_size import MOST_VALUES, has_too_many_values
from rlm_ipc.messages import JsonObject
from rlm_ipc.work_requests import WorkImported
from rlm_mcp.formats.trackers.beads import Beads
from rlm_mcp.formats.trackers.task_master import TaskMaster
from rlm_mcp.formats.trackers.tasks import OPEN, FileFault, State, Tracked, Tracker
from rlm_mcp.service.errors import ToolFault
from rlm_memory.errors import EdgeRefused, RowRequestError
from rlm_memory.frames import edges, ending, rows, tree
from rlm_memory.frames.ending import record_end
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import OPEN as OPEN_STATUSES
from rlm_memory.frames.states import WAITING_TYPES, EdgeType, Kind, Status
from rlm_memory.frames.tree import Plan
from rlm_memory.store import Store
from rlm_memory.work import items, leases
from rlm_memory.work.items import Alias

TRACKERS: Mapping[str, Tracker] = {"beads": Beads(), "task-master": TaskMaster()}
_STATES: Mapping[Status, State] = {
    Status.PLANNED: OPEN,
    Status.IN_PROGRESS: OPEN,
    Status.COMPLETED: "completed",
    Status.FAILED: "blocked",
    Status.BLOCKED: "blocked",
    Status.INVALIDATED: "invalidated",
}
_STATUS: Mapping[State, Status] = {
    "completed": Status.COMPLETED,
    "blocked": Status.BLOCKED,
    "invalidated": Status.INVALIDATED,
}
_ID = re.compile(r"\bf[0-9]+\b")
_MOST_NAMED = 10
_MOST_BYTES = 64 << 20


@dataclass
class _Import:
    """One import: the frames by their names in the file, and its result."""

    store: Store
    source: str
    now: float
    frames: dict[str, int] = field(default_factory=dict)
    added: int = 0
    changed: set[str] = field(default_factory=set)
    kept: list[str] = field(default_factory=list)

    @property
    def author(self) -> str:
        return f"import of {self.source}"


def read_file(file: Path) -> str:
    """Return the text of a tracker's file, which is not trusted; raises SourceError, OSError or ValueError."""
    with PathReach().opened(file) as place, place.read() as descriptor, open(descriptor, "rb", closefd=False) as opened:
        data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"the file has more than {_MOST_BYTES:,} bytes")
    if has_too_many_values(data):
        raise ValueError(f"the file has more than {MOST_VALUES:,} values")
    return data.decode()


def import_tasks(
    store: Store, named: str, source: str, text: str, *, now: float, skip_missing: bool = False
) -> WorkImported:
    """Import the tasks of a file into the tree of that name: all of them or none.

    Raises:
        ToolFault: the file is not of this tracker, refers to a task that it does not contain, or has circular
            dependencies.
    """
    tracker = _tracker(source)
    try:
        tasks = tracker.read(text)
    except FileFault as fault:
        raise _refused(f"the file is not imported: {fault}") from fault
    tasks = _checked(tasks, skip_missing=skip_missing)
    run = _Import(store, source, now)
    with store.transaction():
        root = tree.root(store, named, author=run.author, now=now)
        assert root is not None
        known = {alias.alias: (frame, alias.data) for frame, alias in items.aliases(store, named, source)}
        run.frames = {alias: frame for alias, (frame, _) in known.items()}
        bases = {
            task.alias: tracker.again(known[task.alias][1]["data"], task.alias) for task in tasks if task.alias in known
        }
        by_name = {task.alias: task for task in tasks}
        for task in _from_above(tasks):
            if task.alias not in known:
                _add(run, task, root, by_name)
        for task in tasks:
            if (base := bases.get(task.alias)) is not None and base.data != task.data:
                _update(run, task, base)
        skipped = _link(run, tasks, bases, known)
        for task in reversed(_from_above(tasks)):
            _settle(run, task, bases.get(task.alias))
        for place, task in enumerate(tasks):
            data = {"data": task.data, "place": place, "skipped": skipped[task.alias]}
            if task.alias not in known or known[task.alias][1] != data:
                items.name(store, run.frames[task.alias], Alias(source, task.alias, data))
        gone = [f"{alias} ({rows.frame_id(run.frames[alias])})" for alias in known if alias not in by_name]
    run.kept += [f"no longer in the file: {', '.join(gone)}"] if gone else []
    same = len(tasks) - run.added - len(run.changed)
    return WorkImported(run.added, len(run.changed), same, tuple(run.kept))


def export_tasks(store: Store, named: str, source: str, *, now: float) -> str:
    """Return the file of a tracker with all tasks of a tree; new ones get names of its form."""
    tracker = _tracker(source)
    with store.transaction():
        root = rows.root_of(store, named)
        found = [] if root is None else [row for row in rows.whole(store, root.key) if row.kind is not Kind.SESSION]
        known = dict(items.aliases(store, named, source))
        known |= _named_anew(store, tracker, source, [row for row in found if row.key not in known], known, now)
        names = {frame: alias.alias for frame, alias in known.items()}
        written = []
        for row in found:
            if (alias := known.get(row.key)) is None:
                continue
            data = _as_it_is(store, tracker, row, alias, names, now)
            written.append((alias.data["place"], alias.alias, data))
    return tracker.write([(alias, data) for _, alias, data in sorted(written, key=lambda one: one[0])])


def _named_anew(
    store: Store, tracker: Tracker, source: str, rows_: Sequence[FrameRow], known: Mapping[int, Alias], now: float
) -> dict[int, Alias]:
    """Give new frames names of the tracker's form; edges follow once all have names."""
    names = {frame: alias.alias for frame, alias in known.items()}
    taken: dict[str, JsonObject] = {alias.alias: alias.data["data"] for alias in known.values()}
    place = max((alias.data["place"] for alias in known.values()), default=-1)
    made = {}
    for row in sorted(rows_, key=lambda row: (row.depth, row.key)):
        ours = replace(_ours(store, row, "", names), edges=())
        alias, data = tracker.new(ours, taken, row.id, now)
        place += 1
        names[row.key], taken[alias] = alias, data
        made[row.key] = Alias(source, alias, {"data": data, "place": place, "skipped": []})
    everything = {**known, **made}
    for row in rows_:
        data = _as_it_is(store, tracker, row, everything[row.key], names, now)
        made[row.key] = replace(made[row.key], data={**made[row.key].data, "data": data})
        items.name(store, row.key, made[row.key])
    return made


def _as_it_is(
    store: Store, tracker: Tracker, row: FrameRow, alias: Alias, names: Mapping[int, str], now: float
) -> JsonObject:
    """Return the data of a task with the changes made here. Edges that no frame has were not removed here."""
    base = tracker.again(alias.data["data"], alias.alias)
    skipped = {(type_, on) for type_, on in alias.data["skipped"]}
    ours = _ours(store, row, alias.alias, names)
    ended = row.status not in OPEN_STATUSES
    same = [edge for edge in base.edges if ended or edge in skipped or edge in ours.edges]
    ours = replace(ours, edges=tuple(dict.fromkeys((*same, *ours.edges))))
    return tracker.changed(alias.data["data"], ours, _as_kept(base), now)


# --- the file -------------------------------------------------------------------------------------


def _checked(tasks: Sequence[Tracked], *, skip_missing: bool) -> list[Tracked]:
    """Return the tasks if each is unique and refers to existing ones; with ``skip_missing``, drop other references."""
    seen: set[str] = set()
    for task in tasks:
        if task.alias in seen:
            raise _refused(f"the file has {task.alias} twice")
        seen.add(task.alias)
    missing = [f"{task.alias} names {on}" for task in tasks for on in _named(task) if on not in seen]
    if missing and not skip_missing:
        told = "; ".join(missing[:_MOST_NAMED]) + ("; …" if len(missing) > _MOST_NAMED else "")
        hint = "fix the file, or pass --skip-missing to keep these edges for the export only"
        raise ToolFault("missing_tasks", f"the file refers to tasks that it does not contain: {told}", hint)
    circle = _circle({task.alias: task.parent for task in tasks if task.parent in seen})
    if circle:
        raise _refused(f"these tasks are below each other: {' > '.join(circle)}")
    return [task if task.parent is None or task.parent in seen else replace(task, parent=None) for task in tasks]


def _named(task: Tracked) -> Iterable[str]:
    """Return the tasks that a task needs: its dependencies and its parent. Notes may refer to anything."""
    yield from (on for type_, on in task.edges if EdgeType(type_) in WAITING_TYPES)
    if task.parent is not None:
        yield task.parent


def _circle(parents: Mapping[str, str | None]) -> list[str]:
    done: set[str] = set()
    for start in parents:
        way: list[str] = []
        at: str | None = start
        while at is not None and at not in done and at not in way:
            way.append(at)
            at = parents.get(at)
        if at is not None and at in way:
            return [*way[way.index(at) :], at]
        done.update(way)
    return []


def _from_above(tasks: Sequence[Tracked]) -> list[Tracked]:
    """Return the tasks, parents first."""
    by_name = {task.alias: task for task in tasks}
    ordered: dict[str, Tracked] = {}
    for task in tasks:
        way = [task]
        while way[-1].parent in by_name and way[-1].parent not in ordered:
            way.append(by_name[str(way[-1].parent)])
        ordered |= {one.alias: one for one in reversed(way) if one.alias not in ordered}
    return list(ordered.values())


# --- frames ---------------------------------------------------------------------------------------


def _add(run: _Import, task: Tracked, root: FrameRow, by_name: Mapping[str, Tracked]) -> None:
    """Plan a task below its parent, or below the next open frame above if the parent has ended."""
    parent, above = task.parent, root.key
    while parent is not None:
        ended = by_name[parent].state in {"completed", "invalidated"} and task.state not in {"completed", "invalidated"}
        if not ended and rows.get(run.store, run.frames[parent]).status in OPEN_STATUSES:
            above = run.frames[parent]
            break
        parent = by_name[parent].parent
    wanted = Plan(task.goal, kind=Kind(task.kind), priority=task.priority)
    row = tree.plan(run.store, wanted, above, author=run.author, now=run.now)
    texts = {"description": task.description, "acceptance": task.acceptance}
    if any(texts.values()) or task.type != items.TYPES[0]:
        items.describe(run.store, row.key, type_=task.type, **texts)
    run.frames[task.alias] = row.key
    run.added += 1


def _update(run: _Import, task: Tracked, base: Tracked) -> None:
    """Apply the changes of the file; keep and report fields that have changed here as well."""
    key = run.frames[task.alias]
    row, item = rows.get(run.store, key), items.get(run.store, key)
    ours = {"goal": row.goal, "priority": row.priority, "type": item.type}
    ours |= {"description": item.description, "acceptance": item.acceptance}
    new = {}
    run.changed.add(task.alias)
    for name, here in ours.items():
        was, now = items.kept(name, getattr(base, name)), items.kept(name, getattr(task, name))
        if now in {was, here}:
            continue
        if here != was:
            run.kept.append(
                f"{task.alias} ({row.id}): {name} has changed in the file and here; the version here is kept"
            )
            continue
        new[name] = now
    if "goal" in new:
        items.set_goal(run.store, key, str(new["goal"]), author=run.author, now=run.now)
    if "priority" in new:
        items.set_priority(run.store, key, int(new["priority"]), author=run.author, now=run.now)
    texts = {name: str(new[name]) for name in ("description", "acceptance") if name in new}
    if texts or "type" in new:
        items.describe(run.store, key, type_=None if "type" not in new else str(new["type"]), **texts)
    if task.parent != base.parent:
        run.kept.append(
            f"{task.alias} ({row.id}): it is below {task.parent or 'nothing'} in the file; frames are not moved"
        )


def _link(
    run: _Import,
    tasks: Sequence[Tracked],
    bases: Mapping[str, Tracked],
    known: Mapping[str, tuple[int, Mapping[str, object]]],
) -> dict[str, list[list[str]]]:
    """Update the edges. Return by task those of the file that no frame has: they are kept for the export."""
    skipped: dict[str, list[list[str]]] = {}
    for task in tasks:
        base = bases.get(task.alias)
        if base is not None and base.edges == task.edges:
            skipped[task.alias] = list(known[task.alias][1]["skipped"])  # type: ignore[call-overload]
            continue
        key = run.frames[task.alias]
        for type_, on in base.edges if base is not None else ():
            if (type_, on) not in task.edges and on in run.frames:
                edges.remove(run.store, key, run.frames[on], author=run.author, now=run.now)
        skipped[task.alias] = [[type_, on] for type_, on in task.edges if not _linked(run, task, EdgeType(type_), on)]
    return skipped


def _linked(run: _Import, task: Tracked, type_: EdgeType, on: str) -> bool:
    """Add an edge, unless the frame has ended and waits for nothing."""
    if on not in run.frames or (type_ in WAITING_TYPES and task.state in {"completed", "invalidated"}):
        return False
    key, target = run.frames[task.alias], run.frames[on]
    row, other = rows.get(run.store, key), rows.get(run.store, target)
    waits_already = {edge.type for edge in edges.edges_of(run.store, key) if edge.target == target} & WAITING_TYPES
    if type_ in WAITING_TYPES and (waits_already - {type_} or row.status not in OPEN_STATUSES):
        return False
    if type_ is EdgeType.ON_FAILURE and other.status in {Status.COMPLETED, Status.INVALIDATED}:
        return False
    try:
        edges.add(run.store, key, target, type_, author=run.author, now=run.now)
    except EdgeRefused as error:
        names = {rows.frame_id(frame): alias for alias, frame in run.frames.items()}
        told = _ID.sub(lambda found: names.get(found[0], found[0]), str(error))
        raise _refused(f"the file is not imported: {told}") from error
    return True


def _settle(run: _Import, task: Tracked, base: Tracked | None) -> None:
    """Give a frame the status of its task in the file, if that has changed."""
    key = run.frames[task.alias]
    row = rows.get(run.store, key)
    here = _STATES[row.status]
    if task.state in {OPEN if base is None else base.state, here}:
        return
    why = ""
    if base is not None and here != base.state:
        why = f"it is {task.state} in the file and {row.status} here; the status here is kept"
    elif row.status is Status.IN_PROGRESS and (leases.is_held(row) or row.session is not None):
        why = f"it is {task.state} in the file, and someone works on it here; pop it"
    elif task.state == OPEN:
        try:
            ending.reopen(run.store, key, author=run.author, now=run.now)
        except RowRequestError as error:
            why = f"it is open in the file, and stays {row.status} here: {error}"
    else:
        record_end(run.store, key, _STATUS[task.state], task.why, author=run.author, now=run.now)
    if why:
        run.kept.append(f"{task.alias} ({row.id}): {why}")


def _ours(store: Store, row: FrameRow, alias: str, names: Mapping[int, str]) -> Tracked:
    """Return a frame as a task."""
    item, kept = items.get(store, row.key), rows.compaction_of(store, row.key)
    return Tracked(
        alias=alias,
        goal=row.goal,
        kind="epic" if row.kind is Kind.EPIC else "story" if row.kind is Kind.STORY else "task",
        type=item.type,
        priority=row.priority,
        state=_STATES[row.status],
        why=kept.text if kept is not None else "",
        description=item.description,
        acceptance=item.acceptance,
        parent=None if row.parent is None else names.get(row.parent),
        edges=tuple(
            (edge.type.value, names[edge.target]) for edge in edges.edges_of(store, row.key) if edge.target in names
        ),
    )


def _as_kept(task: Tracked) -> Tracked:
    """Return a task of a file as a frame can hold it, with long texts cut."""
    texts = {name: items.kept(name, getattr(task, name)) for name in ("goal", "description", "acceptance")}
    return replace(task, **texts)


def _tracker(source: str) -> Tracker:
    if source not in TRACKERS:
        raise _refused(f"{source[:80]!r} is not a tracker; use {' or '.join(TRACKERS)}")
    return TRACKERS[source]


def _refused(why: str) -> ToolFault:
    return ToolFault("invalid_arguments", why, "nothing was changed; see `rlm-kernel docs trackers`")
