"""Contexts: which session uses which name for which stored text. The texts are files elsewhere.

The quota counts the bytes of distinct texts: two names for one text cost it once. A text that came through a handle
(`ContextOrigin.ATTACHED`) is charged to the session that loaded it, and the outputs that the service keeps
(`ContextOrigin.OUTPUT`) have an allowance of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import alike
from rlm_memory.errors import QuotaExceeded
from rlm_memory.records import values_of
from rlm_memory.schema import contexts as table
from rlm_memory.sessions import name_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, insert_into

_ALL = f"SELECT {columns_of(table)} FROM contexts WHERE session = :of"
_FIND = f"{_ALL} AND name = :called"
_OF_SESSION = f"{_ALL} ORDER BY created_at, revision"
_NAMES = "SELECT name FROM contexts WHERE session = :of ORDER BY name"
_TOUCH = "UPDATE contexts SET last_accessed_at = :now WHERE session = :of AND name = :called"
_PUT = insert_into(table)
_REMOVE = "DELETE FROM contexts WHERE session = :of AND name = :called"
_DROP = """
    DELETE FROM contexts WHERE session = :of AND name IN (SELECT value FROM json_each(:among)) RETURNING name
"""
_DROP_ATTACHED = "DELETE FROM contexts WHERE session = :of AND handle = :handle RETURNING name"
# A union holds each text once. The text to leave out may be none.
_CHARGED = """
    SELECT coalesce(sum(size), 0) FROM (
        SELECT digest, size FROM contexts WHERE session = :of AND origin = 'loaded'
        UNION
        SELECT digest, size FROM handles WHERE session = :of AND charged
    ) WHERE digest IS NOT :besides
"""
_HELD = """
    SELECT 1 FROM contexts WHERE digest = :text
    UNION ALL SELECT 1 FROM handles WHERE digest = :text
    UNION ALL SELECT 1 FROM frame_handovers WHERE digest = :text
    UNION ALL SELECT 1 FROM frame_handoffs WHERE details = :text
    UNION ALL SELECT 1 FROM lock_texts WHERE digest = :text
"""


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
        return alike(StoredContent, self)


def find(store: Store, session: int, name: str) -> ContextRow | None:
    """Return the row of the context ``name``, or None."""
    return store.record(ContextRow, _FIND, of=session, called=name)


def of_session(store: Store, session: int) -> list[ContextRow]:
    """List the session's contexts, oldest first."""
    return store.records(ContextRow, _OF_SESSION, of=session)


def names(store: Store, session: int) -> list[str]:
    """List the names of the session's contexts, sorted."""
    return store.scalars(_NAMES, of=session)


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
    with store.transaction():
        store.run(_REMOVE, of=session, called=name)
        if quota is not None:
            _check_quota(store, session, content, quota)
        row = alike(
            ContextRow,
            content,
            session=session,
            name=name,
            origin=origin,
            handle=handle,
            revision=store.count("context revision") + 1 if revision is None else revision,
            created_at=now,
            last_accessed_at=now,
        )
        store.run(_PUT, **values_of(row))
    return row


def charged_bytes(store: Store, session: int, *, besides: str | None = None) -> int:
    """Sum the bytes of the distinct texts charged to the session, leaving out the digest ``besides``."""
    return int(store.scalar(_CHARGED, of=session, besides=besides))


def touch(store: Store, session: int, name: str, now: float) -> None:
    """Record that the context was read."""
    store.run(_TOUCH, of=session, called=name, now=now)


def drop(store: Store, session: int, chosen: Iterable[str]) -> list[str]:
    """Delete the named contexts and return the names that were there."""
    wanted = [name for name in chosen if "\0" not in name]  # no context has it, and JSON functions of SQLite stop there
    return sorted(name for (name,) in store.returned(_DROP, of=session, among=json.dumps(wanted))) if wanted else []


def drop_attached(store: Store, session: int, handle: str) -> list[str]:
    """Delete the contexts that came through that handle and return their names; others with equal content stay."""
    return sorted(name for (name,) in store.returned(_DROP_ATTACHED, of=session, handle=handle))


def is_held(store: Store, digest: str) -> bool:
    """Whether a context, a handle, a frame's hand-over or a section of a lock still refers to the text."""
    return store.row(_HELD, text=digest) is not None


def _check_quota(store: Store, session: int, content: StoredContent, quota: int) -> None:
    used = charged_bytes(store, session, besides=content.digest)
    if used + content.size > quota:
        raise QuotaExceeded(name_of(store, session), used=used, asked=content.size, limit=quota)
