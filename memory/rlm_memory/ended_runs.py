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

from sqlalchemy import delete, func, insert, select

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.schema import ended_runs as table
from rlm_memory.store import Store

MOST_ROWS = 500
"""Number of sessions kept."""
MOST_BYTES = 64 << 20
"""Bytes of all records together, compressed."""
SECONDS_KEPT = 30 * 86_400.0


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
    values = {**asdict(runs), "lines": list(runs.lines), "record": packed, "size": len(packed)}
    with store.transaction() as connection:
        expire(store, runs.ended_at)
        connection.execute(delete(table).where(table.c.key == runs.key))
        connection.execute(insert(table).values(**values))
        over = limits.numbers_beyond(table, size=MOST_BYTES, rows=MOST_ROWS)
        connection.execute(delete(table).where(table.c.number.in_(over)))


def expire(store: Store, now: float) -> int:
    """Delete the runs that have passed the maximum age. Return the number of sessions affected."""
    return store.run(delete(table).where(table.c.ended_at < now - SECONDS_KEPT))


def find(store: Store, session: int) -> EndedRuns | None:
    """Return the runs of an ended session."""
    statement = select(table.c.key, table.c.parent, table.c.ended_at, table.c.lines, table.c.record)
    row = store.row(statement.where(table.c.key == session))
    return None if row is None else EndedRuns(**{**row, "record": json.loads(zlib.decompress(row["record"]))})


def below(store: Store, session: int) -> list[int]:
    """List the sessions that were forked from this one, in the order in which they ended."""
    return store.scalars(select(table.c.key).where(table.c.parent == session).order_by(table.c.number))


def lines(store: Store, most: int) -> list[Mapping[str, Any]]:
    """List the lines of the ``most`` sessions that ended last, latest first."""
    statement = select(table.c.lines).order_by(table.c.number.desc()).limit(most)
    return [line for row in store.scalars(statement) for line in row]


def latest(store: Store) -> tuple[int, int]:
    """Return the number of sessions kept and the number of the latest one.

    Any change in the table changes this pair.
    """
    statement = select(func.count().label("kept"), func.coalesce(func.max(table.c.number), 0).label("latest"))
    (row,) = store.rows(statement)
    return row["kept"], row["latest"]


def forget(store: Store, session: int) -> int:
    """Delete the runs of a session and of all its forks. Return how many sessions that was."""
    with store.transaction() as connection:
        gone: list[int] = []
        among = [session]
        while among:
            gone += among
            among = list(connection.execute(select(table.c.key).where(table.c.parent.in_(among))).scalars())
        return connection.execute(delete(table).where(table.c.key.in_(gone))).rowcount
