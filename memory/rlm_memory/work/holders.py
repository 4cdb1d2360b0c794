"""Holders: who claims frames. Each has one row, which says how to find out whether it is alive.

A holder's life is tied to one of three anchors: a connection to the daemon (after a restart of the daemon, a file that
the other end has locked); a process (boot, number and start time); or a time, which every call extends.
"""

from __future__ import annotations

from typing import Literal

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.records import values_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, insert_into, upsert_into
from rlm_memory.work_schema import holders, machine

Anchor = Literal["connection", "process", "time"]
STALE_SECONDS = 15 * 60.0
"""A holder that was inactive for this long may lose its frames to a caller that asks for stale ones."""
_LONGEST = 500
_KEPT = 1000
"""Number of past holders, the latest, that are kept though no frame names them."""

_HOLDERS = f"SELECT {columns_of(holders)} FROM holders"
_GET = f"{_HOLDERS} WHERE id = :id"
_OF_PROOF = f"{_HOLDERS} WHERE proof = :proof AND anchor = :anchor ORDER BY beat_at DESC LIMIT 1"
_LIVING = f"{_HOLDERS} WHERE gone_at IS NULL ORDER BY id"
_ADD = insert_into(holders)
_BEAT = "UPDATE holders SET beat_at = :now, expires_at = :until, gone_at = NULL WHERE id = :id"
_GONE = "UPDATE holders SET gone_at = :now WHERE id = :id"
_BOOT, _PUT_BOOT = "SELECT value FROM machine WHERE name = 'boot'", upsert_into(machine)
_FORGET = f"""
    DELETE FROM holders WHERE gone_at IS NOT NULL AND id NOT IN (SELECT holder FROM frames WHERE holder IS NOT NULL)
    AND id IN (SELECT id FROM holders WHERE gone_at IS NOT NULL ORDER BY gone_at DESC LIMIT -1 OFFSET {_KEPT})"""


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of claims. Times are epoch seconds; ``gone_at`` is when its end was noticed."""

    id: str
    anchor: Anchor
    proof: str
    kin: str | None
    label: str
    worktree: str
    beat_at: float
    expires_at: float | None
    gone_at: float | None

    def is_stale(self, now: float) -> bool:
        """Whether it is alive but long inactive; see the function `is_stale`."""
        return is_stale(self.beat_at, self.expires_at, now)


def is_stale(beat_at: float, expires_at: float | None, now: float) -> bool:
    """Whether a live holder has been inactive for long. One that lives until a time ends at that time instead."""
    return expires_at is None and now - beat_at > STALE_SECONDS


def enlist(
    store: Store,
    anchor: Anchor,
    proof: str,
    *,
    label: str,
    now: float,
    kin: str | None = None,
    worktree: str = "",
    seconds: float | None = None,
) -> Holder:
    """Return the holder with that proof of life, created if there is none; it is alive from now on, for ``seconds``."""
    with store.transaction():
        existing = of_proof(store, anchor, proof)
        until = None if seconds is None else now + seconds
        if existing is not None:
            beat(store, existing, now=now, seconds=seconds)
            return find(store, existing.id) or existing
        holder = Holder(
            f"h{store.count('holder') + 1}",
            anchor,
            proof,
            kin,
            limits.storable(label, _LONGEST),
            limits.storable(worktree, _LONGEST),
            now,
            until,
            None,
        )
        store.run(_ADD, **values_of(holder))
        store.run(_FORGET)
        return holder


def find(store: Store, holder: str) -> Holder | None:
    """Return a holder by its id, or None."""
    return store.record(Holder, _GET, id=holder)


def of_proof(store: Store, anchor: Anchor, proof: str) -> Holder | None:
    """Return the holder with that proof of life, or None."""
    return store.record(Holder, _OF_PROOF, anchor=anchor, proof=proof)


def living(store: Store) -> list[Holder]:
    """List the holders whose end has not been noticed."""
    return store.records(Holder, _LIVING)


def beat(store: Store, holder: Holder, *, now: float, seconds: float | None = None) -> None:
    """Record that a holder is active; one that lives until a time lives ``seconds`` from now."""
    until = holder.expires_at if seconds is None else now + seconds
    store.run(_BEAT, id=holder.id, now=now, until=until)


def gone(store: Store, holder: str, *, now: float) -> None:
    """Record that a holder's life has ended."""
    store.run(_GONE, id=holder, now=now)


def note_boot(store: Store, boot: str) -> bool:
    """Record the boot of the machine in which the daemon runs. Return whether the last daemon ran in another."""
    with store.transaction():
        before = store.scalar(_BOOT)
        store.run(_PUT_BOOT, name="boot", value=boot)
    return before not in {None, boot}
