"""Queries: the LLM requests that code has deferred, and their state machine.

    pending ──▶ answered     an answer came
            ──▶ failed       the answerer said that it cannot; a later answer is still accepted
            ──▶ cancelled    the cell that asked was lost

A query belongs to the session that asked it; `inherited_queries` says which rows of a fork belong to another session.

Ids are never reused under one session name. The kernel numbers the queries of its code itself (``q_000``, ``q_001`` …)
from a base that it gets at its start; `next_in_code` is that base. Queries asked without code are numbered here
(``q_t000`` …), so that the two sequences never collide while a cell runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from rlm_ipc.daemon_rows import AnswerUse
from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import InvalidTransition, UnknownQuery
from rlm_memory.records import Value, values_of
from rlm_memory.schema import queries as table
from rlm_memory.schema import query_details
from rlm_memory.sessions import name_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, insert_into


class Asker(StrEnum):
    """The asker of a query. Code and tools have separate numbers."""

    CODE = "code"
    TOOL = "tool"


_COUNTERS = {Asker.CODE: "query", Asker.TOOL: "asked"}
"""The counter of each kind of query, for every session name."""


class QueryState(StrEnum):
    """Where a query is in its life."""

    PENDING = "pending"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"


TRANSITIONS: dict[QueryState, frozenset[QueryState]] = {
    QueryState.PENDING: frozenset({QueryState.ANSWERED, QueryState.FAILED, QueryState.CANCELLED}),
    QueryState.FAILED: frozenset({QueryState.ANSWERED, QueryState.FAILED}),
    QueryState.ANSWERED: frozenset(),
    QueryState.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One query. ``answer`` is set when answered, ``error`` when failed; times are epoch seconds.

    ``mode`` says who is to answer it, ``form`` is the JSON schema of its answer, ``answered_by`` the provider's model
    that answered it, ``recursive`` whether that model works in a session of its own; tokens are the sum over all
    attempts. ``number`` is its position among the queries of the same ``asked_by``.
    """

    session: int
    id: str
    ordinal: int
    prompt: str
    model: str | None
    state: QueryState
    answer: str | None
    error: str | None
    created_at: float
    resolved_at: float | None
    asked_by: Asker
    number: int
    mode: str = "deferred"
    form: dict[str, Any] | None = None
    answered_by: str | None = None
    recursive: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


_OF_SESSION = f"""
    SELECT {columns_of(table)}, details.asked_by, details.number, details.mode, details.form, details.answered_by,
        details.recursive, details.input_tokens, details.output_tokens, details.cost
    FROM queries JOIN query_details AS details ON details.session = queries.session AND details.query = queries.id
    WHERE queries.session = :of
"""
_ONE = f"{_OF_SESSION} AND id = :named"
_AS_ASKED = "ORDER BY ordinal, id"
_ALL = f"{_OF_SESSION} {_AS_ASKED}"
_IN_STATES = f"{_OF_SESSION} AND state IN (SELECT value FROM json_each(:states)) {_AS_ASKED}"
_OWN_PENDING = """
    state = 'pending' AND NOT EXISTS (
        SELECT 1 FROM inherited_queries AS held WHERE held.session = queries.session AND held.query = queries.id
    )
"""
_PENDING = f"{_OF_SESSION} AND {_OWN_PENDING} {_AS_ASKED}"
_PENDING_IDS = f"SELECT id FROM queries WHERE session = :of AND {_OWN_PENDING} {_AS_ASKED}"
_INSERT, _INSERT_DETAILS = insert_into(table), insert_into(query_details)
# The ids are passed as JSON: a list of parameters would need one statement for each length.
_AMONG = "IN (SELECT value FROM json_each(:among))"
_PROMPTS = f"SELECT id, prompt FROM queries WHERE session = :of AND id {_AMONG}"
# With a condition on the state, SQLite would search all pending rows.
_STATES = f"SELECT id, state FROM queries WHERE session = :of AND id {_AMONG}"
_FORGET = (
    f"DELETE FROM queries WHERE session = :of AND id {_AMONG}",
    f"DELETE FROM query_details WHERE session = :of AND query {_AMONG}",
    f"DELETE FROM inherited_queries WHERE session = :of AND query {_AMONG}",
)
_SETTLE = """
    UPDATE queries SET state = :state, answer = :answer, error = :error, resolved_at = :at
    WHERE session = :of AND id = :named
"""
_CANCEL = "UPDATE queries SET state = 'cancelled', resolved_at = :at WHERE session = :of AND state = 'pending'"
_SPEND = """
    UPDATE query_details
    SET answered_by = :model, input_tokens = input_tokens + :given, output_tokens = output_tokens + :made,
        cost = cost + :paid
    WHERE session = :of AND query = :named
"""


