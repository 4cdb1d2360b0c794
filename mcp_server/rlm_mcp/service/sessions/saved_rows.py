"""The rows of a session as a snapshot holds them, and back."""

from __future__ import annotations

from dataclasses import asdict

from rlm_mcp.formats.snapshot import SavedCell, SavedQuery, SavedTurn
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.model_turns import TurnRow
from rlm_memory.queries import Asker, QueryRow, QueryState


def saved_query(row: QueryRow) -> SavedQuery:
    """Return a query as it is saved."""
    values = asdict(row)
    for name in ("session", "ordinal"):
        del values[name]
    return SavedQuery(**{**values, "state": row.state.value, "asked_by": row.asked_by.value})


def query_row_of(session: int, query: SavedQuery) -> QueryRow:
    """Return the row of a saved query in a session."""
    typed = {"state": QueryState(query.state), "asked_by": Asker(query.asked_by)}
    return QueryRow(session=session, ordinal=0, **{**query.model_dump(), **typed})


def saved_cell(entry: JournalEntry) -> SavedCell:
    """Return a cell of the journal as it is saved."""
    values = {name: getattr(entry, name) for name in SavedCell.model_fields}
    return SavedCell.model_validate({**values, "author": entry.author.value})


def entry_of(session: int, cell: SavedCell) -> JournalEntry:
    """Return the journal's entry of a saved cell in a session."""
    return JournalEntry(session=session, **{**cell.model_dump(), "author": Author(cell.author)})


def saved_turn(row: TurnRow) -> SavedTurn:
    """Return a turn of a model as it is saved."""
    values = asdict(row)
    for name in ("session", "number"):
        del values[name]
    return SavedTurn.model_validate(values)


def turn_row_of(session: int, turn: SavedTurn) -> TurnRow:
    """Return the row of a saved turn in a session."""
    return TurnRow(session=session, **turn.model_dump())
