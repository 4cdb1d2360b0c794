"""Contexts: which session uses which name for which stored text. The texts are files elsewhere.

The quota counts the bytes of distinct texts: two names for one text cost it once. A text that came through a handle
(`ContextOrigin.ATTACHED`) is charged to the session that loaded it, and the outputs that the service keeps
(`ContextOrigin.OUTPUT`) have an allowance of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from enum import StrEnum
from sqlite3 import Row
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, literal, select, union

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import QuotaExceeded
from rlm_memory.frame_schema import handovers
from rlm_memory.lock_schema import texts as lock_texts
from rlm_memory.schema import contexts as table
from rlm_memory.schema import handles
from rlm_memory.sessions import name_of
from rlm_memory.store import Store
from rlm_memory.work_schema import handoffs

# Agents' calls run these each time, so they go to the driver directly: building a statement takes longer than SQLite
# takes to run it.
_ALL = f"SELECT {', '.join(column.name for column in table.columns)} FROM contexts WHERE session = :of"
_FIND = f"{_ALL} AND name = :called"
_OF_SESSION = f"{_ALL} ORDER BY created_at, revision"
_NAMES = "SELECT name FROM contexts WHERE session = :of ORDER BY name"
_TOUCH = "UPDATE contexts SET last_accessed_at = :now WHERE session = :of AND name = :called"
_HELD = union(
    select(table.c.digest).where(table.c.digest == bindparam("text")),
    select(handles.c.digest).where(handles.c.digest == bindparam("text")),
    select(handovers.c.digest).where(handovers.c.digest == bindparam("text")),
    select(handoffs.c.details).where(handoffs.c.details == bindparam("text")),
    select(lock_texts.c.digest).where(lock_texts.c.digest == bindparam("text")),
)


class ContextOrigin(StrEnum):
    """How a context came into its session."""

    LOADED = "loaded"
    ATTACHED = "attached"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class StoredContent:
    """What a row holds about a text: its digest in the context store, bytes, lines, type hint, metadata."""

    digest: str
    size: int
    line_count: int
    type: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One name in one session. Times are epoch seconds; each load under the name gets a new ``revision``.

    ``handle`` is the handle through which the name came, if any.
    """

    session: int
    name: str
    digest: str
    size: int
    line_count: int
    type: str
    metadata: Mapping[str, Any]
    origin: ContextOrigin
    handle: str | None
    revision: int
    created_at: float
    last_accessed_at: float

    @property
    def content(self) -> StoredContent:
        """The text that the name stands for."""
        return StoredContent(self.digest, self.size, self.line_count, self.type, self.metadata)


def find(store: Store, session: int, name: str) -> ContextRow | None:
    """Return the row of the context ``name``, or None."""
    return next((_row(row) for row in store.read(_FIND, of=session, called=name)), None)


def of_session(store: Store, session: int) -> list[ContextRow]:
    """List the session's contexts, oldest first."""
    return [_row(row) for row in store.read(_OF_SESSION, of=session)]


def names(store: Store, session: int) -> list[str]:
    """List the names of the session's contexts, sorted."""
    return [name for (name,) in store.read(_NAMES, of=session)]


def put(
    store: Store,
    session: int,
    name: str,
    content: StoredContent,
    *,
    now: float,
    origin: ContextOrigin = ContextOrigin.LOADED,
    handle: str | None = None,
    revision: int | None = None,
    quota: int | None = None,
) -> ContextRow:
    """Make ``name`` stand for ``content`` in the session and replace what it stood for.

    ``quota`` is the limit in bytes for the session's own texts together; None means no limit. ``handle`` is the handle
    that the text came through. ``revision`` is given when the load belongs to another session; without it, a new one is
    assigned.

    Raises:
        QuotaExceeded: the session would hold more than ``quota``; the old row is still there.
    """
    with store.transaction() as connection:
        connection.execute(delete(table).where(table.c.session == session, table.c.name == name))
        if quota is not None:
            _check_quota(store, session, content, quota)
        connection.execute(
            insert(table).values(
                session=session,
                name=name,
                **asdict(content),
                origin=origin.value,
                handle=handle,
                revision=store.count("context revision") + 1 if revision is None else revision,
                created_at=now,
                last_accessed_at=now,
            )
        )
        row = find(store, session, name)
    assert row is not None
    return row


def charged_bytes(store: Store, session: int, *, besides: str | None = None) -> int:
    """Sum the bytes of the distinct texts charged to the session, leaving out the digest ``besides``."""
    loaded = select(table.c.digest, table.c.size).where(
        table.c.session == session, table.c.origin == ContextOrigin.LOADED.value
    )
    pinned = select(handles.c.digest, handles.c.size).where(
        handles.c.session == session, handles.c.charged == literal(True)
    )
    held = union(loaded, pinned).subquery()  # a union holds each text once
    statement = select(func.coalesce(func.sum(held.c.size), 0))
    if besides is not None:
        statement = statement.where(held.c.digest != besides)
    total: int = store.scalars(statement)[0]
    return total


def touch(store: Store, session: int, name: str, now: float) -> None:
    """Record that the context was read."""
    store.write(_TOUCH, [{"of": session, "called": name, "now": now}])


def drop(store: Store, session: int, chosen: Iterable[str]) -> list[str]:
    """Delete the named contexts and return the names that were there."""
    wanted = sorted(set(chosen))
    if not wanted:
        return []
    statement = delete(table).where(table.c.session == session, table.c.name.in_(wanted)).returning(table.c.name)
    return sorted(store.scalars(statement))


def drop_attached(store: Store, session: int, handle: str) -> list[str]:
    """Delete the contexts that came through that handle and return their names; others with equal content stay."""
    statement = delete(table).where(table.c.session == session, table.c.handle == handle).returning(table.c.name)
    return sorted(store.scalars(statement))


def is_held(store: Store, digest: str) -> bool:
    """Whether a context, a handle, a frame's hand-over or a section of a lock still refers to the text."""
    return store.row(_HELD, {"text": digest}) is not None


def _check_quota(store: Store, session: int, content: StoredContent, quota: int) -> None:
    used = charged_bytes(store, session, besides=content.digest)
    if used + content.size > quota:
        raise QuotaExceeded(name_of(store, session), used=used, asked=content.size, limit=quota)


def _row(found: Row) -> ContextRow:
    values = dict(found)
    return ContextRow(
        **{**values, "metadata": json.loads(values["metadata"]), "origin": ContextOrigin(values["origin"])}
    )
