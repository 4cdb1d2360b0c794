"""Handles and grants: pointers to stored texts that other sessions may resolve.

A handle reads ``ctx_{session[:8]}_{type}_{seq:03d}``. It names a *text*, not a variable: when its owner loads something
else under the name, the handle still leads to the registered text. Sequence numbers are counted per eight-character
prefix, so that two sessions whose ids start alike never produce the same handle. A well-formed handle alone gives no
access: resolving it needs a row in the grants table.

A grant to a session names it: whoever holds that name, now or later, may resolve the handle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.contexts import StoredContent
from rlm_memory.errors import UnknownHandle
from rlm_memory.schema import grants, handles
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

PATTERN = re.compile(r"ctx_[A-Za-z0-9_.-]{1,8}_[a-z0-9-]+_\d{3,}")
"""Pattern of every handle; no legal context name matches it."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_UNTYPED = re.compile(r"[^a-z0-9-]+")
_LONGEST_TYPE = 24


class Audience(StrEnum):
    """Who may resolve a handle under a grant."""

    SESSION = "session"
    WORKSPACE = "workspace"
    EVERYONE = "everyone"


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant. ``subject`` is a session id or a workspace path; empty for everyone."""

    audience: Audience
    subject: str = ""


@dataclass(frozen=True, slots=True)
class HandleRow:
    """One handle: its owner, the owner's name for the text, and the text."""

    handle: str
    session: int
    name: str
    digest: str
    size: int
    line_count: int
    type: str
    metadata: Mapping[str, Any]
    charged: bool
    created_at: float

    @property
    def content(self) -> StoredContent:
        """The text that the handle leads to."""
        return StoredContent(self.digest, self.size, self.line_count, self.type, self.metadata)


def register(
    store: Store,
    owner: SessionRow,
    name: str,
    content: StoredContent,
    to: Iterable[Grant],
    *,
    charged: bool,
    now: float,
) -> HandleRow:
    """Create a handle for ``content``, which ``owner`` calls ``name``, and grant it."""
    prefix = _UNSAFE.sub("_", owner.id[:8])
    kind = _UNTYPED.sub("-", content.type.lower()).strip("-")[:_LONGEST_TYPE] or "custom"
    with store.transaction() as connection:
        handle = f"ctx_{prefix}_{kind}_{store.count(f'handle {prefix}') + 1:03d}"
        row = HandleRow(handle, owner.key, name, **asdict(content), charged=charged, created_at=now)
        connection.execute(insert(handles).values({c.name: getattr(row, c.name) for c in handles.c}))
        for grant in set(to):
            connection.execute(
                insert(grants).values(handle=handle, audience=grant.audience.value, subject=grant.subject)
            )
    return row


def resolve(store: Store, handle: str, by: SessionRow) -> HandleRow:
    """Return the handle's row if the session ``by`` owns it or has a grant.

    Raises:
        UnknownHandle: there is no such handle, or it is not granted to that session.
    """
    statement = select(handles).where(handles.c.handle == handle, _granted(by))
    row = store.row(statement)
    if row is None:
        raise UnknownHandle(handle)
    return HandleRow(**row)


def drop(store: Store, handle: str) -> None:
    """Delete one handle with its grants."""
    store.run(delete(handles).where(handles.c.handle == handle))


def drop_named(store: Store, session: int, name: str) -> None:
    """Delete the handles that the session registered for ``name``, with their grants."""
    store.run(delete(handles).where(handles.c.session == session, handles.c.name == name))


def _granted(by: SessionRow) -> ColumnElement[bool]:
    meant = [
        and_(grants.c.audience == Audience.EVERYONE.value),
        and_(grants.c.audience == Audience.SESSION.value, grants.c.subject == by.id),
    ]
    if by.workspace:  # sessions without a workspace do not share the empty one
        meant.append(and_(grants.c.audience == Audience.WORKSPACE.value, grants.c.subject == by.workspace))
    granted = select(grants.c.handle).where(grants.c.handle == handles.c.handle, or_(*meant)).exists()
    return or_(handles.c.session == by.key, granted)
