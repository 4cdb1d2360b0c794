"""Sessions: one row for each live session, and a record that a session with a given name has ended.

    active ──idle for too long──▶ resting ──used again──▶ active
      └────── ended, or idle ────────┴──────▶ (no row)

A session's *key* identifies one life: it is never reused, and everything that the session owns is keyed by it. Its *id*
is the name by which clients know it. Ending deletes the row, and with it everything that the session owned; a session
that is later opened under the same name has another key. What remains of an ended session is how and when it ended, the
last numbers of its queries and handles, and the folders that it could write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum

from sqlalchemy import RowMapping, delete, select, update
from sqlalchemy.dialects.sqlite import insert

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import SessionEnded, UnknownSession
from rlm_memory.schema import columns_of, endings, upsert, writable_folders
from rlm_memory.schema import sessions as table
from rlm_memory.store import Store

_MOST_ENDINGS = 1000
"""Number of ended sessions, the latest, whose names are kept."""


# What every call reads goes to the driver directly.
_FIND = f"SELECT {columns_of(table)} FROM sessions WHERE id = :named"
_NAME = "SELECT id FROM sessions WHERE key = :of"
_OVERDUE = f"SELECT {columns_of(table)} FROM sessions WHERE kept_until <= :now"


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
    return next((_row(dict(row)) for row in store.read(_FIND, named=session)), None)


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
    for (name,) in store.read(_NAME, of=key):
        return str(name)
    raise SessionEnded


def all_sessions(store: Store, *states: SessionStatus, most: int | None = None) -> list[SessionRow]:
    """List the sessions in ``states`` (default: any state), last used first, up to ``most``."""
    statement = select(table).order_by(table.c.last_used_at.desc(), table.c.id).limit(most)
    if states:
        statement = statement.where(table.c.state.in_([state.value for state in states]))
    return [_row(dict(row)) for row in store.rows(statement)]


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
    with store.transaction() as connection:
        row = find(store, session)
        if row is not None and row.state is SessionStatus.ACTIVE:
            return row
        if row is not None:
            waking = {"kept_until": None, "unsaved": None, "last_used_at": now}
            woken = {"state": SessionStatus.ACTIVE.value, **waking}
            connection.execute(update(table).where(table.c.key == row.key).values(**woken))
            return get(store, session)
        connection.execute(
            insert(table).values(
                key=new_key(store) if key is None else key,
                id=session,
                state=SessionStatus.ACTIVE.value,
                workspace=workspace,
                idle_seconds=idle_seconds,
                created_at=now,
                last_used_at=now,
                **_columns(policy, family or policy),
            )
        )
        return get(store, session)


def set_policy(store: Store, session: int, policy: PolicyText, family: PolicyText, idle_seconds: float) -> SessionRow:
    """Change the policy of a session, and return its row.

    Raises:
        SessionEnded: it has ended.
    """
    values = {"idle_seconds": idle_seconds, **_columns(policy, family)}
    with store.transaction() as connection:
        connection.execute(update(table).where(table.c.key == session).values(**values))
        return get(store, name_of(store, session))


def note_writable(store: Store, folders: Iterable[str]) -> None:
    """Record folders that a session can write; the record stays after its end."""
    rows = [{"path": folder} for folder in folders]
    if rows:
        store.run(insert(writable_folders).on_conflict_do_nothing(), rows)


def writable(store: Store) -> set[str]:
    """List the folders that any session has ever been able to write, besides scratch folders."""
    return set(store.scalars(select(writable_folders.c.path)))


def touch(store: Store, session: int, now: float) -> None:
    """Record that the session is in use."""
    store.run(update(table).where(table.c.key == session).values(last_used_at=now))


def rest(store: Store, session: int, until: float | None, unsaved: str | None = None) -> None:
    """Suspend the session, with everything that it owns, until it is used again; it ends at ``until``, if given.

    ``unsaved`` is why its variables could not be saved.
    """
    resting = {"state": SessionStatus.RESTING.value, "kept_until": until, "unsaved": unsaved}
    store.run(update(table).where(table.c.key == session).values(**resting))


def overdue(store: Store, now: float) -> list[SessionRow]:
    """List the suspended sessions whose time to be kept has passed."""
    return [_row(dict(row)) for row in store.read(_OVERDUE, now=now)]


def end(store: Store, session: int, how: How, now: float, went: Went | None = None) -> None:
    """End the session: delete its row and everything that it owns. ``went`` says how much that was."""
    with store.transaction() as connection:
        name = connection.execute(delete(table).where(table.c.key == session).returning(table.c.id)).scalar()
        if name is None:
            return
        told = {"id": name, "how": how.value, "at": now, "went": None if went is None else asdict(went)}
        connection.execute(upsert(endings), told)
        newest = select(endings.c.id).order_by(endings.c.at.desc(), endings.c.id).limit(_MOST_ENDINGS)
        connection.execute(delete(endings).where(endings.c.id.not_in(newest)))


def ending_of(store: Store, name: str) -> Ending | None:
    """Return how the last session with that name ended, or None."""
    row = store.row(select(endings).where(endings.c.id == name))
    return None if row is None else _ending(row)


def latest_endings(store: Store, most: int) -> list[Ending]:
    """List the latest endings, latest first, without those whose name is in use again."""
    statement = select(endings).where(endings.c.id.not_in(select(table.c.id))).order_by(endings.c.at.desc()).limit(most)
    return [_ending(row) for row in store.rows(statement)]


def _ending(row: RowMapping) -> Ending:
    return Ending(row["id"], How(row["how"]), row["at"], None if row["went"] is None else Went(**row["went"]))


def _columns(policy: PolicyText, family: PolicyText) -> dict[str, str]:
    return {
        "policy": policy.origin,
        "policy_text": policy.text,
        "policy_digest": policy.digest,
        "family_text": family.text,
        "family_digest": family.digest,
    }


def _row(values: dict[str, object]) -> SessionRow:
    values["state"] = SessionStatus(str(values["state"]))
    return SessionRow(**values)  # type: ignore[arg-type]  # the columns are the fields
