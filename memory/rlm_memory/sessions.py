"""Sessions: one row for each live session, and a record that a session with a given name has ended.

    active ──idle for too long──▶ resting ──used again──▶ active
      └────── ended, or idle ────────┴──────▶ (no row)

A session's *key* identifies one life: it is never reused, and everything that the session owns is keyed by it. Its *id*
is the name by which clients know it. Ending deletes the row, and with it everything that the session owned; a session
that is later opened under the same name has another key. What remains of an ended session is how and when it ended, the
last numbers of its queries and handles, and the folders that it could write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from sqlite3 import Row

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import SessionEnded, UnknownSession
from rlm_memory.schema import endings
from rlm_memory.schema import sessions as table
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, insert_into, upsert_into

_MOST_ENDINGS = 1000
"""Number of ended sessions, the latest, whose names are kept."""

_READ = f"SELECT {columns_of(table)} FROM sessions"
_FIND = f"{_READ} WHERE id = :named"
_NAME = "SELECT id FROM sessions WHERE key = :of"
_LAST_USED_FIRST = "ORDER BY last_used_at DESC, id LIMIT :most"
_ALL = f"{_READ} {_LAST_USED_FIRST}"
_IN_STATES = f"{_READ} WHERE state IN (SELECT value FROM json_each(:states)) {_LAST_USED_FIRST}"
_OVERDUE = f"{_READ} WHERE kept_until <= :now"
_OPEN = insert_into(table)
_WAKE = "UPDATE sessions SET state = 'active', kept_until = NULL, unsaved = NULL, last_used_at = :now WHERE key = :of"
_SET_POLICY = """
    UPDATE sessions
    SET idle_seconds = :idle_seconds, policy = :policy, policy_text = :policy_text, policy_digest = :policy_digest,
        family_text = :family_text, family_digest = :family_digest
    WHERE key = :of
"""
_NOTE_WRITABLE = "INSERT INTO writable_folders (path) VALUES (:path) ON CONFLICT DO NOTHING"
_TOUCH = "UPDATE sessions SET last_used_at = :now WHERE key = :of"
_REST = "UPDATE sessions SET state = 'resting', kept_until = :until, unsaved = :unsaved WHERE key = :of"
_END = "DELETE FROM sessions WHERE key = :of RETURNING id"
_NOTE_ENDING = upsert_into(endings)
_FORGET_ENDINGS = "DELETE FROM endings WHERE id NOT IN (SELECT id FROM endings ORDER BY at DESC, id LIMIT :most)"
_ENDING = f"SELECT {columns_of(endings)} FROM endings WHERE id = :named"
_LATEST_ENDINGS = f"""
    SELECT {columns_of(endings)} FROM endings
    WHERE id NOT IN (SELECT id FROM sessions) ORDER BY at DESC LIMIT :most