def next_in_code(store: Store, name: str) -> int:
    """Return the number of the next query that code may ask in a session with that name."""
    return store.peek_count(f"query {name}")


def ask(
    store: Store, session: int, prompts: Iterable[str], model: str | None, now: float, *, mode: str = "deferred"
) -> list[QueryRow]:
    """Create new pending queries and return them in the order of ``prompts``."""
    asked = list(prompts)
    if not asked:
        return []
    with store.transaction():
        number = store.count(_counter(store, session, Asker.TOOL), len(asked))
        ordinal = store.count("query order", len(asked))
        new = (NewQuery(f"q_t{number + n:03d}", number + n, said, model, mode) for n, said in enumerate(asked))
        rows = [_new(session, ordinal + n, query, Asker.TOOL, now) for n, query in enumerate(new)]
        _write(store, rows)
    return rows


def _counter(store: Store, session: int, asker: Asker) -> str:
    return f"{_COUNTERS[asker]} {name_of(store, session)}"


@dataclass(frozen=True, slots=True)
class NewQuery:
    """A new query from code, whose kernel has numbered it, or from a tool."""

    id: str
    number: int
    prompt: str
    model: str | None = None
    mode: str = "deferred"
    form: dict[str, Any] | None = None
    recursive: bool = False


def record(store: Store, session: int, asked: Iterable[NewQuery], now: float) -> list[QueryRow]:
    """Record queries that the kernel has numbered itself, in their order.

    Return the new ones: a daemon that starts hears of all pending queries again. The same id with another prompt is a
    new query, because the kernel is the one that holds its placeholder.
    """
    by_id = {query.id: query for query in asked}
    with store.transaction():
        known = _known(store, session, by_id)
        new = _unlike(known, by_id)
        if not new:
            return []
        forget(store, session, [query.id for query in new if query.id in known])
        store.raise_count(_counter(store, session, Asker.CODE), 1 + max(query.number for query in new))
        first = store.count("query order", len(new))
        rows = [_new(session, first + n, query, Asker.CODE, now) for n, query in enumerate(new)]
        _write(store, rows)
    return rows


def _new(session: int, ordinal: int, query: NewQuery, asked_by: Asker, now: float) -> QueryRow:
    """Return the row of a query that has no answer yet."""
    return QueryRow(
        session=session,
        ordinal=ordinal,
        state=QueryState.PENDING,
        answer=None,
        error=None,
        created_at=now,
        resolved_at=None,
        asked_by=asked_by,
        **{name: getattr(query, name) for name in query.__slots__},
    )


def forget(store: Store, session: int, ids: Iterable[str]) -> None:
    """Delete queries of the session, whatever their state."""
    if gone := list(ids):
        with store.transaction():
            for statement in _FORGET:
                store.run(statement, of=session, among=json.dumps(gone))


def unknown(store: Store, session: int, asked: Iterable[NewQuery]) -> list[str]:
    """Return the ids of the queries that `record` would add as new, in their order."""
    by_id = {query.id: query for query in asked}
    return [query.id for query in _unlike(_known(store, session, by_id), by_id)]


def _unlike(known: Mapping[str, str], asked: Mapping[str, NewQuery]) -> list[NewQuery]:
    """Return the queries that are not known, or by another prompt, in their order."""
    return [query for query in asked.values() if known.get(query.id) != query.prompt]


def _known(store: Store, session: int, among: Iterable[str]) -> dict[str, str]:
    """Return the prompts of the session's queries with these ids, by id."""
    found = store.rows(_PROMPTS, of=session, among=json.dumps(list(among)))
    return {row["id"]: row["prompt"] for row in found}


