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
from enum import StrEnum
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import alike
from rlm_memory.contexts import StoredContent
from rlm_memory.errors import UnknownHandle
from rlm_memory.records import values_of
from rlm_memory.schema import grants, handles
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, insert_into

PATTERN = re.compile(r"ctx_[A-Za-z0-9_.-]{1,8}_[a-z0-9-]+_\d{3,}")
"""Pattern of every handle; no legal context name matches it."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_UNTYPED = re.compile(r"[^a-z0-9-]+")
_LONGEST_TYPE = 24

_REGISTER, _GRANT = insert_into(handles), insert_into(grants)
# Sessions without a workspace do not share the empty one.
_RESOLVE = f"""
    SELECT {columns_of(handles)} FROM handles
    WHERE handle = :named AND (
        session = :of
        OR EXISTS (
            SELECT 1 FROM grants
            WHERE grants.handle = handles.handle AND (
                audience = 'everyone'
                OR audience = 'session' AND subject = :id
                OR audience = 'workspace' AND subject = :workspace AND subject != ''
            )
        )
    )
"""
_DROP = "DELETE FROM handles WHERE handle = :named"
_DROP_NAMED = "DELETE FROM handles WHERE session = :of AND name = :called"


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
        return alike(StoredContent, self)


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
    with store.transaction():
        handle = f"ctx_{prefix}_{kind}_{store.count(f'handle {prefix}') + 1:03d}"
        more = {"handle": handle, "session": owner.key, "name": name, "charged": charged, "created_at": now}
        row = alike(HandleRow, content, **more)
        store.run(_REGISTER, **values_of(row))
        store.run_each(_GRANT, [{"handle": handle, **values_of(grant)} for grant in set(to)])
    return row


def resolve(store: Store, handle: str, by: SessionRow) -> HandleRow:
    """Return the handle's row if the session ``by`` owns it or has a grant.

    Raises:
        UnknownHandle: there is no such handle, or it is not granted to that session.
    """
    row = store.record(HandleRow, _RESOLVE, named=handle, of=by.key, id=by.id, workspace=by.workspace)
    if row is None:
        raise UnknownHandle(handle)
    return row


def drop(store: Store, handle: str) -> None:
    """Delete one handle with its grants."""
    store.run(_DROP, named=handle)


def drop_named(store: Store, session: int, name: str) -> None:
    """Delete the handles that the session registered for ``name``, with their grants."""
    store.run(_DROP_NAMED, of=session, called=name)
