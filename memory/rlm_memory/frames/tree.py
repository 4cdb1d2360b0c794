"""Growing the tree: the root, frames of sessions, plans, starts.

A tree has one root, created when the first session of that place needs a frame. The root stands for that session.
Another session of the place (a worktree, or one with its own name) gets a frame below the root. These frames have the
kind ``session``. Nobody has set them as a goal, so they are never popped, and they are deleted with their session when
nothing is below them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.errors import FrameStatusRefused, RowRequestError
from rlm_memory.frame_schema import frames
from rlm_memory.frames import counts
from rlm_memory.frames.edges import check_waits
from rlm_memory.frames.rows import (
    FrameRow,
    above,
    first_closed,
    get,
    in_session,
    note,
    root_of,
    step,
)
from rlm_memory.frames.states import OPEN, Kind, Status, Verb
from rlm_memory.places import name_of_tree, tree_of
from rlm_memory.records import values_of
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store
from rlm_memory.tables import insert_into

LONGEST_GOAL = 4000
"""Characters kept of a goal."""
DEEPEST_PLANNED = 50
"""Levels of goals in one plan."""
MOST_PLANNED = 500
"""Maximum number of frames that one call may plan."""

_INSERT = insert_into(frames)
_RUNS_IN = "UPDATE frames SET session = :session, forked_from = :source WHERE key = :named"
# A frame that started only because something below it did. Anyone may claim it once nothing below it is open.
_NOBODYS = "UPDATE frames SET freed_at = :now WHERE key = :named"
_PROMISE = "INSERT INTO frame_operations (frame, what) VALUES (:frame, 'push')"
_KEPT = "DELETE FROM frame_operations WHERE frame = :frame AND what = 'push'"
_PARENTS = """
    SELECT frames.session, sessions.id FROM frames JOIN sessions ON sessions.key = frames.forked_from
    WHERE frames.session IN (SELECT value FROM json_each(:among))"""


@dataclass(frozen=True, slots=True)
class Plan:
    """A goal with the goals below it, to be recorded."""

    goal: str
    children: Sequence[Plan] = ()
    kind: Kind = Kind.TASK
    priority: int = 500

    @property
    def size(self) -> int:
        """Number of frames that it creates."""
        return 1 + sum(child.size for child in self.children)


def of_session(store: Store, session: SessionRow, *, author: str, now: float) -> FrameRow:
    """Return the frame that a session runs for, creating one of the kind ``session`` if there is none.

    If several share the session, it is the highest in the tree.
    """
    running = in_session(store, session.key)  # before the transaction, which takes longer to begin
    if running:
        return min(running, key=lambda row: (row.depth, row.key))
    with store.transaction():
        root = root_of(store, tree := tree_of(session.workspace, session.id))
        if root is None:
            frame = _add(store, tree, None, name_of_tree(tree), Kind.SESSION, author=author, now=now)
        elif root.session is None:
            frame = root
        else:
            frame = _add(store, tree, root, session.id, Kind.SESSION, author=author, now=now)
        _run_in(store, frame.key, session.key, None)
        return get(store, frame.key)


def root(store: Store, tree: str, *, author: str, now: float, make: bool = True) -> FrameRow | None:
    """Return the root of a tree.

    If there is none, create it without a session: the first session that comes takes it.
    """
    with store.transaction():
        found = root_of(store, tree)
        if found is not None or not make:
            return found
        return _add(store, tree, None, name_of_tree(tree), Kind.SESSION, author=author, now=now)


def note_fork(store: Store, session: SessionRow, parent: SessionRow, *, now: float) -> FrameRow:
    """Record that a session was forked without a goal: add a frame of the kind ``session`` below that of ``parent``."""
    with store.transaction():
        source = of_session(store, parent, author="fork", now=now)
        made = _add(store, source.tree, source, session.id, Kind.SESSION, author="fork", now=now)
        _run_in(store, made.key, session.key, parent.key)
        return get(store, made.key)


def parents(store: Store, among: Iterable[int]) -> dict[int, str]:
    """Map each forked session among these to the name of the session it was forked from, if that is still there."""
    return {row["session"]: row["id"] for row in store.rows(_PARENTS, among=json.dumps(sorted(among)))}


def plan(store: Store, wanted: Plan, parent: int, *, author: str, now: float) -> FrameRow:
    """Record a goal and all its subgoals below ``parent`` without starting them. Return the topmost.

    Raises:
        UnknownFrame, FrameStatusRefused: there is no such parent, or it has ended.
        RowRequestError: a goal is empty, or there are too many.
    """
    if wanted.size > MOST_PLANNED:
        raise RowRequestError(
            f"{wanted.size} goals in one plan; plan at most {MOST_PLANNED}, and the others in another call"
        )
    with store.transaction():
        return _plan(store, wanted, get(store, parent), author, now)


def start(
    store: Store, key: int, *, author: str, now: float, session: int | None = None, push: bool = False
) -> FrameRow:
    """Start a planned or blocked frame, and the planned frames above it. Return its row.

    It runs in ``session`` if that is given. With ``push``, it is promised a session of its own: `keep_push` fulfils the
    promise, `undo_push` takes everything back.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or its status, or that of a frame above, does not allow it.
    """
    with store.transaction():
        chain = above(store, key)
        row = chain[0] if chain else get(store, key)
        if (closed := first_closed(chain[1:])) is not None:
            raise FrameStatusRefused(
                row.id, row.status, Verb.START, f"{closed.id} above it has ended: reopen that first"
            )
        check_waits(store, row, chain)
        step(store, row, Verb.START, Status.IN_PROGRESS, author=author, now=now, fork=push)
        for upper in chain[1:]:
            if upper.status is Status.PLANNED:
                step(store, upper, Verb.START, Status.IN_PROGRESS, author=author, now=now, below=row.id)
                if upper.kind is Kind.TASK:
                    store.run(_NOBODYS, named=upper.key, now=now)
        if session is not None:
            _run_in(store, key, session, None)
        if push:
            store.run(_PROMISE, frame=key)
        return get(store, key)


def keep_push(store: Store, key: int, session: int, source: int | None) -> None:
    """Record the session that a push promised, forked from ``source``.

    Call it in the transaction that opens the session.

    Raises:
        UnknownFrame, FrameStatusRefused: the frame is gone or has ended, so the session has nothing to run for.
    """
    with store.transaction():
        if not store.run(_KEPT, frame=key):
            row = get(store, key)
            raise FrameStatusRefused(row.id, row.status, Verb.START, "it ended while its kernel was being started")
        _run_in(store, key, session, source)


def undo_push(store: Store, key: int, *, author: str, now: float, why: str) -> FrameRow:
    """Take back a push whose session never came: the frame is planned again."""
    with store.transaction():
        row = get(store, key)
        if row.status is Status.IN_PROGRESS:
            step(store, row, Verb.UNDO, Status.PLANNED, author=author, now=now, why=why)
        store.run(_KEPT, frame=key)
        return get(store, key)


def _plan(store: Store, wanted: Plan, parent: FrameRow, author: str, now: float) -> FrameRow:
    if parent.status not in OPEN:
        raise FrameStatusRefused(parent.id, parent.status, "plan below", "reopen it, or choose another parent")
    goal = wanted.goal.strip()
    if not goal:
        raise RowRequestError("a goal is empty; say in a few words what to achieve")
    row = _add(store, parent.tree, parent, goal, wanted.kind, author=author, now=now, priority=wanted.priority)
    for child in wanted.children:
        _plan(store, child, row, author, now)
    return row


def _add(
    store: Store,
    tree: str,
    parent: FrameRow | None,
    goal: str,
    kind: Kind,
    *,
    author: str,
    now: float,
    priority: int = 500,
) -> FrameRow:
    """Insert a frame; a frame that stands for a session runs at once."""
    runs = kind is Kind.SESSION
    with store.transaction():
        row = FrameRow(
            key=store.count("frame") + 1,
            tree=tree,
            parent=None if parent is None else parent.key,
            depth=0 if parent is None else parent.depth + 1,
            kind=kind,
            goal=limits.storable_line(goal, LONGEST_GOAL),
            status=Status.IN_PROGRESS if runs else Status.PLANNED,
            author=author,
            created_at=now,
            started_at=now if runs else None,
            priority=priority,
            closed_above=0 if parent is None else parent.closed_above + counts.is_closed(parent.status, parent.waiting),
        )
        store.run(_INSERT, **values_of(row))
        counts.added(store, row.parent, kind)
        note(store, row.key, "plan", author, now, status=row.status)
    return row


def _run_in(store: Store, key: int, session: int, source: int | None) -> None:
    store.run(_RUNS_IN, named=key, session=session, source=source)
