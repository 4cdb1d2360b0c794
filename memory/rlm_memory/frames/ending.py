"""Ending frames: pop, invalidate, reopen, forget, and the end of a session.

An end promises further work (log, notebook, the kernel's end). The same transaction that sets the status writes these
promises for every frame that ends with it. `rlm_memory.frames.runtime` fulfils them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import FramesRunning, FrameStatusRefused
from rlm_memory.frame_schema import handovers
from rlm_memory.frames import counts, summaries
from rlm_memory.frames.edges import standing_by
from rlm_memory.frames.results import Children, Ended, HandedOver, Invalidated, Outcome, compact, fold
from rlm_memory.frames.rows import (
    FrameRow,
    above,
    children,
    first_closed,
    get,
    in_session,
    last_event,
    leave,
    nearest_session,
    note,
    remove,
    step,
    under,
    unfold,
    whole,
)
from rlm_memory.frames.states import EdgeType, Kind, Status, Verb, check_step, resolves
from rlm_memory.store import Store
from rlm_memory.tables import upsert_into

Allowed = Callable[[FrameRow], None]
"""Check that raises if the caller may not change the frame."""

_OWE = "INSERT INTO frame_operations (frame, what, of_session) VALUES (:frame, :what, :of_session)"
_CANCEL = "DELETE FROM frame_operations WHERE frame = :frame AND what = 'push'"
_HAND_OVER = upsert_into(handovers)
_ALONG = "SELECT key FROM frames WHERE cause = :cause AND status = 'invalidated' AND key != :named"
_MOVE = "UPDATE frames SET parent = :to WHERE key = :named"
_LIFT = """
    WITH RECURSIVE moved(key) AS (
        SELECT :named UNION ALL SELECT frames.key FROM frames JOIN moved ON frames.parent = moved.key
    ) UPDATE frames SET depth = depth - :by WHERE key IN (SELECT key FROM moved)"""


@dataclass(frozen=True, slots=True)
class _Below:
    """What an end does to the frames below, top first; the frames below an adopted one move with it."""

    adopted: Sequence[FrameRow]
    failed: Sequence[FrameRow]
    planned: Sequence[FrameRow]


def anybody(_row: FrameRow) -> None:
    """Allow everyone."""


def popped(store: Store, key: int, outcome: Outcome) -> Ended | None:
    """Return the result of the pop that made the same request, if it was the last to end the frame; otherwise None."""
    row = get(store, key)
    event = None if row.ended is None else last_event(store, key, Verb.POP)
    if event is None or event.number != row.ended or event.data.get("asked") != outcome.digest():
        return None
    return Ended(**event.data["answer"])


def check_pop(store: Store, key: int, outcome: Outcome) -> FrameRow:
    """Return the frame to be popped.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or it is not running, or it stands for a session.
        FramesRunning: others run below it, and ``outcome.children`` is ``refuse``.
    """
    with store.transaction():
        row = get(store, key)
        if row.kind is Kind.SESSION:
            advice = "it stands for a session: end_session ends it; pop a goal by its id"
            raise FrameStatusRefused(row.id, row.status, Verb.POP, advice)
        check_step(row.id, Verb.POP, row.status, outcome.status)
        failed = _below(store, row, "fail").failed
        if failed and outcome.children == "refuse":
            raise FramesRunning(row.id, [frame.id for frame in failed])
        return row


def pop(
    store: Store,
    key: int,
    outcome: Outcome,
    values: Sequence[HandedOver] = (),
    *,
    author: str,
    now: float,
    allowed: Allowed = anybody,
) -> Ended:
    """End a running frame, with all consequences. The same pop again gets the same answer.

    ``values`` are the variables named in ``outcome.hand_over``; ``allowed`` refuses callers that may not end the frame.

    Raises:
        UnknownFrame, FrameStatusRefused, FramesRunning: as `check_pop`.
        RowRequestError: what ``allowed`` raised.
    """
    with store.transaction():
        allowed(get(store, key))
        if (same := popped(store, key, outcome)) is not None:
            return same
        row = check_pop(store, key, outcome)
        below, upper = _below(store, row, outcome.children), _goes_to(store, row)
        spare = _spare(store, row, outcome.status, below.planned)
        summary, source = compact(store, row, outcome, now)
        answer = Ended(
            frame=row.id,
            status=outcome.status.value,
            summary=summary,
            source=source,
            parent=upper.id,
            failed=[frame.id for frame in below.failed],
            adopted=[frame.id for frame in below.adopted],
            invalidated=[frame.id for frame in (*below.planned, *spare)],
            handed_over=[value.name for value in values],
        )
        request, result = outcome.digest(), asdict(answer)
        number = step(store, row, Verb.POP, outcome.status, author=author, now=now, asked=request, answer=result)
        _owe(store, row)
        for frame in below.adopted:
            _adopt(store, frame, upper, author, now)
        for frame in reversed(below.failed):
            step(store, frame, Verb.POP, Status.FAILED, author=author, now=now, cause=number, along_with=row.id)
            compact(store, frame, Outcome(Status.FAILED), now)
            _owe(store, frame)
            fold(store, frame.parent)
        _invalidate_all(store, [*below.planned, *spare], number, author, now, f"{row.id} has ended")
        if values:
            target = nearest_session(store, upper.key) or upper
            beside = {"frame": key, "target": target.key, "delivered_at": None}
            store.run_each(_HAND_OVER, [beside | asdict(value) for value in values])
        fold(store, row.parent)
    return answer


def invalidate(store: Store, key: int, *, author: str, now: float, why: str = "") -> Invalidated:
    """Invalidate a frame and the planned frames below it. Running ones are listed and keep running; ended ones stay.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or it has ended, or it stands for a session.
    """
    with store.transaction():
        row = get(store, key)
        if row.kind is Kind.SESSION:
            raise FrameStatusRefused(row.id, row.status, Verb.INVALIDATE, "it stands for a session: name a goal")
        below = under(store, key)
        number = step(store, row, Verb.INVALIDATE, Status.INVALIDATED, author=author, now=now, why=why)
        if row.status is Status.IN_PROGRESS:
            compact(store, row, Outcome(Status.INVALIDATED), now)
            _owe(store, row)
            fold(store, row.parent)
        planned = [frame for frame in below if frame.status is Status.PLANNED]
        planned += _spare(store, row, Status.INVALIDATED, planned)
        _invalidate_all(store, planned, number, author, now, why)
        running = [frame.id for frame in below if frame.status is Status.IN_PROGRESS]
    return Invalidated(row.id, [row.id, *(frame.id for frame in planned)], running)


def record_end(store: Store, key: int, status: Status, why: str, *, author: str, now: float) -> None:
    """Record that a goal has ended elsewhere. Nothing ran for it here, so it has no log and nothing changes below it.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or it has ended.
    """
    with store.transaction():
        row = get(store, key)
        step(store, row, Verb.RECORD, status, author=author, now=now)
        if status is not Status.INVALIDATED:
            compact(store, row, Outcome(status, why or status.value), now)
        fold(store, row.parent)


def reopen(store: Store, key: int, *, author: str, now: float) -> list[FrameRow]:
    """Plan an ended frame again, with the frames that were invalidated with it, and return all of them.

    What failed with it stays failed.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or it has not ended, or one above it has.
    """
    with store.transaction():
        row = get(store, key)
        if (closed := first_closed(above(store, key)[1:])) is not None:
            raise FrameStatusRefused(
                row.id, row.status, Verb.REOPEN, f"{closed.id} above it has ended: reopen that first"
            )
        step(store, row, Verb.REOPEN, Status.PLANNED, author=author, now=now)
        along = store.scalars(_ALONG, cause=row.cause, named=key)
        same = sorted((get(store, other) for other in along), key=_from_above)
        back = [key]
        for other in same:
            if first_closed(above(store, other.key)[1:]) is None:  # a failed frame between stays, with its subtree
                step(store, other, Verb.REOPEN, Status.PLANNED, author=author, now=now, along_with=row.id)
                back.append(other.key)
        return [get(store, frame) for frame in back]


def _from_above(row: FrameRow) -> tuple[int, int]:
    return row.depth, row.key


def forget(store: Store, key: int) -> list[FrameRow]:
    """Delete a frame with everything below it and everything that their ends kept. Return the deleted frames.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or it runs, or something below it does.
    """
    with store.transaction():
        deleted = whole(store, key)
        for frame in deleted:
            if frame.status is Status.IN_PROGRESS:
                is_session = frame.kind is Kind.SESSION
                advice = "it stands for a session: end that first" if is_session else "pop it first"
                raise FrameStatusRefused(frame.id, frame.status, "forget", advice)
        row = deleted[0]
        summaries.forget(store, [frame.key for frame in deleted])
        unfold(store, row)
        counts.removed(store, [frame.key for frame in deleted], row.parent, row.kind, row.status)
        remove(store, key)
        if row.parent is not None:
            _clear(store, get(store, row.parent))
        return deleted


def end_session(store: Store, session: int, *, author: str, now: float) -> list[FrameRow]:
    """Record that a session is about to end: goals that run in it become blocked, frames that stand for it are deleted.

    A frame that stands for a session stays, without the session, while anything is below it. Returns the blocked
    frames: write their logs before the rows of the session are deleted.
    """
    blocked = []
    with store.transaction():
        for row in sorted(in_session(store, session), key=lambda row: -row.depth):
            if row.kind is Kind.SESSION:
                leave(store, row.key)
                _clear(store, get(store, row.key))
                continue
            why = "its session was ended"
            step(store, row, Verb.END_SESSION, Status.BLOCKED, author=author, now=now, why=why)
            compact(store, row, Outcome(Status.BLOCKED), now)
            _owe(store, row, kernel=False)
            fold(store, row.parent)
            blocked.append(row)
    return blocked


def _clear(store: Store, row: FrameRow) -> None:
    """Delete a frame that no longer stands for a session if nothing is below it; then do the same for the one above."""
    if row.kind is not Kind.SESSION or row.session is not None or children(store, row.key):
        return
    with store.transaction():
        remove(store, row.key)
        if row.parent is not None:
            _clear(store, get(store, row.parent))


def _goes_to(store: Store, row: FrameRow) -> FrameRow:
    """Return the nearest frame above that was not invalidated: it receives the frame's result."""
    return next(upper for upper in above(store, row.key)[1:] if upper.status is not Status.INVALIDATED)


