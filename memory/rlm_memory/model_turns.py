"""Turns of a model that works in a session: its input and its replies. Bounded like the journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.records import values_of
from rlm_memory.schema import turns
from rlm_memory.store import Store
from rlm_memory.tables import insert_into

LONGEST_TEXT = 65_536
"""Characters kept of each text."""
MOST_ROWS = 1000
"""Turns kept of one session."""
MOST_BYTES = 4 << 20
"""Bytes kept of one session."""
MOST_BYTES_IN_ALL = 64 << 20
"""Bytes kept of all sessions together."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn. ``said`` are the messages since the turn before, times are epoch seconds, ``cost`` is in US dollars.

    ``variables`` are those of the session after the turn. ``number`` is 0 until the turn has a row.
    """

    session: int
    model: str
    said: tuple[Mapping[str, str], ...]
    reply: str
    final: str | None
    input_tokens: int
    output_tokens: int
    started_at: float
    ended_at: float
    cost: float = 0.0
    variables: tuple[Mapping[str, str], ...] = ()
    number: int = 0


_APPEND = insert_into(turns)
_OF_SESSION = (
    f"SELECT {', '.join(each.name for each in fields(TurnRow))} FROM turns WHERE session = :of ORDER BY number"
)


def append(store: Store, row: TurnRow) -> None:
    """Add a turn, and delete the oldest ones when there are too many."""
    said = [{key: limits.storable(text, LONGEST_TEXT) for key, text in message.items()} for message in row.said]
    reply = limits.storable(row.reply, LONGEST_TEXT)
    final = None if row.final is None else limits.storable(row.final, LONGEST_TEXT)
    size = len(json.dumps([said, list(row.variables)])) + len(reply.encode()) + len((final or "").encode())
    texts = {"said": json.dumps(said), "reply": reply, "final": final}
    with store.transaction():
        store.run(_APPEND, **{**values_of(row), **texts, "size": size, "number": None})
        limits.trim(store, "turns", size=MOST_BYTES, rows=MOST_ROWS, session=row.session)
        limits.trim_all(store, "turns", size=MOST_BYTES_IN_ALL)


def of_session(store: Store, session: int) -> list[TurnRow]:
    """List the session's turns, oldest first."""
    return store.records(TurnRow, _OF_SESSION, of=session)


def latest(store: Store) -> dict[int, int]:
    """Map each session in which a model has worked to the number of its latest turn."""
    found = store.rows("SELECT session, max(number) AS latest FROM turns GROUP BY session")
    return {row["session"]: row["latest"] for row in found}
