"""Leases: a claimed frame belongs to one holder while that holder lives. A fence identifies the claim.

    ready ──claim──▶ held ──pop──▶ (ended)
      ▲                │ release, steal, the holder's end
      └────freed◀──────┘──the same holder again──▶ held, with the same fence

A claim raises the fence by one, in the transaction that finds the frame ready; nothing ever lowers it. A holder's write
is valid while the frame's fence is the one of its claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from sqlite3 import Row
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import FrameStatusRefused, LeaseLost, NotReady, PathTaken
from rlm_memory.frame_schema import READY
from rlm_memory.frames import tree
from rlm_memory.frames.edges import waits_for
from rlm_memory.frames.rows import FrameRow, above, frame_id, get, note
from rlm_memory.frames.states import Kind, Status
from rlm_memory.store import Store
from rlm_memory.work import holders, progress
from rlm_memory.work.holders import STALE_SECONDS, Holder
from rlm_memory.work.paths import in_conflict
from rlm_memory.work.ready import ready

_IS_READY = f"SELECT 1 FROM frames WHERE key = :key AND {READY}"
_TAKE = f"""
    UPDATE frames SET holder = :holder, fence = fence + 1, freed_at = NULL, session = coalesce(:session, session)
    WHERE key = :key AND {READY} RETURNING fence"""
# This runs after the frame was started, so the frame no longer meets READY: the same transaction checked that before.
_HOLD = """
    UPDATE frames SET holder = :holder, fence = fence + 1, freed_at = NULL, session = coalesce(:session, session)
    WHERE key = :key RETURNING fence"""
# Without a holder: otherwise the frame would return to it as if the holder had lost it.
_GIVE_BACK = "UPDATE frames SET freed_at = :now, holder = NULL WHERE key = :key"
_RESTORE = "UPDATE frames SET freed_at = NULL, holder = :holder WHERE key = :key"
_FREE = """
    UPDATE frames SET freed_at = :now WHERE holder = :holder AND freed_at IS NULL RETURNING key, fence"""
_HELD = "SELECT key FROM frames WHERE holder = :holder AND freed_at IS NULL ORDER BY key"
_MAY_BE_STALE = """
    FROM frames f JOIN holders h ON h.id = f.holder
    WHERE f.tree = :tree AND f.holder IS NOT NULL AND f.freed_at IS NULL AND h.expires_at IS NULL"""
_EARLIEST_BEAT = f"SELECT min(h.beat_at) {_MAY_BE_STALE}"
_STALE = f"""
    SELECT f.key {_MAY_BE_STALE} AND h.beat_at < :before
    ORDER BY f.priority + 50 * f.dependents DESC, f.created_at, f.key"""
_LOST = """
    SELECT f.key FROM frames f JOIN holders h ON h.id = f.holder
    WHERE f.tree = :tree AND f.holder IS NOT NULL AND f.freed_at IS NOT NULL
        AND (h.id = :holder OR (h.gone_at IS NOT NULL AND h.kin = :kin AND f.freed_at <= :since))
    ORDER BY f.freed_at, f.key"""
_CLAIMED = """
    SELECT max(json_extract(data, '$.fence')) FROM frame_events
    WHERE frame = :key AND author = :holder AND verb IN ('claim', 'returned')"""
_ANEW = """
    UPDATE frames SET fence = fence + 1 WHERE status = 'in_progress' AND fence > 0 RETURNING key, fence"""


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed frame. ``fence`` counts its claims so far; ``progress`` is what the last one left.

    ``returned`` says that the holder got its own frame back, with the fence that it had.
    """

    frame: str
    key: int
    goal: str
    fence: int
    holder: str
    progress: dict[str, Any]
    returned: bool = False