def _below(store: Store, row: FrameRow, how: Children) -> _Below:
    """Sort the frames below one that ends. Frames that stand for sessions move up in any case."""
    moving: set[int] = set()
    adopted: list[FrameRow] = []
    failed: list[FrameRow] = []
    planned: list[FrameRow] = []
    for frame in under(store, row.key):
        runs = frame.status is Status.IN_PROGRESS
        if frame.parent in moving:
            moving.add(frame.key)
        elif runs and (how == "adopt" or frame.kind is Kind.SESSION):
            moving.add(frame.key)
            adopted.append(frame)
        elif runs:
            failed.append(frame)
        elif frame.status is Status.PLANNED:
            planned.append(frame)
    return _Below(adopted, failed, planned)


def _spare(store: Store, row: FrameRow, outcome: Status, planned: Sequence[FrameRow]) -> list[FrameRow]:
    """List what was planned for the failure of frames that are about to end otherwise, with what is planned below."""
    known = {found.key for found in planned}
    ended = known | ({row.key} if resolves(EdgeType.BLOCKS, outcome) else set())
    spare: list[FrameRow] = []
    while ended:
        found = [get(store, key) for key in standing_by(store, ended)]
        new = [one for spared in found for one in (spared, *under(store, spared.key)) if one.status is Status.PLANNED]
        ended = {one.key for one in new} - known
        spare += [one for one in {one.key: one for one in new}.values() if one.key in ended]
        known |= ended
    return spare


def _adopt(store: Store, row: FrameRow, upper: FrameRow, author: str, now: float) -> None:
    with store.transaction():
        store.run(_MOVE, named=row.key, to=upper.key)
        store.run(_LIFT, named=row.key, by=row.depth - upper.depth - 1)
        counts.moved(store, row.key, row.parent, upper.key, row.kind, row.status)
        note(store, row.key, "adopt", author, now, to=upper.id)


def _invalidate_all(store: Store, planned: Sequence[FrameRow], number: int, author: str, now: float, why: str) -> None:
    for found in planned:
        step(store, found, Verb.INVALIDATE, Status.INVALIDATED, author=author, now=now, cause=number, why=why)


def _owe(store: Store, row: FrameRow, *, kernel: bool = True) -> None:
    """Promise the log of an ended frame and its kernel's end; a frame that never ran in a session gets only a log."""
    owed = ["log", *(["notebook", *(["end"] if kernel else [])] if row.session is not None else [])]
    with store.transaction():
        store.run(_CANCEL, frame=row.key)  # a session that is still starting has no frame left to run for
        store.run_each(_OWE, [{"frame": row.key, "what": what, "of_session": row.session} for what in owed])
