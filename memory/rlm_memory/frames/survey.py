"""Frames at a glance: the lines of a tree, and a survey of all frames that only rereads those that have changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from sqlite3 import Row

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.tree_record import WITHOUT_SESSION
from rlm_memory.frames.context import assemble
from rlm_memory.frames.rows import FrameRow, frame_id, unchanged_while
from rlm_memory.store import Store

LONGEST_GLANCE = 240
"""Characters shown of a goal and of a summary."""
_MOST_KEPT = 100

_GLANCE = """
    SELECT 'f' || f.key, 'f' || f.parent, f.kind, substr(f.goal, 1, :longest), f.status, s.id, f.started_at, f.ended_at,
        coalesce(substr(c.text, 1, :longest), ''), coalesce(json_array_length(c.artifacts), 0)
    FROM frames f LEFT JOIN sessions s ON s.key = f.session
    LEFT JOIN frame_compactions c ON c.number = (SELECT max(l.number) FROM frame_compactions l WHERE l.frame = f.key)
"""
# Parents come before their children, and siblings by age, because SQLite takes the deepest row that it has found first.
# The path down uses the index alone and stops at the limit; a join would have its own order. The lines are built here
# too, which halves the time for 200 of them. A root has no session while its repository has none.
_SHOWN = f"""
        UNION ALL SELECT frames.key, shown.depth + 1 FROM frames JOIN shown ON frames.parent = shown.key
        ORDER BY 2 DESC, 1
    ) SELECT (
        SELECT replace(hex(zeroblob(shown.depth)), '0', ' ') || 'f' || key || ' ' || status || ' '
            || substr(goal, 1, 120)
            || iif(kind = 'session' AND session IS NULL AND parent IS NOT NULL, '{WITHOUT_SESSION}', '')
        FROM frames WHERE frames.key = shown.key
    ) FROM shown LIMIT :most"""
_OF_TREE = f"""
    WITH RECURSIVE shown(key, depth) AS (
        SELECT key, 0 FROM frames WHERE tree = :named AND parent IS NULL{_SHOWN}"""
_BELOW = f"""
    WITH RECURSIVE shown(key, depth) AS (
        SELECT key, 0 FROM frames WHERE key = :named{_SHOWN}"""
_CHILDREN = "SELECT key FROM frames WHERE parent = :named ORDER BY key LIMIT :most"
# A frame that ran in no session of its own passes on the results of those below it.
_CAME_TO = """
    WITH RECURSIVE here(key) AS (
        SELECT key FROM frames WHERE session = :session
        UNION
        SELECT frames.key FROM frames JOIN here ON frames.parent = here.key
        WHERE frames.session IS NULL AND frames.forked_from IS NULL AND frames.started_at IS NOT NULL
    ) SELECT child.key, child.goal, child.status, c.text, c.artifacts, c.decisions, (
        SELECT json_group_array(name) FROM (SELECT name FROM frame_handovers WHERE frame = child.key ORDER BY name)
    ) AS given FROM here JOIN frames child ON child.parent = here.key
    LEFT JOIN frame_compactions c
        ON c.number = (SELECT max(l.number) FROM frame_compactions l WHERE l.frame = child.key)
    WHERE child.ended IS NOT NULL ORDER BY child.ended DESC LIMIT :most"""
_ALL = f"{_GLANCE} ORDER BY f.key"
_CHANGED = f"""{_GLANCE} WHERE f.key IN (
    SELECT frame FROM frame_events WHERE number > :event
    UNION SELECT frame FROM frame_compactions WHERE number > :compaction) ORDER BY f.key"""
_RUNNING = f"{_GLANCE} WHERE f.status = 'in_progress' AND f.kind != 'session' ORDER BY f.key LIMIT :most"
# Sessions come and go through this column alone: their number shows that it has changed.
_STATE = """
    SELECT (SELECT coalesce(max(number), 0) FROM frame_events) AS event,
        (SELECT coalesce(max(number), 0) FROM frame_compactions) AS compaction,
        (SELECT count(*) FROM frames) AS frames,
        (SELECT count(*) FROM frames WHERE session IS NOT NULL) AS sessions"""
# Rewriting a log changes no row of its frame: the change shows in that the log is no longer owed.
_STATE_OF_ALL = """
    SELECT (SELECT coalesce(max(number), 0) FROM frame_events) AS event,
        (SELECT coalesce(max(number), 0) FROM frame_compactions) AS compaction,
        (SELECT count(*) FROM frames) AS frames, (SELECT count(*) FROM frame_operations) AS owed"""
# From the newest event backwards: the latest event of a tree in use is among the first.
_STATE_OF_TREE = """
    SELECT (SELECT count(*) FROM frames WHERE tree = :tree) AS frames, (
        SELECT number FROM frame_events CROSS JOIN frames ON frames.key = frame_events.frame
        WHERE frames.tree = :tree ORDER BY number DESC LIMIT 1) AS event"""


@dataclass(frozen=True, slots=True)
class FrameGlance:
    """One frame; ``parent`` is an id, ``session`` the name of its present or last session, times are epoch seconds.

    ``goal`` and ``summary`` are cut to `LONGEST_GLANCE`; ``artifacts`` is their number.
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


@dataclass(frozen=True, slots=True)
class CameTo:
    """What code sees of a frame that has ended below its session; ``values`` are the names that it has handed over."""

    goal: str
    status: str
    summary: str
    artifacts: Sequence[str]
    decisions: Sequence[str]
    values: Sequence[str]


class Survey:
    """A watcher's copy of all frames. `look` brings it up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state: Row | None = None
        self.known: dict[str, FrameGlance] = {}

    def look(self) -> bool:
        """Bring ``known`` up to date. Return whether anything may have changed."""
        with self._store.transaction():
            (state,) = self._store.rows(_STATE)
            if state == self._state:
                return False
            before, self._state = self._state, state
            if before is not None:
                for glance in _glances(self._store, _CHANGED, event=before["event"], compaction=before["compaction"]):
                    self.known[glance.id] = glance
            here = sum(glance.session is not None for glance in self.known.values())
            if before is None or (len(self.known), here) != (state["frames"], state["sessions"]):
                self.known = {glance.id: glance for glance in _glances(self._store, _ALL)}
        return True


@dataclass(frozen=True, slots=True)
class View:
    """A frame in its surroundings: keys of its children, the lines of its tree, and its context."""

    children: Sequence[int]
    tree: Sequence[str]
    context: str


class Views:
    """Views of frames, each kept until any frame changes: many readers look at what few writers change.

    A view has up to ``most`` children and ``most`` lines of the tree.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._state: tuple[int, ...] = ()
        self._kept: dict[tuple[int, int], View] = {}

    def of(self, row: FrameRow, tokens: int) -> View:
        """Return the view of a frame, with a context of up to ``tokens`` tokens."""
        with self._store.transaction():
            state = unchanged_while(self._store)
            if state != self._state or len(self._kept) >= _MOST_KEPT:
                self._state, self._kept = state, {}
            if (row.key, tokens) not in self._kept:
                self._kept[row.key, tokens] = View(
                    children(self._store, row.key, self._most),
                    lines(self._store, row.tree, self._most),
                    assemble(self._store, row.key, tokens=tokens),
                )
            return self._kept[row.key, tokens]

    def clear(self) -> None:
        """Drop all views, so that nothing of a forgotten frame stays in memory."""
        self._kept = {}


def came_to(store: Store, session: int, most: int) -> dict[str, CameTo]:
    """Map the ids of frames that have ended below those of a session to their results.

    These are the ``most`` latest ones, latest last.
    """
    return {
        frame_id(row["key"]): CameTo(
            row["goal"],
            row["status"],
            row["text"] or "",
            *(json.loads(row[name] or "[]") for name in ("artifacts", "decisions", "given")),
        )
        for row in reversed(store.rows(_CAME_TO, session=session, most=most))
    }


def lines(store: Store, tree: str, most: int = -1) -> list[str]:
    """Return a line for each frame of a tree, root first, each after its parent, siblings by age."""
    return store.scalars(_OF_TREE, named=tree, most=most)


def lines_below(store: Store, row: FrameRow) -> list[str]:
    """Return such lines for a frame and everything below it, starting at the margin."""
    return store.scalars(_BELOW, named=row.key, most=-1)


def children(store: Store, key: int, most: int) -> list[int]:
    """List the keys of a frame's children, oldest first, up to ``most``."""
    return store.scalars(_CHILDREN, named=key, most=most)


def state_of_all(store: Store) -> Mapping[str, int]:
    """Return numbers of which at least one changes whenever anything about any frame changes, its log included."""
    return dict(store.one(_STATE_OF_ALL))


def state_of_tree(store: Store, tree: str) -> Mapping[str, int | None]:
    """Return numbers of which at least one changes whenever a frame of the tree is added, deleted or changed."""
    return dict(store.one(_STATE_OF_TREE, tree=tree))


def running(store: Store, most: int) -> list[FrameGlance]:
    """List the running goals, oldest first, up to ``most``, without frames that stand for sessions."""
    return _glances(store, _RUNNING, most=most)


def _glances(store: Store, statement: str, **values: int) -> list[FrameGlance]:
    return [FrameGlance(*row) for row in store.rows(statement, longest=LONGEST_GLANCE, **values)]
