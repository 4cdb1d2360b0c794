"""Records of ended sessions in which a model worked by itself. Bounded in number, bytes and age.

A run is read after its end: `rlm-kernel ask` ends its own session when it has the answer. So the record outlives that
session, until someone forgets it. Nothing is kept of other sessions.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.schema import ended_runs
from rlm_memory.store import Store
from rlm_memory.tables import insert_into

MOST_ROWS = 500
"""Number of sessions kept."""
MOST_BYTES = 64 << 20
"""Bytes of all records together, compressed."""
SECONDS_KEPT = 30 * 86_400.0

_KEEP = insert_into(ended_runs)
_EXPIRE = "DELETE FROM run_records WHERE ended_at < :earliest"
_DROP = "DELETE FROM run_records WHERE key = :of"
_DROP_BEYOND = f"DELETE FROM run_records WHERE number IN ({limits.oldest_beyond('run_records')})"
_FIND = "SELECT key, parent, ended_at, lines, record FROM run_records WHERE key = :of"
_BELOW = "SELECT key FROM run_records WHERE parent = :of ORDER BY number"
_LINES = "SELECT lines FROM run_records ORDER BY number DESC LIMIT :most"
_LATEST = "SELECT count(*), coalesce(max(number), 0) FROM run_records"
_FORGET = """
    DELETE FROM run_records WHERE key IN (
        WITH RECURSIVE family (key) AS (
            VALUES (:of) UNION SELECT forks.key FROM run_records AS forks JOIN family ON forks.parent = family.key
        )
        SELECT key FROM family
    )
"""


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """The runs of a session: one line for each, and the full record. ``parent`` is the session it was forked from."""

    key: int
    parent: int | None
    ended_at: float
    lines: Sequence[Mapping[str, Any]]
    record: Mapping[str, Any]


def keep(store: Store, runs: EndedRuns) -> None:
    """Keep the runs of a session that is ending. If there are too many, the oldest are deleted."""
    packed = zlib.compress(json.dumps(runs.record).encode())
    lines = json.dumps(list(runs.lines))
    with store.transaction():
        expire(store, runs.ended_at)
        store.run(_DROP, of=runs.key)
        store.run(_KEEP, **{**asdict(runs), "lines": lines, "record": packed, "size": len(packed), "number": None})
        store.run(_DROP_BEYOND, size=MOST_BYTES, rows=MOST_ROWS)


def expire(store: Store, now: float) -> int:
    """Delete the runs that have passed the maximum age. Return the number of sessions affected."""
    return store.run(_EXPIRE, earliest=now - SECONDS_KEPT)


def find(store: Store, session: int) -> EndedRuns | None:
    """Return the runs of an ended session."""
    row = store.row(_FIND, of=session)
    if row is None:
        return None
    record = json.loads(zlib.decompress(row["record"]))
    return EndedRuns(**{**row, "lines": json.loads(row["lines"]), "record": record})


def below(store: Store, session: int) -> list[int]:
    """List the sessions that were forked from this one, in the order in which they ended."""
    return store.scalars(_BELOW, of=session)


def lines(store: Store, most: int) -> list[Mapping[str, Any]]:
    """List the lines of the ``most`` sessions that ended last, latest first."""
    return [line for found in store.scalars(_LINES, most=most) for line in json.loads(found)]


def latest(store: Store) -> tuple[int, int]:
    """Return the number of sessions kept and the number of the latest one.

    Any change in the table changes this pair.
    """
    ((kept, number),) = store.rows(_LATEST)
    return kept, number


def forget(store: Store, session: int) -> int:
    """Delete the runs of a session and of all its forks. Return how many sessions that was."""
    return store.run(_FORGET, of=session)