def _write(store: Store, rows: list[QueryRow]) -> None:
    """Write rows and their details, in the caller's transaction."""
    values = [values_of(row) | {"query": row.id} for row in rows]
    store.run_each(_INSERT, values)
    store.run_each(_INSERT_DETAILS, values)


def spend(store: Store, session: int, bills: Iterable[AnswerUse]) -> None:
    """Add the usage of models' answers to the session's queries."""
    rows = [_spending(session, bill) for bill in bills]
    if rows:
        store.run_each(_SPEND, rows)


def _spending(session: int, bill: AnswerUse) -> dict[str, Value]:
    used = {"given": bill.input_tokens, "made": bill.output_tokens, "paid": bill.cost}
    return {"of": session, "named": bill.query, "model": bill.model, **used}


def restore(store: Store, rows: Iterable[QueryRow]) -> None:
    """Restore queries from an earlier life of their session, in the order of ``rows``; known ids are kept."""
    with store.transaction():
        for row in rows:
            if not _known(store, row.session, [row.id]):
                store.raise_count(_counter(store, row.session, row.asked_by), row.number + 1)
                _write(store, [replace(row, ordinal=store.count("query order"))])


def get(store: Store, session: int, query: str) -> QueryRow:
    """Return one query's row.

    Raises:
        UnknownQuery: the session never asked it.
    """
    row = store.record(QueryRow, _ONE, of=session, named=query)
    if row is None:
        raise UnknownQuery(query)
    return row


def of_session(store: Store, session: int, *states: QueryState) -> list[QueryRow]:
    """List the session's queries in ``states`` (default: in any state), in the order they were asked."""
    return store.records(QueryRow, _IN_STATES if states else _ALL, of=session, states=json.dumps(states))


def pending(store: Store, session: int) -> list[QueryRow]:
    """List the pending queries that the session itself asked, in the order they were asked."""
    return store.records(QueryRow, _PENDING, of=session)


def pending_ids(store: Store, session: int) -> list[str]:
    """List the ids of the pending queries that the session itself asked, in the order they were asked."""
    return store.scalars(_PENDING_IDS, of=session)


def resolve(
    store: Store, session: int, query: str, *, answer: str | None = None, error: str | None = None, now: float
) -> QueryRow:
    """Record the answer of a query, or (with ``error``) the reason for its failure.

    Raises:
        UnknownQuery: the session never asked it.
        InvalidTransition: it was answered or cancelled before.
    """
    state = QueryState.ANSWERED if error is None else QueryState.FAILED
    with store.transaction():
        row = get(store, session, query)
        if state not in TRANSITIONS[row.state]:
            raise InvalidTransition("query", query, row.state, state)
        store.run(_SETTLE, **_settling(session, Resolved(query, answer, error), now))
    return replace(row, state=state, answer=answer, error=error, resolved_at=now)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The outcome of a query: its answer, or (with ``error``) the reason for its failure."""

    query: str
    answer: str | None = None
    error: str | None = None


def resolve_pending(store: Store, session: int, resolved: Iterable[Resolved], now: float) -> set[str]:
    """Resolve those of the queries that are pending, in one step. Return their ids."""
    came = {one.query: one for one in resolved}
    if not came:
        return set()
    with store.transaction():
        found = store.rows(_STATES, of=session, among=json.dumps(list(came)))
        waiting = {query for query, state in found if state == QueryState.PENDING}
        store.run_each(_SETTLE, [_settling(session, came[query], now) for query in waiting])
    return waiting


def _settling(session: int, came: Resolved, now: float) -> dict[str, Value]:
    state = QueryState.ANSWERED if came.error is None else QueryState.FAILED
    said = {"state": state.value, "answer": came.answer, "error": came.error, "at": now}
    return {"of": session, "named": came.query, **said}


def cancel_pending(store: Store, session: int, now: float, *, among: Iterable[str] | None = None) -> list[str]:
    """Cancel the pending queries of the session (only those in ``among``, if given) and return their ids."""
    if among is None:
        gone = store.returned(f"{_CANCEL} RETURNING id", of=session, at=now)
    else:
        gone = store.returned(
            f"{_CANCEL} AND id {_AMONG} RETURNING id", of=session, at=now, among=json.dumps(list(among))
        )
    return sorted(row["id"] for row in gone)
