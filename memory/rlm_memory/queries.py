"""Queries: the LLM requests that code has deferred, and their state machine.

    pending ──▶ answered     an answer came
            ──▶ failed       the answerer said that it cannot; a later answer is still taken
            ──▶ cancelled    the session ended, or the cell that asked was lost

Ids are unique for the life of the session. The kernel numbers the queries of its code itself (``q_000``,
``q_001`` …) from a base that it is given at its start; `next_in_code` is that base. Queries that are asked
without code are numbered here (``q_t000`` …), so that the two never meet while a cell runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy import and_, delete, insert, select, update

from rlm_memory.errors import InvalidTransition, UnknownQuery
from rlm_memory.schema import queries as table
from rlm_memory.store import Store

__all__ = [
    "TRANSITIONS",
    "QueryRow",
    "QueryState",
    "ask",
    "cancel_pending",
    "continue_from",
    "get",
    "next_in_code",
    "of_session",
    "pending",
    "record",
    "restore",
    "settle",
]


_MOST_DIGITS = 9


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
    """One query. ``answer`` is set when answered, ``error`` when failed; times in epoch seconds."""

    session: str
    id: str
    ordinal: int
    prompt: str
    model: str | None
    state: QueryState
    answer: str | None
    error: str | None
    created_at: float
    settled_at: float | None


def next_in_code(store: Store, session: str) -> int:
    """Return the number of the next query that the session's code may ask."""
    return store.peek_count(f"query {session}")


def continue_from(store: Store, session: str, parent: str) -> None:
    """Never number a query of the session's code as one that ``parent`` has asked: a fork holds its placeholders."""
    store.raise_count(f"query {session}", next_in_code(store, parent))


def ask(store: Store, session: str, prompts: Iterable[str], model: str | None, now: float) -> list[QueryRow]:
    """Make new pending queries and return them in the order of ``prompts``."""
    with store.transaction():
        return [
            _insert(store, session, f"q_t{store.count(f'asked {session}'):03d}", prompt, model, now)
            for prompt in prompts
        ]


def record(store: Store, session: str, query: str, prompt: str, model: str | None, now: float) -> QueryRow | None:
    """Note a query that the kernel has numbered itself.

    Returns None when it is known already: a kernel reports a query when it is asked and again when the cell
    ends. The same id with another prompt is a new query: the kernel is the one that holds its placeholder.
    """
    with store.transaction() as connection:
        mine = and_(table.c.session == session, table.c.id == query)
        if connection.execute(select(table.c.prompt).where(mine)).scalar() == prompt:
            return None
        connection.execute(delete(table).where(mine))
        digits = query.removeprefix("q_")
        if digits.isdecimal() and len(digits) <= _MOST_DIGITS:
            store.raise_count(f"query {session}", int(digits) + 1)
        return _insert(store, session, query, prompt, model, now)


def restore(store: Store, rows: Iterable[QueryRow]) -> None:
    """Write queries of another life of their session down again, in the order of ``rows``; known ids are kept."""
    with store.transaction() as connection:
        for row in rows:
            known = select(table.c.id).where(table.c.session == row.session, table.c.id == row.id)
            if connection.execute(known).scalar() is not None:
                continue
            for prefix, scope in (("q_t", "asked"), ("q_", "query")):
                digits = row.id.removeprefix(prefix)
                if digits.isdecimal() and len(digits) <= _MOST_DIGITS:
                    store.raise_count(f"{scope} {row.session}", int(digits) + 1)
                    break
            values = {**asdict(row), "state": row.state.value, "ordinal": store.count("query order")}
            connection.execute(insert(table).values(**values))


def get(store: Store, session: str, query: str) -> QueryRow:
    """Return one query's row.

    Raises:
        UnknownQuery: the session never asked it.
    """
    statement = select(table).where(table.c.session == session, table.c.id == query)
    with store.transaction() as connection:
        row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        raise UnknownQuery(query, [q.id for q in pending(store, session)])
    return _row(dict(row))


def of_session(store: Store, session: str, *states: QueryState) -> list[QueryRow]:
    """List the session's queries in ``states`` (default: in any state), in the order they were asked."""
    statement = select(table).where(table.c.session == session).order_by(table.c.ordinal, table.c.id)
    if states:
        statement = statement.where(table.c.state.in_([state.value for state in states]))
    with store.transaction() as connection:
        return [_row(dict(row)) for row in connection.execute(statement).mappings()]


def pending(store: Store, session: str) -> list[QueryRow]:
    """List the session's pending queries, in the order they were asked."""
    return of_session(store, session, QueryState.PENDING)


def settle(
    store: Store, session: str, query: str, *, answer: str | None = None, error: str | None = None, now: float
) -> QueryRow:
    """Give a query its answer, or (with ``error``) say why there is none.

    Raises:
        UnknownQuery: the session never asked it.
        InvalidTransition: it was answered or cancelled before.
    """
    wanted = QueryState.ANSWERED if error is None else QueryState.FAILED
    with store.transaction() as connection:
        row = get(store, session, query)
        if wanted not in TRANSITIONS[row.state]:
            raise InvalidTransition("query", query, row.state, wanted)
        statement = update(table).where(table.c.session == session, table.c.id == query)
        connection.execute(statement.values(state=wanted.value, answer=answer, error=error, settled_at=now))
        return get(store, session, query)


def cancel_pending(store: Store, session: str, now: float, *, among: Iterable[str] | None = None) -> list[str]:
    """Cancel the pending queries of the session (only those in ``among``, if given) and return their ids."""
    statement = update(table).where(table.c.session == session, table.c.state == QueryState.PENDING.value)
    if among is not None:
        statement = statement.where(table.c.id.in_(sorted(among)))
    statement = statement.values(state=QueryState.CANCELLED.value, settled_at=now)
    with store.transaction() as connection:
        return sorted(connection.execute(statement.returning(table.c.id)).scalars())


def _insert(store: Store, session: str, query: str, prompt: str, model: str | None, now: float) -> QueryRow:
    with store.transaction() as connection:
        connection.execute(
            insert(table).values(
                session=session,
                id=query,
                ordinal=store.count("query order"),
                prompt=prompt,
                model=model,
                state=QueryState.PENDING.value,
                created_at=now,
            )
        )
        return get(store, session, query)


def _row(values: dict[str, object]) -> QueryRow:
    values["state"] = QueryState(str(values["state"]))
    return QueryRow(**values)  # type: ignore[arg-type]  # the columns are the fields
