"""The cache of queries: answers that are given again to the same question, bounded by number.

Only sessions whose policy allows it read or write the cache. Questions are compared by a hash of everything that
matters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from sqlalchemy import bindparam, delete, func, select, update

from rlm_memory.queries import QueryRow
from rlm_memory.schema import known_answers as table
from rlm_memory.schema import upsert
from rlm_memory.store import Store

_MOST_KEPT = 10_000
_DROPPED_AT_ONCE = 500


_USE = update(table).where(table.c.key == bindparam("asked")).values(used_at=bindparam("now")).returning(table.c.answer)
_KEEP = upsert(table)
_COUNT = select(func.count()).select_from(table)
_DROP = delete(table).where(table.c.key.in_(select(table.c.key).order_by(table.c.used_at).limit(_DROPPED_AT_ONCE)))


def find(store: Store, asked: Iterable[QueryRow], now: float) -> dict[str, str]:
    """Return the earlier answers to such queries, by the ids of those that have one."""
    known = {}
    with store.transaction() as connection:
        for query in asked:
            answer = connection.execute(_USE, {"asked": _key(query), "now": now}).scalar_one_or_none()
            if answer is not None:
                known[query.id] = answer
    return known


def keep(store: Store, query: QueryRow, answer: str, now: float) -> None:
    """Store an answer, in place of the one that was unused for the longest time if the cache is full."""
    with store.transaction() as connection:
        connection.execute(_KEEP, {"key": _key(query), "answer": answer, "used_at": now})
        if connection.execute(_COUNT).scalar_one() > _MOST_KEPT:
            connection.execute(_DROP)


def _key(query: QueryRow) -> str:
    """Return the cache key of a query. Agents and providers have separate keys, so they never share answers."""
    asked = [query.mode == "provider", query.model, query.form, query.prompt]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
