"""Attachments: the ways in which front ends may open a session, how they were used, and which were revoked.

Only the digest of an attachment's key is stored. An attachment and its history belong to the session and are deleted
with it.
"""

from __future__ import annotations

from rlm_ipc.attachment_requests import AttachmentKind
from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.records import values_of
from rlm_memory.schema import attachments
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, insert_into

_GRANT = insert_into(attachments)
_READ = f"SELECT {columns_of(attachments)} FROM attachments"
_FIND = f"{_READ} WHERE id = :named"
_ALL = f"{_READ} ORDER BY created_at"
_OF_SESSION = f"{_READ} WHERE session = :of ORDER BY created_at"
_DROP = "DELETE FROM attachments WHERE id = :named"
_REVOKE = "UPDATE attachments SET ended_at = :now, revoked = 1 WHERE id = :named AND ended_at IS NULL"
_NOTE = "INSERT INTO attachment_events (attachment, session, event, at) VALUES (:attachment, :session, :event, :at)"
_EVENTS = "SELECT attachment, session, event, at FROM attachment_events WHERE session = :of ORDER BY number"


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
    store.run(_GRANT, **values_of(attachment))


def find(store: Store, attachment: str) -> AttachmentRow | None:
    """Return an attachment, even a revoked one."""
    return store.record(AttachmentRow, _FIND, named=attachment)


def of_sessions(store: Store, session: int | None = None) -> list[AttachmentRow]:
    """List the attachments of a session (default: of all), revoked ones included, oldest first."""
    return store.records(AttachmentRow, _ALL if session is None else _OF_SESSION, of=session)


def drop(store: Store, attachment: str) -> None:
    """Delete an attachment."""
    store.run(_DROP, named=attachment)


def revoke(store: Store, attachment: str, now: float) -> bool:
    """End an attachment for good. Return False if it had already ended."""
    return store.run(_REVOKE, named=attachment, now=now) > 0


def note(store: Store, event: AttachmentEvent) -> None:
    """Record an event of an attachment."""
    store.run(_NOTE, **values_of(event))


def events(store: Store, session: int) -> list[AttachmentEvent]:
    """List the events of a session's attachments, oldest first."""
    return store.records(AttachmentEvent, _EVENTS, of=session)
