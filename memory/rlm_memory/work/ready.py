"""What to do next: reading the queue is an index lookup over frames, in the order of their scores.

A score is the priority (250, 500, 750 or 1000), plus 50 for each frame that waits, plus up to 100 for age, reached
after 30 days. Age changes with time, so the index cannot contain it. But everything else comes in steps of 50: only
frames within 100 of the best can win, and among frames of one step the oldest wins. So the query reads the first few of
each of these steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.frame_schema import BASE, READY
from rlm_memory.frames.rows import frame_id
from rlm_memory.store import Store
from rlm_memory.work.paths import OVERLAP, declared, overlap

PRIORITIES = (1000, 750, 500, 250)
"""The first is the most urgent."""
OLDEST_COUNTS = 30 * 86_400
"""Age in seconds at which age counts fully."""

_FREE = f"NOT EXISTS ({OVERLAP})"
_OF_STEP = f"f.tree = :tree AND {READY} AND {BASE} = step.base AND {_FREE}"
_FOUND = f"(SELECT count(*) FROM (SELECT 1 FROM frames f WHERE {_OF_STEP} LIMIT :most))"
_SCORE = f"{BASE} + min(100.0, max(0.0, (:now - created_at) * 100.0 / {OLDEST_COUNTS}))"
# `found` counts the frames of the steps before; `least` is set once these are enough, because nothing below can win.
_READY = f"""
    WITH RECURSIVE step(base, found, least) AS (
        SELECT max({BASE}), 0, NULL FROM frames WHERE tree = :tree AND {READY}
        UNION ALL
        SELECT (SELECT max({BASE}) FROM frames WHERE tree = :tree AND {READY} AND {BASE} < step.base),
            found + {_FOUND}, coalesce(least, CASE WHEN found + {_FOUND} >= :most THEN base - 100 END)
        FROM step WHERE base IS NOT NULL AND (least IS NULL OR base >= least)
    )
    SELECT key, {_SCORE} AS score FROM step JOIN frames ON key IN (
        SELECT f.key FROM frames f WHERE {_OF_STEP} ORDER BY created_at, key LIMIT :most
    ) WHERE least IS NULL OR base >= least ORDER BY score DESC, created_at, key LIMIT :most"""
_SCOPE = """
    WITH RECURSIVE scope(key) AS (
        SELECT :scope
        UNION ALL SELECT c.key FROM scope JOIN frames c ON c.parent = scope.key
            WHERE c.status IN ('planned', 'in_progress')
    )"""
_READY_BELOW = f"""{_SCOPE}
    SELECT f.key AS key, {_SCORE} AS score FROM scope JOIN frames f ON f.key = scope.key
    WHERE {READY} AND {_FREE} ORDER BY score DESC, created_at, f.key LIMIT :most"""
_COUNT = f"SELECT count(*) FROM frames WHERE tree = :tree AND {READY}"
_ADDED = """
    SELECT 1 FROM frames WHERE tree = :tree AND kind <> 'session' AND (author = 'work' OR author LIKE 'import of %')
    LIMIT 1"""
_COUNT_BELOW = f"{_SCOPE} SELECT count(*) FROM scope JOIN frames f ON f.key = scope.key WHERE {READY}"
# What cannot start (S) or end (E), or have all its children ended (C), before something else has.
_STOPPED = """
    WITH RECURSIVE later(key, what) AS (
        SELECT :key, :what
        UNION SELECT key, 'E' FROM later WHERE what IN ('S', 'C')
        UNION SELECT key, 'C' FROM later WHERE what = 'S'
        UNION SELECT f.key, 'S' FROM later JOIN frames f ON f.parent = later.key WHERE what = 'S'
        UNION SELECT f.parent, 'C' FROM later JOIN frames f ON f.key = later.key
            WHERE what = 'E' AND f.parent IS NOT NULL AND f.status IN ('planned', 'in_progress', 'blocked')
        UNION SELECT e.frame, 'S' FROM later JOIN frame_edges e ON e.target = later.key
            WHERE NOT e.resolved AND (
                (what = 'E' AND e.type IN ('blocks', 'on_failure')) OR (what = 'C' AND e.type = 'waits_for'))
    ) SELECT count(DISTINCT later.key) FROM later JOIN frames f ON f.key = later.key
    WHERE what = 'S' AND f.kind = 'task' AND f.status = 'planned' AND f.key <> :key"""
# What someone must decide: a frame failed or is blocked, or all its children have ended and it was not popped.
_IN_THE_WAY = """
    SELECT key, status FROM frames f WHERE tree = :tree AND kind <> 'session' AND (
        status = 'blocked'
        OR (dependents > 0 AND status = 'failed')
        OR (dependents > 0 AND status IN ('planned', 'in_progress') AND open_children = 0 AND kind <> 'task')
    ) ORDER BY key"""
_STARTS_NOTHING = "blocked"


@dataclass(frozen=True, slots=True)
class Stuck:
    """A frame that keeps others waiting until someone decides: its status, and how many tasks wait for it."""

    frame: str
    status: str
    waiting: int


def ready(store: Store, tree: str, *, now: float, most: int = 1, scope: int | None = None) -> list[int]:
    """List the frames that may be claimed, best first: in the tree, or within the frame ``scope``.

    Frames that declare a path on which someone works are left out.
    """
    return store.scalars(_READY if scope is None else _READY_BELOW, tree=tree, now=now, most=most, scope=scope)


def count_ready(store: Store, tree: str, *, scope: int | None = None) -> int:
    """Count what may be claimed, ignoring paths."""
    return int(store.scalar(_COUNT if scope is None else _COUNT_BELOW, tree=tree, scope=scope))


def has_queue(store: Store, tree: str) -> bool:
    """Whether anyone has added or imported a task into the queue of a tree; agents' plans do not count."""
    return store.row(_ADDED, tree=tree) is not None


def next_batch(store: Store, tree: str, *, now: float, most: int = 3, scope: int | None = None) -> list[str]:
    """Return the ids of the best frames that can be worked on in parallel: no two declare overlapping paths."""
    looked = max(16, 8 * most)
    with store.transaction():
        while True:
            found = ready(store, tree, now=now, most=looked, scope=scope)
            chosen = _apart(found, declared(store, found), most)
            if len(chosen) == most or len(found) < looked:
                return chosen
            looked *= 4


def _apart(found: Sequence[int], of: dict[int, list[str]], most: int) -> list[str]:
    chosen: list[str] = []
    taken: list[str] = []
    for key in found:
        mine = of.get(key, [])
        if not any(overlap(path, other) for path in mine for other in taken):
            chosen.append(frame_id(key))
            taken += mine
        if len(chosen) == most:
            break
    return chosen


def stuck(store: Store, tree: str) -> list[Stuck]:
    """List what keeps planned tasks waiting until someone decides, the one that stops most first."""
    with store.transaction():
        found = []
        for key, status in store.rows(_IN_THE_WAY, tree=tree):
            waiting = store.scalar(_STOPPED, key=key, what="S" if status == _STARTS_NOTHING else "E")
            if waiting:
                found.append(Stuck(frame_id(key), status, waiting))
    return sorted(found, key=lambda one: (-one.waiting, one.frame))
