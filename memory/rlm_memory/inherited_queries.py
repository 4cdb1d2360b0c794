"""Queries that a forked session holds but another session asked.

A query belongs to the session that asked it. A fork starts with the placeholders of its parent's open queries, so it
has rows for them too: these are *inherited*, and are not put to anyone. They get the outcome of the original query.
When the asking session ends or cancels the query, the oldest fork that still waits takes it over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from rlm_ipc.messages import alike
from rlm_memory import queries
from rlm_memory.errors import InvalidTransition
from rlm_memory.queries import NewQuery, QueryRow, Resolved
from rlm_memory.schema import inherited_queries as table
from rlm_memory.sessions import name_of
from rlm_memory.store import Store
from rlm_memory.tables import insert_into

_INHERIT = insert_into(table)
_ASKERS = "SELECT query, asked_in FROM inherited_queries WHERE session = :of"
_AMONG = "query IN (SELECT value FROM json_each(:among))"
_HELD = f"SELECT session, query FROM inherited_queries WHERE asked_in = :asked_in AND {_AMONG}"
_HEIRS = """
    SELECT query, min(session) AS fork FROM inherited_queries AS held
    WHERE asked_in = :asked_in AND EXISTS (
        SELECT 1 FROM queries WHERE session = held.session AND id = held.query AND state = 'pending'
    )
"""
_TAKE_OVER = "DELETE FROM inherited_queries WHERE session = :fork AND query = :named"
_PASS_ON = "UPDATE inherited_queries SET asked_in = :fork WHERE asked_in = :asked_in AND query = :named"


def inherit(store: Store, session: int, parent: int, held: Iterable[QueryRow], now: float) -> None:
    """Record queries that a forked session holds: they still belong to the session that asked them.

    Their numbers are never used for a query that the fork's own code asks.
    """
    asked = list(held)
    new = [alike(NewQuery, row) for row in asked]
    with store.transaction():
        store.raise_count(f"query {name_of(store, session)}", queries.next_in_code(store, name_of(store, parent)))
        askers = {row["query"]: row["asked_in"] for row in store.rows(_ASKERS, of=parent)}
        queries.record(store, session, new, now)
        lent = [{"session": session, "query": row.id, "asked_in": askers.get(row.id, parent)} for row in asked]
        store.run_each(_INHERIT, lent)


def share(store: Store, session: int, resolved: Iterable[Resolved], now: float) -> dict[int, dict[str, QueryRow]]:
    """Copy the outcome of the session's queries to the forks that hold them. Return it by the forks' keys.

    A fork that has answered a query for itself keeps its own answer.
    """
    came = {one.query: one for one in resolved}
    shared: dict[int, dict[str, QueryRow]] = {}
    with store.transaction():
        for fork, query in store.rows(_HELD, asked_in=session, among=json.dumps(list(came))):
            one = came[query]
            with suppress(InvalidTransition):
                row = queries.resolve(store, fork, query, answer=one.answer, error=one.error, now=now)
                shared.setdefault(fork, {})[query] = row
    return shared


def pass_on(store: Store, session: int, among: Iterable[str] | None = None) -> None:
    """Hand over queries that the session will not get answered to its oldest fork that still waits for them.

    These are all queries that it has asked, because it is ending, or only those in ``among``.
    """
    only = "" if among is None else f"AND {_AMONG}"
    ids = None if among is None else json.dumps(list(among))
    with store.transaction():
        for query, fork in store.rows(f"{_HEIRS} {only} GROUP BY query", asked_in=session, among=ids):
            store.run(_TAKE_OVER, fork=fork, named=query)
            store.run(_PASS_ON, fork=fork, asked_in=session, named=query)
