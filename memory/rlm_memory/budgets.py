"""What the queries of sessions have used of their limits.

A budget belongs to one life of a session and only ever grows.

A session that has used nothing has no row, so a session that is opened again after its end starts with a full budget,
and so does a forked one. The row is deleted with the session. Queries may be withdrawn, replaced or deleted, but what
they used still counts.
"""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.records import values_of
from rlm_memory.store import Store


@dataclass(frozen=True, slots=True)
class Used:
    """The number of queries asked, and what providers used for them: tokens in and out, US dollars, milliseconds."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    milliseconds: int = 0

    def __add__(self, more: Used) -> Used:
        """Return the sum of both."""
        return Used(
            self.calls + more.calls,
            self.tokens + more.tokens,
            self.cost + more.cost,
            self.milliseconds + more.milliseconds,
        )


_ONE = "SELECT calls, tokens, cost, milliseconds FROM budgets WHERE session = :of"
_ADD = """
    INSERT INTO budgets (session, calls, tokens, cost, milliseconds)
    VALUES (:of, :calls, :tokens, :cost, :milliseconds)
    ON CONFLICT (session) DO UPDATE SET
        calls = calls + excluded.calls, tokens = tokens + excluded.tokens, cost = cost + excluded.cost,
        milliseconds = milliseconds + excluded.milliseconds
"""


def used(store: Store, session: int) -> Used:
    """Return what the queries of the session have used."""
    return store.record(Used, _ONE, of=session) or Used()


def add(store: Store, session: int, more: Used) -> None:
    """Add usage to the session's total.

    Raises:
        SessionEnded: it has ended.
    """
    store.run(_ADD, of=session, **values_of(more))
