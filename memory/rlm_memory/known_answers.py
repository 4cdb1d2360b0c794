"""The cache of queries: answers that are given again to the same question, bounded by number.

Only sessions whose policy allows it read or write the cache. Questions are compared by a hash of everything that
matters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from rlm_memory.queries import QueryRow
from rlm_memory.schema import known_answers
from rlm_memory.store import Store
from rlm_memory.tables import upsert_into

_MOST_KEPT = 10_000
_DROPPED_AT_ONCE = 500

_USE = "UPDATE known_answers SET used_at = :now WHERE key = :asked RETURNING answer"
_KEEP = upsert_into(known_answers)
_DROP = "DELETE FROM known_answers WHERE key IN (SELECT key FROM known_answers ORDER BY used_at LIMIT :most)"


def find(store: Store, asked: Iterable[QueryRow], now: float) -> dict[str, str]:
    """Return the earlier answers to such queries, by the ids of those that have one."""
    known = {}
    with store.transaction():
        for query in asked:
            for (answer,) in store.returned(_USE, asked=_key(query), now=now):
                known[query.id] = answer
    return known


def keep(store: Store, query: QueryRow, answer: str, now: float) -> None:
    """Store an answer, in place of the one that was unused for the longest time if the cache is full."""
    with store.transaction():
        store.run(_KEEP, key=_key(query), answer=answer, used_at=now)
        if store.scalar("SELECT count(*) FROM known_answers") > _MOST_KEPT:
            store.run(_DROP, most=_DROPPED_AT_ONCE)


def _key(query: QueryRow) -> str:
    """Return the cache key of a query. Agents and providers have separate keys, so they never share answers."""
    asked = [query.mode == "provider", query.model, query.form, query.prompt]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
