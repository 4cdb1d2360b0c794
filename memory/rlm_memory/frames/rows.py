"""Rows of frames: reading them, changing their status, and the log of who did what.

Every function joins the open transaction, or runs in its own. Only `step` changes a status: it checks the table of
`rlm_memory.frames.states` and writes the event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import UnknownFrame
from rlm_memory.frame_schema import compactions, events, frames
from rlm_memory.frames import counts
from rlm_memory.frames.states import OPEN, Kind, Status, Verb, check_step
from rlm_memory.store import Store
from rlm_memory.tables import columns_of

_ID = re.compile(r"f([1-9][0-9]{0,17})")

_COLUMNS = columns_of(frames)
_GET = f"SELECT {_COLUMNS} FROM frames WHERE key = :named"
_ROOT = f"SELECT {_COLUMNS} FROM frames WHERE tree = :of AND parent IS NULL"
_CHILDREN = f"SELECT {_COLUMNS} FROM frames WHERE parent = :named ORDER BY key"
_IN_SESSION = f"SELECT {_COLUMNS} FROM frames WHERE session = :of AND status = 'in_progress' ORDER BY key"
_EVENTS = f"SELECT {columns_of(events)} FROM frame_events WHERE frame = :of"
_OLDEST_EVENTS = f"{_EVENTS} ORDER BY number LIMIT 1000"
_LAST_EVENT = f"{_EVENTS} AND verb IN (SELECT value FROM json_each(:verbs)) ORDER BY number DESC LIMIT 1"
_NOTE = """
    INSERT INTO frame_events (frame, at, author, verb, data) VALUES (:frame, :at, :author, :verb, :data)
    RETURNING number"""
_STEP = """
    UPDATE frames SET status = :status, started_at = :started_at, ended_at = :ended_at, ended = :ended, cause = :cause,
        session = :session, holder = NULL, freed_at = NULL
    WHERE key = :named"""
_UNFOLD = """
    UPDATE frames SET folded_count = folded_count - 1 WHERE key = :parent AND folded >= :ended AND folded_count > 0"""
_ABOVE = f"""
    WITH RECURSIVE above(key, parent, step) AS (
        SELECT key, parent, 0 FROM frames WHERE key = :named
        UNION ALL SELECT frames.key, frames.parent, step + 1 FROM frames JOIN above ON frames.key = above.parent
    ) SELECT {_COLUMNS} FROM above JOIN frames ON frames.key = above.key ORDER BY step"""
# Below a frame that has ended other than by invalidation, nothing runs and nothing is planned. Not looking there keeps
# the end of one frame among ten thousand cheap.
_UNDER = f"""
    WITH RECURSIVE under(key) AS (
        SELECT key FROM frames WHERE parent = :named AND status IN ('planned', 'in_progress', 'blocked', 'invalidated')
        UNION ALL
        SELECT frames.key FROM frames JOIN under ON frames.parent = under.key
        WHERE frames.status IN ('planned', 'in_progress', 'blocked', 'invalidated')
    ) SELECT {_COLUMNS} FROM under JOIN frames ON frames.key = under.key ORDER BY frames.depth, frames.key"""
_WHOLE = f"""
    WITH RECURSIVE whole(key) AS (
        SELECT key FROM frames WHERE key = :named
        UNION ALL SELECT frames.key FROM frames JOIN whole ON frames.parent = whole.key
    ) SELECT {_COLUMNS} FROM whole JOIN frames ON frames.key = whole.key ORDER BY frames.depth, frames.key"""
_DELETE = "DELETE FROM frames WHERE key = :named"
_GONE = "frames gone"
"""The counter of deletions, and of sessions that have ended before their frames."""
_LEAVE = "UPDATE frames SET session = NULL WHERE key = :named"
_STATE = """
    SELECT coalesce((SELECT max(number) FROM frame_events), 0),
        coalesce((SELECT max(number) FROM frame_compactions), 0),
        coalesce((SELECT value FROM counters WHERE scope = :gone), 0)"""
_COMPACTION = f"SELECT {columns_of(compactions)} FROM frame_compactions WHERE frame = :of ORDER BY number DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class FrameRow:
    """One frame. Times are epoch seconds; ``session`` is the key of the session that it runs in, or ran in last.

    ``ended`` and ``cause`` are numbers of events; see `rlm_memory.frame_schema`. `rlm_memory.frames.counts` explains
    the counts, `rlm_memory.work.leases` explains ``holder`` and ``fence``.
    """

    key: int
    tree: str
    parent: int | None
    depth: int
    kind: Kind
    goal: str
    status: Status
    author: str
    created_at: float
    session: int | None = None
    forked_from: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    ended: int | None = None
    cause: int | None = None
    folded: int = 0
    folded_count: int = 0
    log: str | None = None
    priority: int = 500
    waiting: int = 0
    closed_above: int = 0
    dependents: int = 0
    open_children: int = 0
    holder: str | None = None
    fence: int = 0
    freed_at: float | None = None

    @property
    def id(self) -> str:
        """The id that people and models use."""
        return frame_id(self.key)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The part of a frame that is kept in the contexts of others.

    ``source`` is ``caller``, ``extract`` or ``model``.
    """

    number: int
    frame: int
    source: str
    text: str
    artifacts: tuple[str, ...]
    decisions: tuple[str, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log of a tree."""

    number: int
    frame: int
    at: float
    author: str
    verb: str
    data: Mapping[str, Any]


def frame_id(key: int) -> str:
    """Return the id of the frame with that key."""
    return f"f{key}"


def frame_key(frame: str) -> int:
    """Return the key of the frame with that id.

    Raises:
        UnknownFrame: it is not the id of a frame.
    """
    found = _ID.fullmatch(frame)
    if found is None:
        raise UnknownFrame(frame)
    return int(found[1])


def get(store: Store, key: int) -> FrameRow:
    """Return a frame.

    Raises:
        UnknownFrame: there is none.
    """
    row = store.record(FrameRow, _GET, named=key)
    if row is None:
        raise UnknownFrame(frame_id(key))
    return row


def root_of(store: Store, tree: str) -> FrameRow | None:
    """Return the root of a tree, or None if nobody has needed one yet."""
    return store.record(FrameRow, _ROOT, of=tree)


def children(store: Store, key: int) -> list[FrameRow]:
    """List the children of a frame, oldest first."""
    return store.records(FrameRow, _CHILDREN, named=key)


def in_session(store: Store, session: int) -> list[FrameRow]:
    """List the frames that run in a session, oldest first."""
    return store.records(FrameRow, _IN_SESSION, of=session)


def goals_running(store: Store, session: int) -> list[FrameRow]:
    """List the running goals of a session, oldest first, without the frame that stands for it."""
    return [row for row in in_session(store, session) if row.kind is not Kind.SESSION]


def own_goal(running: Iterable[FrameRow]) -> FrameRow | None:
    """Return the goal, among a session's running ones, that the session was forked for, or None."""
    own = min(running, key=lambda row: (row.depth, row.key), default=None)
    return own if own is not None and own.forked_from is not None else None


def goals_in(store: Store, session: int) -> bool:
    """Whether a goal runs in a session, or one below a frame that stands for the session is still open.

    A fork without a goal does not count: it does not keep a session alive.
    """
    return any(row.kind is not Kind.SESSION or _has_open(store, row.key) for row in in_session(store, session))


def above(store: Store, key: int) -> list[FrameRow]:
    """List the frame and those above it, up to the root."""
    return store.records(FrameRow, _ABOVE, named=key)


def first_closed(upper: Iterable[FrameRow]) -> FrameRow | None:
    """Return the first ended frame on the path up, unless a running frame comes before it.

    If there is one, nothing may start.
    """
    for row in upper:
        if row.status is Status.IN_PROGRESS:
            return None
        if row.status not in OPEN:
            return row
    return None


def under(store: Store, key: int) -> list[FrameRow]:
    """List the planned, running, blocked and invalidated frames below a frame, top first."""
    return store.records(FrameRow, _UNDER, named=key)


def whole(store: Store, key: int) -> list[FrameRow]:
    """List a frame and everything below it, whatever their status, top first.

    Raises:
        UnknownFrame: there is no such frame.
    """
    found = store.records(FrameRow, _WHOLE, named=key)
    if not found:
        raise UnknownFrame(frame_id(key))
    return found


def nearest_session(store: Store, key: int) -> FrameRow | None:
    """Return the frame, or the nearest one above it, that runs in a session: a planned frame has none to fork."""
    return next((row for row in above(store, key) if row.session is not None and row.status in OPEN), None)


def compaction_of(store: Store, key: int) -> Compaction | None:
    """Return the compaction of a frame that counts; None if it has none yet."""
    return store.record(Compaction, _COMPACTION, of=key)


def events_of(store: Store, key: int) -> list[Event]:
    """List the events of a frame, oldest first, up to a thousand."""
    return store.records(Event, _OLDEST_EVENTS, of=key)


def last_event(store: Store, key: int, *verbs: str) -> Event | None:
    """Return the latest event of the frame with one of those verbs, or None."""
    return store.record(Event, _LAST_EVENT, of=key, verbs=json.dumps(verbs))


def note(store: Store, key: int, verb: str, author: str, now: float, **data: Any) -> int:
    """Append to the log. Return the number of the event."""
    ((number,),) = store.returned(_NOTE, frame=key, at=now, author=author, verb=verb, data=json.dumps(data))
    return int(number)


def same_tree(store: Store, beside: FrameRow, frame: str) -> FrameRow:
    """Return a frame of the same tree by its id; the answer must not reveal frames of other trees.

    Raises:
        UnknownFrame: the tree has no such frame.
    """
    row = get(store, frame_key(frame))
    if row.tree != beside.tree:
        raise UnknownFrame(frame)
    return row


def step(
    store: Store,
    row: FrameRow,
    verb: Verb,
    wanted: Status,
    *,
    author: str,
    now: float,
    cause: int | None = None,
    **data: Any,
) -> int:
    """Change the status of a frame. Return the number of the event, which is its own ``cause`` unless one is given.

    Raises:
        FrameStatusRefused: the table of states has no such step.
    """
    check_step(row.id, verb, row.status, wanted)
    ran = row.status is Status.IN_PROGRESS
    ends = ran and wanted not in {Status.PLANNED, Status.IN_PROGRESS}
    goes_on = wanted in {Status.PLANNED, Status.IN_PROGRESS}
    with store.transaction():
        number = note(store, row.key, verb, author, now, was=row.status, status=wanted, **data)
        store.run(
            _STEP,
            named=row.key,
            status=wanted.value,
            started_at=now if verb is Verb.START else row.started_at,
            ended_at=now if ends else None if goes_on else row.ended_at,
            ended=number if ends else None if goes_on else row.ended,
            cause=None if goes_on else cause or number,
            # An ended frame remembers its session for its log; a frame that starts again gets another one.
            session=None if goes_on else row.session,
        )
        if goes_on:
            unfold(store, row)
        counts.changed(store, row.key, row.parent, row.kind, row.status, wanted)
    return number


def remove(store: Store, key: int) -> None:
    """Delete a frame with everything below it."""
    with store.transaction():
        store.run(_DELETE, named=key)
        store.count(_GONE)


def leave(store: Store, key: int) -> None:
    """Take its session, which is about to end, from a frame that stands for it."""
    with store.transaction():
        store.run(_LEAVE, named=key)
        store.count(_GONE)


def unchanged_while(store: Store) -> tuple[int, ...]:
    """Return numbers that change whenever the goal, place, status or result of any frame changes, or its session ends.

    A rolled-back transaction counts as a change, because the numbers that it saw are used again.
    """
    return *store.one(_STATE, gone=_GONE), store.rollbacks


def unfold(store: Store, row: FrameRow) -> None:
    """Stop counting a frame among its parent's folded children: it starts again, or is deleted."""
    if row.ended is not None and row.parent is not None:
        store.run(_UNFOLD, parent=row.parent, ended=row.ended)


def _has_open(store: Store, key: int) -> bool:
    goals = (row for row in under(store, key) if row.kind is not Kind.SESSION)
    return any(row.status in {Status.PLANNED, Status.IN_PROGRESS} for row in goals)
