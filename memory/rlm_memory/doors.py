"""Doors: the ways by which front ends may open a session, who has used them, and which were revoked.

Only the digest of a door's key is kept. A door and what happened at it are the
session's: they go with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import delete, insert, select, update

from rlm_memory.schema import door_events, doors
from rlm_memory.store import Store

__all__ = ["Door", "DoorEvent", "DoorMode", "drop", "events", "find", "grant", "note", "of_sessions", "revoke"]


class DoorMode(StrEnum):
    """What a front end may do that comes through the door."""

    EXECUTE = "execute"
    WATCH = "watch"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class Door:
    """A door of a session. Times in epoch seconds; ``ended_at`` is when it was revoked."""

    id: str
    session: int
    mode: DoorMode
    key_digest: str
    created_at: float
    ended_at: float | None = None
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class DoorEvent:
    """Something that happened at a door: ``opened``, ``closed``, ``refused`` or ``revoked``."""

    door: str
    session: int
    event: str
    at: float


def grant(store: Store, door: Door) -> None:
    """Add a door."""
    values = {name: getattr(door, name) for name in Door.__slots__}
    with store.transaction() as connection:
        connection.execute(insert(doors).values({**values, "mode": door.mode.value}))


def find(store: Store, door: str) -> Door | None:
    """Return a door, also one that was revoked."""
    with store.transaction() as connection:
        row = connection.execute(select(doors).where(doors.c.id == door)).mappings().one_or_none()
    return None if row is None else Door(**{**row, "mode": DoorMode(row["mode"])})


def of_sessions(store: Store, session: int | None = None) -> list[Door]:
    """List the doors of a session (default: of all), revoked ones included, the oldest first."""
    statement = select(doors).order_by(doors.c.created_at)
    if session is not None:
        statement = statement.where(doors.c.session == session)
    with store.transaction() as connection:
        rows = connection.execute(statement).mappings().all()
    return [Door(**{**row, "mode": DoorMode(row["mode"])}) for row in rows]


def drop(store: Store, door: str) -> None:
    """Delete a door."""
    with store.transaction() as connection:
        connection.execute(delete(doors).where(doors.c.id == door))


def revoke(store: Store, door: str, now: float) -> bool:
    """End a door for good; False if it had ended."""
    statement = update(doors).where(doors.c.id == door, doors.c.ended_at.is_(None)).values(ended_at=now, revoked=True)
    with store.transaction() as connection:
        return connection.execute(statement).rowcount > 0


def note(store: Store, event: DoorEvent) -> None:
    """Write down what happened at a door."""
    values = {name: getattr(event, name) for name in DoorEvent.__slots__}
    with store.transaction() as connection:
        connection.execute(insert(door_events).values(values))


def events(store: Store, session: int) -> list[DoorEvent]:
    """List what happened at the doors of a session, the oldest first."""
    table = door_events
    columns = [table.c[name] for name in DoorEvent.__slots__]
    with store.transaction() as connection:
        rows = connection.execute(select(*columns).where(table.c.session == session).order_by(table.c.number))
        return [DoorEvent(**row) for row in rows.mappings()]
