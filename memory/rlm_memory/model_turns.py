"""Turns of a model that works in a session: its input and its replies. Bounded like the journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import func, insert, select

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.schema import turns as table
from rlm_memory.store import Store

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


def append(store: Store, row: TurnRow) -> None:
    """Add a turn, and delete the oldest ones when there are too many."""
    said = [{key: limits.storable(text, LONGEST_TEXT) for key, text in message.items()} for message in row.said]
    reply = limits.storable(row.reply, LONGEST_TEXT)
    final = None if row.final is None else limits.storable(row.final, LONGEST_TEXT)
    size = len(json.dumps([said, list(row.variables)])) + len(reply.encode()) + len((final or "").encode())
    with store.transaction() as connection:
        values = {**asdict(row), "said": said, "reply": reply, "final": final, "size": size}
        del values["number"]
        connection.execute(insert(table).values(**values))
        limits.trim(store, table, size=MOST_BYTES, rows=MOST_ROWS, session=row.session)
        limits.trim_all(store, table, size=MOST_BYTES_IN_ALL)


def of_session(store: Store, session: int) -> list[TurnRow]:
    """List the session's turns, oldest first."""
    columns = [column for column in table.columns if column.name != "size"]
    statement = select(*columns).where(table.c.session == session).order_by(table.c.number)
    return [_row(dict(row)) for row in store.rows(statement)]


def latest(store: Store) -> dict[int, int]:
    """Map each session in which a model has worked to the number of its latest turn."""
    statement = select(table.c.session, func.max(table.c.number).label("latest")).group_by(table.c.session)
    return {row["session"]: row["latest"] for row in store.rows(statement)}


def _row(values: Mapping[str, Any]) -> TurnRow:
    return TurnRow(**{**values, "said": tuple(values["said"]), "variables": tuple(values["variables"])})
