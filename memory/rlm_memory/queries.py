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
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, exists, func, insert, select, update

from rlm_ipc.daemon_rows import AnswerUse
from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import InvalidTransition, UnknownQuery
from rlm_memory.schema import inherited_queries as inherited
from rlm_memory.schema import queries as table
from rlm_memory.schema import query_details as details
from rlm_memory.sessions import name_of
from rlm_memory.store import Store


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


_IN_ROW = tuple(table.c.keys())
_IN_DETAILS = tuple(column.name for column in details.c if not column.primary_key)
_WHOLE = select(table, *(details.c[name] for name in _IN_DETAILS)).join(
    details, and_(details.c.session == table.c.session, details.c.query == table.c.id)
)
# The statements of every question and answer are built here once: building one takes longer than executing it.
_OF_SESSION = _WHOLE.where(table.c.session == bindparam("of")).order_by(table.c.ordinal, table.c.id)
_OWN = ~exists().where(inherited.c.session == table.c.session, inherited.c.query == table.c.id)
_PENDING = _OF_SESSION.where(table.c.state == QueryState.PENDING.value, _OWN)
_PENDING_IDS = (
    select(table.c.id)
    .where(table.c.session == bindparam("of"), table.c.state == QueryState.PENDING.value, _OWN)
    .order_by(table.c.ordinal, table.c.id)
)
_ONE = _WHOLE.where(table.c.session == bindparam("of"), table.c.id == bindparam("named"))
_INSERT, _INSERT_DETAILS = insert(table), insert(details)
# The names are passed as JSON: a list of parameters would need one statement for each length.
_AMONG = and_(
    table.c.session == bindparam("of"),
    table.c.id.in_(select(func.json_each(bindparam("among")).table_valued("value").c.value)),
)
_PROMPTS = select(table.c.id, table.c.prompt).where(_AMONG)
# With a condition on the state, SQLite would search all pending rows.
_STATES = select(table.c.id, table.c.state).where(_AMONG)
_SETTLE = (
    update(table)
    .where(table.c.session == bindparam("of"), table.c.id == bindparam("named"))
    .values(state=bindparam("to"), answer=bindparam("said"), error=bindparam("why"), resolved_at=bindparam("at"))
)
_SPEND = (
    update(details)
    .where(details.c.session == bindparam("of"), details.c.query == bindparam("named"))
    .values(
        answered_by=bindparam("by"),
        input_tokens=details.c.input_tokens + bindparam("given"),
        output_tokens=details.c.output_tokens + bindparam("made"),
        cost=details.c.cost + bindparam("paid"),
    )
)


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
    with store.transaction() as connection:
        number = store.count(_counter(store, session, Asker.TOOL), len(asked))
        ordinal = store.count("query order", len(asked))
        new = (NewQuery(f"q_t{number + n:03d}", number + n, said, model, mode) for n, said in enumerate(asked))
        rows = [_new(session, ordinal + n, query, Asker.TOOL, now) for n, query in enumerate(new)]
        _write(connection, rows)
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
    with store.transaction() as connection:
        prompts = _known(connection, session, by_id)
        new = [query for query in by_id.values() if prompts.get(query.id) != query.prompt]
        if not new:
            return []
        forget(store, session, [query.id for query in new if query.id in prompts])
        store.raise_count(_counter(store, session, Asker.CODE), 1 + max(query.number for query in new))
        first = store.count("query order", len(new))
        rows = [_new(session, first + n, query, Asker.CODE, now) for n, query in enumerate(new)]
        _write(connection, rows)
    return rows


def _new(session: int, ordinal: int, query: NewQuery, asked_by: Asker, now: float) -> QueryRow:
    """Return the row of a query that has no answer yet."""
    return QueryRow(
        session=session,
        id=query.id,
        ordinal=ordinal,
        prompt=query.prompt,
        model=query.model,
        state=QueryState.PENDING,
        answer=None,
        error=None,
        created_at=now,
        resolved_at=None,
        asked_by=asked_by,
        number=query.number,
        mode=query.mode,
        form=query.form,
        recursive=query.recursive,
    )


def forget(store: Store, session: int, ids: Iterable[str]) -> None:
    """Delete queries of the session, whatever their state."""
    if gone := list(ids):
        with store.transaction() as connection:
            connection.execute(delete(table).where(table.c.session == session, table.c.id.in_(gone)))
            for more in (details, inherited):
                connection.execute(delete(more).where(more.c.session == session, more.c.query.in_(gone)))


def unknown(store: Store, session: int, asked: Iterable[NewQuery]) -> list[str]:
    """Return the ids of the queries that `record` would add as new, in their order."""
    told = {query.id: query for query in asked}
    with store.transaction() as connection:
        known = _known(connection, session, told)
    return [query.id for query in told.values() if known.get(query.id) != query.prompt]


