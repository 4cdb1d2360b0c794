"""The rows of a session as a snapshot holds them, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from rlm_contexts.errors import ContextError
from rlm_contexts.store.files import pieces_of
from rlm_contexts.store.store import ContextStore
from rlm_mcp.formats.snapshot import Missing, SavedCell, SavedContext, SavedQuery, SavedTurn, Writer
from rlm_mcp.service.sessions.saved_variables import missing
from rlm_memory.contexts import ContextRow
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.model_turns import TurnRow
from rlm_memory.queries import Asker, QueryRow, QueryState

Saved = TypeVar("Saved", bound=BaseModel)


def _saved(kind: type[Saved], row: object, **others: Any) -> Saved:
    """Return a row as it is saved: its fields of the same names, and ``others``."""
    names = kind.model_fields.keys() - others
    return kind.model_validate({**{name: getattr(row, name) for name in names}, **others})


def saved_query(row: QueryRow) -> SavedQuery:
    """Return a query as it is saved."""
    return _saved(SavedQuery, row, state=row.state.value, asked_by=row.asked_by.value)


def query_row_of(session: int, query: SavedQuery) -> QueryRow:
    """Return the row of a saved query in a session."""
    typed = {"state": QueryState(query.state), "asked_by": Asker(query.asked_by)}
    return QueryRow(session=session, ordinal=0, **{**query.model_dump(), **typed})


def saved_cell(entry: JournalEntry) -> SavedCell:
    """Return a cell of the journal as it is saved."""
    return _saved(SavedCell, entry, author=entry.author.value)


def entry_of(session: int, cell: SavedCell) -> JournalEntry:
    """Return the journal's entry of a saved cell in a session."""
    return JournalEntry(session=session, **{**cell.model_dump(), "author": Author(cell.author)})


def saved_turn(row: TurnRow) -> SavedTurn:
    """Return a turn of a model as it is saved."""
    return _saved(SavedTurn, row)


def turn_row_of(session: int, turn: SavedTurn) -> TurnRow:
    """Return the row of a saved turn in a session."""
    return TurnRow(session=session, **turn.model_dump())


def save_contexts(
    files: ContextStore, rows: Sequence[ContextRow], writer: Writer, *, embed: bool
) -> tuple[list[SavedContext], list[Missing]]:
    """Write the texts of contexts, or without ``embed`` their digests; returns what is kept, and what cannot be."""
    kept, lost = [], []
    for number, row in enumerate(rows):
        try:
            whole = embed and not files.get(row.digest).data  # a binary file has to be there still
            file = writer.add(f"contexts/{number}.txt", _text(files, row.digest)) if whole else None
        except ContextError as error:
            lost.append(missing(row.name, str(error)))
        else:
            kept.append(_saved(SavedContext, row, metadata=dict(row.metadata), origin=row.origin.value, file=file))
    return kept, lost


def _text(files: ContextStore, digest: str) -> Iterator[bytes]:
    with files.shared_text(files.get(digest)) as pin:
        yield from pieces_of(pin.fds[0])
