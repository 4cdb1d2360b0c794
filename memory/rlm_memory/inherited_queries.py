"""Queries that a forked session holds but another session asked.

A query belongs to the session that asked it. A fork starts with the placeholders of its parent's open queries, so it
has rows for them too: these are *inherited*, and are not put to anyone. They get the outcome of the original query.
When the asking session ends or cancels the query, the oldest fork that still waits takes it over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from sqlalchemy import bindparam, delete, exists, func, insert, select, update

from rlm_memory import queries
from rlm_memory.errors import InvalidTransition
from rlm_memory.queries import NewQuery, QueryRow, QueryState, Resolved
from rlm_memory.schema import inherited_queries as table
from rlm_memory.schema import queries as rows
from rlm_memory.sessions import name_of
from rlm_memory.store import Store

_HELD = select(table.c.session, table.c.query).where(
    table.c.asked_in == bindparam("asked_in"),
    table.c.query.in_(select(func.json_each(bindparam("among")).table_valued("value").c.value)),
)


def inherit(store: Store, session: int, parent: int, held: Iterable[QueryRow], now: float) -> None:
    """Record queries that a forked session holds: they still belong to the session that asked them.

    Their numbers are never used for a query that the fork's own code asks.
    """
    asked = list(held)
    new = [NewQuery(row.id, row.number, row.prompt, row.model, row.mode, row.form, row.recursive) for row in asked]
    of_parent = select(table.c.query, table.c.asked_in).where(table.c.session == parent)
    with store.transaction() as connection:
        store.raise_count(f"query {name_of(store, session)}", queries.next_in_code(store, name_of(store, parent)))
        askers = {row.query: row.asked_in for row in connection.execute(of_parent)}
        queries.record(store, session, new, now)
        lent = [{"session": session, "query": row.id, "asked_in": askers.get(row.id, parent)} for row in asked]
        if lent:
            connection.execute(insert(table), lent)


def share(store: Store, session: int, resolved: Iterable[Resolved], now: float) -> dict[int, dict[str, QueryRow]]:
    """Copy the outcome of the session's queries to the forks that hold them. Return it by the forks' keys.

    A fork that has answered a query for itself keeps its own answer.
    """
    came = {one.query: one for one in resolved}
    shared: dict[int, dict[str, QueryRow]] = {}
    with store.transaction() as connection:
        for held in connection.execute(_HELD, {"asked_in": session, "among": json.dumps(list(came))}).all():
            one = came[held.query]
            with suppress(InvalidTransition):
                row = queries.resolve(store, held.session, one.query, answer=one.answer, error=one.error, now=now)
                shared.setdefault(held.session, {})[one.query] = row
    return shared


def pass_on(store: Store, session: int, among: Iterable[str] | None = None) -> None:
    """Hand over queries that the session will not get answered to its oldest fork that still waits for them.

    These are all queries that it has asked, because it is ending, or only those in ``among``.
    """
    mine = [table.c.asked_in == session]
    if among is not None:
        mine.append(table.c.query.in_(sorted(among)))
    waits = exists().where(
        rows.c.session == table.c.session,
        rows.c.id == table.c.query,
        rows.c.state == QueryState.PENDING.value,
    )
    oldest = select(table.c.query, func.min(table.c.session).label("fork")).where(*mine, waits).group_by(table.c.query)
    with store.transaction() as connection:
        for heir in connection.execute(oldest).all():
            connection.execute(delete(table).where(table.c.session == heir.fork, table.c.query == heir.query))
            others = table.c.asked_in == session, table.c.query == heir.query
            connection.execute(update(table).where(*others).values(asked_in=heir.fork))