"""


class SessionStatus(StrEnum):
    """The state of a session."""

    ACTIVE = "active"
    RESTING = "resting"
    """It was idle for too long and is suspended. What it owns is kept until it is used again or ends."""


class How(StrEnum):
    """How a session ended."""

    ENDED = "ended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Went:
    """What was deleted with an expired session: texts and their bytes, pending queries; and how long it was idle.

    ``variables`` says whether there were any, as far as is known.
    """

    texts: int
    size: int
    queries: int
    idle_seconds: float
    variables: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a session with the name ``id``: how, and when (epoch seconds)."""

    id: str
    how: How
    at: float
    went: Went | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session. ``workspace`` is a directory or empty; times are epoch seconds.

    ``policy`` is where the policy was read, a name or a path, and ``policy_text`` its content with the hash
    ``policy_digest``; ``family_text`` is the policy of the first session in the family of forks.

    ``kept_until`` is when a suspended session ends; None: not by itself. ``unsaved`` is why its variables could not be
    saved when it was suspended; None: they were, or there were none.
    """

    key: int
    id: str
    state: SessionStatus
    workspace: str
    policy: str
    idle_seconds: float
    created_at: float
    last_used_at: float
    policy_text: str
    policy_digest: str
    family_text: str
    family_digest: str
    kept_until: float | None = None
    unsaved: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyText:
    """The content of a policy with its hash, and where it was read: a name or a path."""

    origin: str
    text: str
    digest: str


def find(store: Store, session: str) -> SessionRow | None:
    """Return the row of the session with that name, or None."""
    return store.record(SessionRow, _FIND, named=session)


def get(store: Store, session: str) -> SessionRow:
    """Return the row of the session with that name.

    Raises:
        UnknownSession: there is none.
    """
    row = find(store, session)
    if row is None:
        raise UnknownSession(session)
    return row


def name_of(store: Store, key: int) -> str:
    """Return the name of the session with that key.

    Raises:
        SessionEnded: it has ended.
    """
    name = store.scalar(_NAME, of=key)
    if name is None:
        raise SessionEnded
    return str(name)


def all_sessions(store: Store, *states: SessionStatus, most: int | None = None) -> list[SessionRow]:
    """List the sessions in ``states`` (default: any state), last used first, up to ``most``."""
    statement = _IN_STATES if states else _ALL
    return store.records(SessionRow, statement, states=json.dumps(states), most=-1 if most is None else most)


def new_key(store: Store) -> int:
    """Return an unused key for a session that is about to be opened."""
    return store.count("session key") + 1


def open_session(
    store: Store,
    session: str,
    *,
    workspace: str,
    policy: PolicyText,
    family: PolicyText | None = None,
    idle_seconds: float,
    now: float,
    key: int | None = None,
) -> SessionRow:
    """Start a session, or wake a suspended one, and return its row.

    An active or suspended session keeps the workspace and policy that it was opened with. ``family`` is the policy of
    the first session in the family of forks; None: it is not a fork. ``key`` is one of `new_key`, for a new session.
    """
    with store.transaction():
        row = find(store, session)
        if row is not None and row.state is SessionStatus.ACTIVE:
            return row
        if row is not None:
            store.run(_WAKE, of=row.key, now=now)
            return get(store, session)
        store.run(
            _OPEN,
            key=new_key(store) if key is None else key,
            id=session,
            state=SessionStatus.ACTIVE.value,
            workspace=workspace,
            idle_seconds=idle_seconds,
            created_at=now,
            last_used_at=now,
            kept_until=None,
            unsaved=None,
            **_columns(policy, family or policy),
        )
        return get(store, session)


def set_policy(store: Store, session: int, policy: PolicyText, family: PolicyText, idle_seconds: float) -> SessionRow:
    """Change the policy of a session, and return its row.

    Raises:
        SessionEnded: it has ended.
    """
    with store.transaction():
        store.run(_SET_POLICY, of=session, idle_seconds=idle_seconds, **_columns(policy, family))
        return get(store, name_of(store, session))


def note_writable(store: Store, folders: Iterable[str]) -> None:
    """Record folders that a session can write; the record stays after its end."""
    rows = [{"path": folder} for folder in folders]
    if rows:
        store.run_each(_NOTE_WRITABLE, rows)


def writable(store: Store) -> set[str]:
    """List the folders that any session has ever been able to write, besides scratch folders."""
    return set(store.scalars("SELECT path FROM writable_folders"))


def touch(store: Store, session: int, now: float) -> None:
    """Record that the session is in use."""
    store.run(_TOUCH, of=session, now=now)


def rest(store: Store, session: int, until: float | None, unsaved: str | None = None) -> None:
    """Suspend the session, with everything that it owns, until it is used again; it ends at ``until``, if given.

    ``unsaved`` is why its variables could not be saved.
    """
    store.run(_REST, of=session, until=until, unsaved=unsaved)


def overdue(store: Store, now: float) -> list[SessionRow]:
    """List the suspended sessions whose time to be kept has passed."""
    return store.records(SessionRow, _OVERDUE, now=now)


def end(store: Store, session: int, how: How, now: float, went: Went | None = None) -> None:
    """End the session: delete its row and everything that it owns. ``went`` says how much that was."""
    with store.transaction():
        for (name,) in store.returned(_END, of=session):
            told = None if went is None else json.dumps(asdict(went))
            store.run(_NOTE_ENDING, id=name, how=how.value, at=now, went=told)
            store.run(_FORGET_ENDINGS, most=_MOST_ENDINGS)


def ending_of(store: Store, name: str) -> Ending | None:
    """Return how the last session with that name ended, or None."""
    row = store.row(_ENDING, named=name)
    return None if row is None else _ending(row)


def latest_endings(store: Store, most: int) -> list[Ending]:
    """List the latest endings, latest first, without those whose name is in use again."""
    return [_ending(row) for row in store.rows(_LATEST_ENDINGS, most=most)]


def _ending(row: Row) -> Ending:
    went = json.loads(row["went"] or "null")
    return Ending(row["id"], How(row["how"]), row["at"], None if went is None else Went(**went))


def _columns(policy: PolicyText, family: PolicyText) -> dict[str, str]:
    return {
        "policy": policy.origin,
        "policy_text": policy.text,
        "policy_digest": policy.digest,
        "family_text": family.text,
        "family_digest": family.digest,
    }
