"""How batches went, by session: the basis for the size of the next one, and for the table of targets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.records import values_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, upsert_into
from rlm_memory.work_schema import session_metrics as table

FIRST_SIZE, SMALLEST, LARGEST = 2, 2, 4
_GET = f"SELECT {columns_of(table)} FROM session_metrics WHERE session_id = :of"
_PUT = upsert_into(table)


class BatchOutcome(StrEnum):
    """How a batch of tasks ended."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    BLOCKED = "blocked"
    """One of its tasks was blocked; the others are done."""


_CHANGE: Mapping[BatchOutcome, int] = {
    BatchOutcome.COMPLETED: 1,
    BatchOutcome.INTERRUPTED: -1,
    BatchOutcome.FAILED: -1,
    BatchOutcome.BLOCKED: 0,
}


@dataclass(frozen=True, slots=True)
class SessionMetrics:
    """The batches of one session; ``tasks`` counts those that it ended, ``interrupted`` those that it lost."""

    session_id: str
    batches_completed: int
    last_batch_size: int
    last_batch_outcome: str
    created_at: float
    tree: str
    batches: int
    tasks: int
    interrupted: int
    next_size: int


def next_size(size: int | None, outcome: BatchOutcome | None) -> int:
    """Return the size of the next batch after one of ``size`` with that outcome; a session starts with the smallest."""
    if size is None or outcome is None:
        return FIRST_SIZE
    return min(LARGEST, max(SMALLEST, size + _CHANGE[outcome]))


def note_batch(
    store: Store,
    session_id: str,
    tree: str,
    outcome: BatchOutcome,
    *,
    size: int,
    tasks: int,
    now: float,
    interrupted: int = 0,
) -> SessionMetrics:
    """Record how a batch ended. Return the session's metrics.

    ``size`` is the intended size of the batch: fewer frames may have been ready.
    """
    with store.transaction():
        old = store.record(SessionMetrics, _GET, of=session_id)
        metrics = SessionMetrics(
            session_id=session_id,
            batches_completed=(old.batches_completed if old else 0) + (outcome is BatchOutcome.COMPLETED),
            last_batch_size=size,
            last_batch_outcome=outcome.value,
            created_at=old.created_at if old else now,
            tree=tree,
            batches=(old.batches if old else 0) + 1,
            tasks=(old.tasks if old else 0) + tasks,
            interrupted=(old.interrupted if old else 0) + interrupted,
            next_size=next_size(size, outcome),
        )
        store.run(_PUT, **values_of(metrics))
    return metrics
