"""Attachments: the ways in which front ends may open a session, how they were used, and which were revoked.

Only the digest of an attachment's key is stored. An attachment and its history belong to the session and are deleted
with it.
"""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from rlm_ipc.attachment_requests import AttachmentKind
from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.schema import attachment_events, attachments
from rlm_memory.store import Store


@dataclass(frozen=True, slots=True)
class AttachmentRow:
    """An attachment of a session. Times in epoch seconds; ``ended_at`` is when it was revoked."""

    id: str
    session: int
    mode: AttachmentKind
    key_digest: str
    created_at: float
    ended_at: float | None = None
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class AttachmentEvent:
    """An event of an attachment: ``opened``, ``closed``, ``refused`` or ``revoked``."""

    attachment: str
    session: int
    event: str
    at: float


def grant(store: Store, attachment: AttachmentRow) -> None:
    """Add an attachment."""
    values = {name: getattr(attachment, name) for name in AttachmentRow.__slots__}
    store.run(insert(attachments).values({**values, "mode": attachment.mode.value}))


def find(store: Store, attachment: str) -> AttachmentRow | None:
    """Return an attachment, even a revoked one."""
    row = store.row(select(attachments).where(attachments.c.id == attachment))
    return None if row is None else AttachmentRow(**{**row, "mode": AttachmentKind(row["mode"])})


def of_sessions(store: Store, session: int | None = None) -> list[AttachmentRow]:
    """List the attachments of a session (default: of all), revoked ones included, oldest first."""
    statement = select(attachments).order_by(attachments.c.created_at)
    if session is not None:
        statement = statement.where(attachments.c.session == session)
    rows = store.rows(statement)
    return [AttachmentRow(**{**row, "mode": AttachmentKind(row["mode"])}) for row in rows]


def drop(store: Store, attachment: str) -> None:
    """Delete an attachment."""
    store.run(delete(attachments).where(attachments.c.id == attachment))


def revoke(store: Store, attachment: str, now: float) -> bool:
    """End an attachment for good. Return False if it had already ended."""
    statement = (
        update(attachments)
        .where(attachments.c.id == attachment, attachments.c.ended_at.is_(None))
        .values(ended_at=now, revoked=True)
    )
    return store.run(statement) > 0


def note(store: Store, event: AttachmentEvent) -> None:
    """Record an event of an attachment."""
    values = {name: getattr(event, name) for name in AttachmentEvent.__slots__}
    store.run(insert(attachment_events).values(values))


def events(store: Store, session: int) -> list[AttachmentEvent]:
    """List the events of a session's attachments, oldest first."""
    table = attachment_events
    columns = [table.c[name] for name in AttachmentEvent.__slots__]
    with store.transaction() as connection:
        rows = connection.execute(select(*columns).where(table.c.session == session).order_by(table.c.number))
        return [AttachmentEvent(**row) for row in rows.mappings()]
