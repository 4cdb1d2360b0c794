"""What the queries of sessions have used of their limits.

A budget belongs to one life of a session and only ever grows.

A session that has used nothing has no row, so a session that is opened again after its end starts with a full budget,
and so does a forked one. The row is
deleted with the session. Queries may be withdrawn, replaced or deleted, but what they used still counts.
"""

from __future__ import annotations

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import insert

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.schema import budgets as table
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


_NAMES = ("calls", "tokens", "cost", "milliseconds")
_ONE = f"select {', '.join(_NAMES)} from budgets where session = :of"
_ADD = (
    insert(table)
    .values(session=bindparam("of"), **{name: bindparam(f"more_{name}") for name in _NAMES})
    .on_conflict_do_update(
        index_elements=[table.c.session],
        set_={name: table.c[name] + bindparam(f"more_{name}") for name in _NAMES},
    )
)


def used(store: Store, session: int) -> Used:
    """Return what the queries of the session have used."""
    return next((Used(*row) for row in store.read(_ONE, of=session)), Used())


def add(store: Store, session: int, more: Used) -> None:
    """Add usage to the session's total.

    Raises:
        SessionEnded: it has ended.
    """
    values = {f"more_{name}": getattr(more, name) for name in _NAMES}
    store.run(_ADD, {"of": session, **values})
