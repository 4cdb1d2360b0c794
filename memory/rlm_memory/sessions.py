"""Sessions: one row per session id, its state machine, and the counters that number what it makes.

    active ──idle for too long──▶ expired ──used again──▶ active
      └──────────── ended on request ─────────────▶ ended ──used again──▶ active

A session id that is used again after its end starts empty, but its counters go on: query ids and handles are
never given out twice. Of a session that was forked it is kept from which, until its id is used for another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import delete, insert, select, update

from rlm_memory.errors import InvalidTransition, UnknownSession
from rlm_memory.schema import forks
from rlm_memory.schema import sessions as table
from rlm_memory.store import Store

__all__ = [
    "TRANSITIONS",
    "SessionRow",
    "SessionState",
    "all_sessions",
    "find",
    "get",
    "move",
    "note_fork",
    "open_session",
    "parents",
    "touch",
]


class SessionState(StrEnum):
    """Where a session is in its life."""

    ACTIVE = "active"
    EXPIRED = "expired"
    ENDED = "ended"


TRANSITIONS: dict[SessionState, frozenset[SessionState]] = {
    SessionState.ACTIVE: frozenset({SessionState.EXPIRED, SessionState.ENDED}),
    SessionState.EXPIRED: frozenset({SessionState.ACTIVE, SessionState.ENDED}),
    SessionState.ENDED: frozenset({SessionState.ACTIVE}),
}


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session. ``workspace`` is a directory or empty, ``policy`` a name; times are epoch seconds."""

    id: str
    state: SessionState
    workspace: str
    policy: str
    idle_seconds: float
    created_at: float
    last_used_at: float

    def is_idle(self, now: float) -> bool:
        """Whether the session was last used longer ago than its policy lets it idle."""
        return self.state is SessionState.ACTIVE and now - self.last_used_at > self.idle_seconds


def find(store: Store, session: str) -> SessionRow | None:
    """Return the session's row, or None."""
    with store.transaction() as connection:
        row = connection.execute(select(table).where(table.c.id == session)).mappings().one_or_none()
    return _row(dict(row)) if row is not None else None


def get(store: Store, session: str) -> SessionRow:
    """Return the session's row.

    Raises:
        UnknownSession: there is none.
    """
    row = find(store, session)
    if row is None:
        raise UnknownSession(session)
    return row


def all_sessions(store: Store, *states: SessionState, most: int | None = None) -> list[SessionRow]:
    """List the sessions in ``states`` (default: in any state), the last used first, ``most`` at most."""
    statement = select(table).order_by(table.c.last_used_at.desc(), table.c.id).limit(most)
    if states:
        statement = statement.where(table.c.state.in_([state.value for state in states]))
    with store.transaction() as connection:
        return [_row(dict(row)) for row in connection.execute(statement).mappings()]


def open_session(
    store: Store, session: str, *, workspace: str, policy: str, idle_seconds: float, now: float
) -> SessionRow:
    """Create the session, or make it active again, and return its row.

    A session that is active keeps the workspace and policy that it was opened with.
    """
    with store.transaction() as connection:
        row = find(store, session)
        if row is not None and row.state is SessionState.ACTIVE:
            return row
        values = {
            "state": SessionState.ACTIVE.value,
            "workspace": workspace,
            "policy": policy,
            "idle_seconds": idle_seconds,
            "created_at": now,
            "last_used_at": now,
        }
        if row is None:
            connection.execute(insert(table).values(id=session, **values))
        else:
            connection.execute(update(table).where(table.c.id == session).values(**values))
            connection.execute(delete(forks).where(forks.c.session == session))
        return get(store, session)


def note_fork(store: Store, session: str, parent: str) -> None:
    """Note that the session was forked from ``parent``."""
    with store.transaction() as connection:
        connection.execute(insert(forks).values(session=session, parent=parent))


def parents(store: Store, among: Iterable[str]) -> dict[str, str]:
    """Map each of those sessions that was forked to the one that it was forked from."""
    statement = select(forks).where(forks.c.session.in_(sorted(among)))
    with store.transaction() as connection:
        return {row.session: row.parent for row in connection.execute(statement)}


def touch(store: Store, session: str, now: float) -> None:
    """Note that the session is in use."""
    with store.transaction() as connection:
        connection.execute(update(table).where(table.c.id == session).values(last_used_at=now))


def move(store: Store, session: str, wanted: SessionState) -> None:
    """Take the session to the state ``wanted``.

    Raises:
        UnknownSession: there is no such session.
        InvalidTransition: `TRANSITIONS` has no such step.
    """
    with store.transaction() as connection:
        current = get(store, session).state
        if wanted not in TRANSITIONS[current]:
            raise InvalidTransition("session", session, current, wanted)
        connection.execute(update(table).where(table.c.id == session).values(state=wanted.value))


def _row(values: dict[str, object]) -> SessionRow:
    values["state"] = SessionState(str(values["state"]))
    return SessionRow(**values)  # type: ignore[arg-type]  # the columns are the fields
