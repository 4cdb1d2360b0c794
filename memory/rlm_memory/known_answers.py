"""Answers that are given again to whoever asks the same: the cache of queries, bounded by number.

Only sessions whose policy says so read or write it; what they ask is compared by a hash of all that matters.
"""

from __future__ import annotations

import hashlib
import json

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from rlm_memory.queries import QueryRow
from rlm_memory.schema import known_answers as table
from rlm_memory.store import Store

__all__ = ["find", "keep"]

_MOST_KEPT = 10_000
_DROPPED_AT_ONCE = 500


def find(store: Store, query: QueryRow, now: float) -> str | None:
    """Return the answer that such a query has had before, if there is one."""
    statement = update(table).where(table.c.key == _key(query)).values(used_at=now).returning(table.c.answer)
    with store.transaction() as connection:
        return connection.execute(statement).scalar_one_or_none()


def keep(store: Store, query: QueryRow, answer: str, now: float) -> None:
    """Keep an answer; what has not been used for longest makes room."""
    statement = insert(table).values(key=_key(query), answer=answer, used_at=now)
    statement = statement.on_conflict_do_update(index_elements=[table.c.key], set_={"answer": answer, "used_at": now})
    with store.transaction() as connection:
        connection.execute(statement)
        if connection.execute(select(func.count()).select_from(table)).scalar_one() > _MOST_KEPT:
            oldest = select(table.c.key).order_by(table.c.used_at).limit(_DROPPED_AT_ONCE)
            connection.execute(delete(table).where(table.c.key.in_(oldest)))


def _key(query: QueryRow) -> str:
    """Agents and providers are asked apart: their answers are not each other's."""
    asked = [query.mode == "provider", query.model, query.form, query.prompt]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