def claim(
    store: Store,
    holder: Holder,
    tree_name: str,
    *,
    now: float,
    key: int | None = None,
    scope: int | None = None,
    session: int | None = None,
    since: float = math.inf,
) -> Lease | None:
    """Claim the best ready frame, below ``scope`` if that is given, or the named one. None: nothing is ready.

    A frame that the holder lost and nobody has claimed since comes first, with the same fence; so does one that a
    holder of the same kin had lost by ``since``, when this holder's connection began. ``session`` is the session in
    which the work is done.

    Raises:
        UnknownFrame, NotReady, PathTaken: the named frame cannot be claimed now.
    """
    with store.transaction():
        if (own := _own_again(store, holder, tree_name, key, scope, since)) is not None:
            return _restore(store, get(store, own), holder, now)
        if key is None:
            if not (candidates := ready(store, tree_name, now=now, scope=scope)):
                return None
            key = candidates[0]
        else:
            check_ready(store, key)
        row = get(store, key)
        if row.status is Status.PLANNED:
            tree.start(store, key, author=holder.id, now=now, session=session)
        take = _HOLD if row.status is Status.PLANNED else _TAKE
        ((fence,),) = store.returned(take, key=key, holder=holder.id, session=session)
        note(store, key, "claim", holder.id, now, fence=fence, was=row.holder)
        return _lease(store, row, fence, holder)


def check_ready(store: Store, key: int) -> None:
    """Raise what `claim` does for a named frame that cannot be claimed now. Write nothing."""
    row = get(store, key)
    if store.row(_IS_READY, key=key) is None:
        raise NotReady(row.id, _why_not(store, row))
    if (taken := in_conflict(store, row.tree, key)) is not None:
        raise PathTaken(row.id, taken.path.removeprefix("/"), taken.frame, taken.holder)


def release(store: Store, key: int, holder: str | None, *, now: float, author: str, fence: int | None = None) -> None:
    """Give a frame back: others may continue its work. Without a holder, a person takes it from whoever holds it.

    Raises:
        UnknownFrame, LeaseLost: there is none, or another one holds it.
        FrameStatusRefused: nobody holds it.
    """
    with store.transaction():
        row = get(store, key)
        if not is_held(row):
            raise FrameStatusRefused(row.id, row.status, "release", "nobody has claimed it")
        check(store, row, holder, fence, now=now)
        store.run(_GIVE_BACK, key=key, now=now)
        note(store, key, "release", author, now, fence=row.fence, was=row.holder)


def steal(store: Store, key: int, holder: Holder, *, now: float, why: str, session: int | None = None) -> Lease:
    """Claim a frame that another holder has; from now on the old fence is refused.

    Raises:
        UnknownFrame, NotReady, PathTaken: there is none, or nobody could claim it.
    """
    with store.transaction():
        row = get(store, key)
        if is_held(row):
            note(store, key, "steal", holder.id, now, fence=row.fence, was=row.holder, why=why)
            store.run(_GIVE_BACK, key=key, now=now)
        taken = claim(store, holder, row.tree, now=now, key=key, session=session)
        assert taken is not None
        return taken


def free(store: Store, holder: str, *, now: float, why: str) -> list[str]:
    """Free everything that a dead holder held, in one step. Return the frames' ids."""
    with store.transaction():
        holders.gone(store, holder, now=now)
        return _noted(store, store.returned(_FREE, holder=holder, now=now), "freed", holder, now, why)


def fenced_anew(store: Store, *, now: float, why: str) -> list[str]:
    """Raise the fence of every frame in progress: a power cut may have set it back."""
    with store.transaction():
        return _noted(store, store.returned(_ANEW), "fence", "recovery", now, why)


def _noted(store: Store, changed: Iterable[Row], verb: str, author: str, now: float, why: str) -> list[str]:
    """Log a change of several frames, in the order of their keys: a statement may return them in any order."""
    found = sorted((key, fence) for key, fence in changed)
    for key, fence in found:
        note(store, key, verb, author, now, fence=fence, why=why)
    return [frame_id(key) for key, _ in found]


