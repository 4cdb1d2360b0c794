"""The queue for a human reader: where every task stands, what it waits for, and who is in whose way."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.frames.rows import FrameRow, frame_id
from rlm_memory.frames.states import Kind, Status
from rlm_memory.store import Store
from rlm_memory.work import holders, leases
from rlm_memory.work.paths import OVERLAP, overlap

REFUSED_WRITE = "refused write"
"""The verb of the event that a hook's refusal leaves on the frame that holds the path."""
LONGEST = 240
"""Characters shown of a goal and of a reason."""
_MOST_REFUSED = 50

_COLUMNS = ", ".join(
    name if name != "goal" else f"substr(goal, 1, {LONGEST}) AS goal"
    for name in FrameRow.__dataclass_fields__
    if name != "log"
)
_TASKS = f"SELECT {_COLUMNS} FROM frames WHERE kind <> 'session' ORDER BY key"
_ROOTS = "SELECT tree, key FROM frames WHERE parent IS NULL"
_LINKS = "SELECT frame, target, type, resolved FROM frame_edges ORDER BY frame, target, type"
_PATHS = "SELECT frame, path FROM frame_paths ORDER BY frame, path"
_REASONS = f"""
    SELECT f.key, substr(c.text, 1, {LONGEST}) AS reason FROM frames f
    JOIN frame_compactions c ON c.number = (SELECT max(l.number) FROM frame_compactions l WHERE l.frame = f.key)
    WHERE f.status IN ('blocked', 'failed')"""
# Who holds a frame now, since when, and when that holder was last active.
_HELD = """
    SELECT f.key, h.label, h.beat_at, h.expires_at, (
        SELECT e.at FROM frame_events e WHERE e.frame = f.key AND e.verb = 'claim' ORDER BY e.number DESC LIMIT 1
    ) AS claimed_at
    FROM frames f JOIN holders h ON h.id = f.holder WHERE f.holder IS NOT NULL AND f.freed_at IS NULL"""
_KEPT_BACK = f"""
    SELECT f.key FROM frames f WHERE f.key IN (SELECT value FROM json_each(:keys)) AND EXISTS ({OVERLAP})"""
_REFUSED = """
    SELECT e.frame, e.at, e.author, json_extract(e.data, '$.path') AS path, f.tree
    FROM frame_events e JOIN frames f ON f.key = e.frame WHERE e.verb = :verb ORDER BY e.number DESC LIMIT :most"""
_STATE = """
    SELECT (SELECT coalesce(max(number), 0) FROM frame_events) AS event, (SELECT count(*) FROM frames) AS frames"""


@dataclass(frozen=True, slots=True)
class Link:
    """A frame at the other end of a task's edge, the type of the edge, and whether the task still waits for it."""

    on: str
    type: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a frame: a label, when the holder was last active, when it claimed, and whether it is stale."""

    label: str
    beat: float
    claimed: float | None
    stale: bool


_NOBODY = Held("", 0.0, None, stale=False)


@dataclass(frozen=True, slots=True)
class Card:
    """One task, story or epic. Times are epoch seconds; ``root`` is the frame at the top of its tree.

    ``state`` is its status, or a finer state from its row: ready, waiting, stale. ``reason`` is why it failed or is
    blocked. ``ends`` says that everything below a story or an epic has ended, and someone has to pop it.
    """

    id: str
    root: str
    parent: str | None
    kind: str
    goal: str
    state: str
    priority: int
    attempt: int
    holder: str
    claimed: float | None
    beat: float | None
    reason: str
    ends: bool
    paths: tuple[str, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two tasks that want to write to the same path.

    ``kind`` is ``leases`` (both are claimed), ``ready`` (``frame`` could start if ``other`` had ended), or ``write``:
    at ``at``, ``who`` was refused a write to a path that ``other`` has claimed.
    """

    kind: str
    root: str
    path: str
    frame: str
    other: str
    who: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """The whole board. ``roots`` maps the frame at the top of each tree with tasks to the location of the tree."""

    cards: Mapping[str, Card]
    conflicts: Sequence[Conflict]
    roots: Mapping[str, str]