def _known(connection: Connection, session: int, among: Iterable[str]) -> dict[str, str]:
    """Return the prompts of the session's queries with these ids, by id."""
    found = connection.execute(_PROMPTS, {"of": session, "among": json.dumps(list(among))})
    return {row.id: row.prompt for row in found}


def _write(connection: Connection, rows: list[QueryRow]) -> None:
    """Write rows and their details."""
    connection.execute(_INSERT, [{name: getattr(row, name) for name in _IN_ROW} for row in rows])
    more = [{"session": row.session, "query": row.id, **{n: getattr(row, n) for n in _IN_DETAILS}} for row in rows]
    connection.execute(_INSERT_DETAILS, more)


def spend(store: Store, session: int, bills: Iterable[AnswerUse]) -> None:
    """Add the usage of models' answers to the session's queries."""
    rows = [_spending(session, bill) for bill in bills]
    if rows:
        store.run(_SPEND, rows)


def _spending(session: int, bill: AnswerUse) -> dict[str, object]:
    used = {"given": bill.input_tokens, "made": bill.output_tokens, "paid": bill.cost}
    return {"of": session, "named": bill.query, "by": bill.model, **used}


def restore(store: Store, rows: Iterable[QueryRow]) -> None:
    """Restore queries from an earlier life of their session, in the order of ``rows``; known ids are kept."""
    with store.transaction() as connection:
        for row in rows:
            known = select(table.c.id).where(table.c.session == row.session, table.c.id == row.id)
            if connection.execute(known).scalar() is not None:
                continue
            store.raise_count(_counter(store, row.session, row.asked_by), row.number + 1)
            _write(connection, [replace(row, ordinal=store.count("query order"))])


def get(store: Store, session: int, query: str) -> QueryRow:
    """Return one query's row.

    Raises:
        UnknownQuery: the session never asked it.
    """
    row = store.row(_ONE, {"of": session, "named": query})
    if row is None:
        raise UnknownQuery(query)
    return _row(dict(row))


def of_session(store: Store, session: int, *states: QueryState) -> list[QueryRow]:
    """List the session's queries in ``states`` (default: in any state), in the order they were asked."""
    statement = _OF_SESSION
    if states:
        statement = statement.where(table.c.state.in_([state.value for state in states]))
    return _rows(store, session, statement)


def pending(store: Store, session: int) -> list[QueryRow]:
    """List the pending queries that the session itself asked, in the order they were asked."""
    return _rows(store, session, _PENDING)


def pending_ids(store: Store, session: int) -> list[str]:
    """List the ids of the pending queries that the session itself asked, in the order they were asked."""
    return store.scalars(_PENDING_IDS, {"of": session})


def _rows(store: Store, session: int, statement: Select[Any]) -> list[QueryRow]:
    return [_row(dict(row)) for row in store.rows(statement, {"of": session})]


def resolve(
    store: Store, session: int, query: str, *, answer: str | None = None, error: str | None = None, now: float
) -> QueryRow:
    """Record the answer of a query, or (with ``error``) the reason for its failure.

    Raises:
        UnknownQuery: the session never asked it.
        InvalidTransition: it was answered or cancelled before.
    """
    state = QueryState.ANSWERED if error is None else QueryState.FAILED
    with store.transaction() as connection:
        row = get(store, session, query)
        if state not in TRANSITIONS[row.state]:
            raise InvalidTransition("query", query, row.state, state)
        connection.execute(_SETTLE, _settling(session, Resolved(query, answer, error), now))
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
    with store.transaction() as connection:
        found = connection.execute(_STATES, {"of": session, "among": json.dumps(list(came))})
        waiting = {row.id for row in found if row.state == QueryState.PENDING}
        if waiting:
            connection.execute(_SETTLE, [_settling(session, came[query], now) for query in waiting])
    return waiting


def _settling(session: int, came: Resolved, now: float) -> dict[str, object]:
    state = QueryState.ANSWERED if came.error is None else QueryState.FAILED
    said = {"to": state.value, "said": came.answer, "why": came.error, "at": now}
    return {"of": session, "named": came.query, **said}


def cancel_pending(store: Store, session: int, now: float, *, among: Iterable[str] | None = None) -> list[str]:
    """Cancel the pending queries of the session (only those in ``among``, if given) and return their ids."""
    statement = update(table).where(table.c.session == session, table.c.state == QueryState.PENDING.value)
    if among is not None:
        statement = statement.where(table.c.id.in_(sorted(among)))
    statement = statement.values(state=QueryState.CANCELLED.value, resolved_at=now)
    return sorted(store.scalars(statement.returning(table.c.id)))


def _row(values: dict[str, object]) -> QueryRow:
    values["state"] = QueryState(str(values["state"]))
    values["asked_by"] = Asker(str(values["asked_by"]))
    return QueryRow(**values)  # type: ignore[arg-type]  # the columns are the fields