def check(store: Store, row: FrameRow, holder: str | None, fence: int | None = None, *, now: float) -> None:
    """Refuse a write to a frame from a non-holder, or with an old fence. Without either it is a person's own act.

    A holder regains a lost lease that nobody has claimed since, unless someone else works on one of its paths. Then the
    frame stays unclaimed, and anyone may end it.

    Raises:
        LeaseLost: another one holds it, or has held it since.
    """
    if fence is not None and fence != row.fence:
        raise LeaseLost(row.id, fence, row.fence, _who(store, row))
    if holder is None or holder == row.holder:
        if holder is not None and row.freed_at is not None and in_conflict(store, row.tree, row.key) is None:
            with store.transaction():
                store.run(_RESTORE, key=row.key, holder=holder)
                note(store, row.key, "returned", holder, now, fence=row.fence)
        return
    if is_held(row):
        raise LeaseLost(row.id, _fence_of(store, row.key, holder), row.fence, _who(store, row))
    if (mine := _fence_of(store, row.key, holder)) is not None and mine < row.fence:
        raise LeaseLost(row.id, mine, row.fence, _who(store, row))


def is_held(row: FrameRow) -> bool:
    """Whether the frame is claimed and not lost."""
    return row.holder is not None and row.freed_at is None


def held_by(store: Store, holder: str) -> list[FrameRow]:
    """List the frames that a holder has claimed."""
    return [get(store, key) for key in store.scalars(_HELD, holder=holder)]


def stale(store: Store, tree_name: str, *, now: float) -> list[int]:
    """List the frames whose holders are alive but long inactive, best first.

    Holders that live until a time are not included: they have stated themselves how long they may be silent.
    """
    return store.scalars(_STALE, tree=tree_name, before=now - STALE_SECONDS)


def next_stale(store: Store, tree_name: str) -> float | None:
    """Return the time after which a frame of the tree is stale if its holder stays inactive; None if none can be."""
    beat: float | None = store.scalar(_EARLIEST_BEAT, tree=tree_name)
    return None if beat is None else beat + STALE_SECONDS


def _own_again(
    store: Store, holder: Holder, tree_name: str, key: int | None, scope: int | None, since: float
) -> int | None:
    """Return the frame that the holder, or a dead one of the same kin, lost and nobody has claimed since."""
    with store.transaction():
        for lost in store.scalars(_LOST, tree=tree_name, kin=holder.kin, holder=holder.id, since=min(since, 1e18)):
            if key is not None and lost != key:
                continue
            row = get(store, lost)
            inside = scope is None or any(upper.key == scope for upper in above(store, lost))
            is_ready = store.row(_IS_READY, key=lost) is not None
            if inside and is_ready and in_conflict(store, row.tree, lost) is None:
                return int(lost)
    return None


def _restore(store: Store, row: FrameRow, holder: Holder, now: float) -> Lease:
    with store.transaction():
        store.run(_RESTORE, key=row.key, holder=holder.id)
        note(store, row.key, "returned", holder.id, now, fence=row.fence, was=row.holder)
    return _lease(store, row, row.fence, holder, returned=True)


def _lease(store: Store, row: FrameRow, fence: int, holder: Holder, *, returned: bool = False) -> Lease:
    left = progress.get(store, row.key).data if fence > 1 or returned else {}
    return Lease(row.id, row.key, row.goal, fence, holder.id, left, returned)


def _why_not(store: Store, row: FrameRow) -> str:
    if row.kind is not Kind.TASK:
        return f"a {row.kind} is never claimed: claim a task below it"
    if is_held(row):
        return f"{_who(store, row)} has it"
    if row.status is not Status.PLANNED and row.freed_at is None:
        return f"it is {row.status}"
    if row.open_children:
        return "frames below it are still open"
    for upper in above(store, row.key):
        if upper.waiting:
            where = "it" if upper.key == row.key else f"{upper.id} above it"
            return f"{where} waits for {', '.join(waits_for(store, upper.key))}"
    return "a frame above it is blocked or has ended"


def _who(store: Store, row: FrameRow) -> str:
    if row.holder is None:
        return "nobody"
    found = holders.find(store, row.holder)
    return row.holder if found is None else f"{found.id} ({found.label})"


def _fence_of(store: Store, key: int, holder: str) -> int | None:
    """Return the fence of a holder's latest claim of a frame, or None."""
    fence: int | None = store.scalar(_CLAIMED, key=key, holder=holder)
    return fence