def state(row: FrameRow, *, stale: bool = False) -> str:
    """Return the status of a frame, or a finer state: it waits, someone holds it, or its holder has left it."""
    if row.status is Status.PLANNED and (row.waiting or row.closed_above):
        return "waiting"
    if row.status is Status.PLANNED and not row.open_children and row.kind == "task":
        return "ready"
    if leases.is_held(row):
        return "stale" if stale else "in_progress"
    if row.status is Status.IN_PROGRESS and row.freed_at is not None and not row.open_children:
        return "waiting" if row.waiting or row.closed_above else "ready"
    return row.status.value


def newest(store: Store) -> tuple[int, int]:
    """Return numbers of which at least one changes whenever anything except the life of a holder changes."""
    (row,) = store.rows(_STATE)
    return row["event"], row["frames"]


def held(store: Store, *, now: float) -> dict[int, Held]:
    """Map each held frame to its holder."""
    return {
        row["key"]: Held(
            row["label"],
            row["beat_at"],
            row["claimed_at"],
            stale=holders.is_stale(row["beat_at"], row["expires_at"], now),
        )
        for row in store.rows(_HELD)
    }


def read(store: Store, *, now: float) -> Board:
    """Read the board of all trees."""
    with store.transaction():
        rows = store.records(FrameRow, _TASKS)
        links: dict[int, list[Link]] = defaultdict(list)
        for row in store.rows(_LINKS):
            links[row["frame"]].append(Link(frame_id(row["target"]), row["type"], not row["resolved"]))
        paths: dict[int, list[str]] = defaultdict(list)
        for row in store.rows(_PATHS):
            paths[row["frame"]].append(row["path"])
        roots = {row["tree"]: frame_id(row["key"]) for row in store.rows(_ROOTS)}
        reasons = {row["key"]: row["reason"] for row in store.rows(_REASONS)}
        owned = held(store, now=now)
        cards = {
            row.id: _card(row, roots[row.tree], owned.get(row.key, _NOBODY), reasons.get(row.key, ""), paths, links)
            for row in rows
        }
        ready = [row for row in rows if paths.get(row.key) and cards[row.id].state == "ready"]
        held_back = {row["key"] for row in store.rows(_KEPT_BACK, keys=json.dumps([row.key for row in ready]))}
        refused = [
            Conflict(
                "write", roots[row["tree"]], row["path"] or "", "", frame_id(row["frame"]), row["author"], row["at"]
            )
            for row in store.rows(_REFUSED, verb=REFUSED_WRITE, most=_MOST_REFUSED)
        ]
    owners = [row for row in rows if leases.is_held(row) and paths.get(row.key)]
    conflicts = [
        Conflict("leases", roots[one.tree], where, one.id, other.id)
        for one, other in combinations(owners, 2)
        if one.tree == other.tree and (where := _shared(paths[one.key], paths[other.key]))
    ]
    conflicts += [
        Conflict("ready", roots[row.tree], where, row.id, other.id)
        for row in ready
        if row.key in held_back
        for other in owners
        if other.tree == row.tree and (where := _shared(paths[row.key], paths[other.key]))
    ]
    used = {card.root for card in cards.values()}
    return Board(cards, conflicts + refused, {root: tree for tree, root in roots.items() if root in used})


def _card(
    row: FrameRow,
    root: str,
    by: Held,
    reason: str,
    paths: Mapping[int, Sequence[str]],
    links: Mapping[int, Sequence[Link]],
) -> Card:
    return Card(
        id=row.id,
        root=root,
        parent=None if row.parent is None else frame_id(row.parent),
        kind=row.kind.value,
        goal=row.goal,
        state=state(row, stale=by.stale),
        priority=row.priority,
        attempt=row.fence,
        holder=by.label,
        claimed=by.claimed,
        beat=by.beat or None,
        reason=reason,
        ends=row.kind is not Kind.TASK and row.status is Status.IN_PROGRESS and not row.open_children,
        paths=tuple(paths.get(row.key, ())),
        links=tuple(links.get(row.key, ())),
    )


def _shared(mine: Sequence[str], theirs: Sequence[str]) -> str:
    """Return the narrower of two overlapping paths; empty if none overlap."""
    return next((max(one, other, key=len) for one in mine for other in theirs if overlap(one, other)), "")
