"""The record of a session: its journal with all that a person needs to understand and repeat it."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_ipc.daemon_rows import SaidMessage
from rlm_ipc.messages import alike, plain
from rlm_ipc.session_record import (
    AttachmentNote,
    RecordedCell,
    RecordedContext,
    RecordedQuery,
    RecordedTurn,
    RecordedVariable,
    SessionRecord,
)
from rlm_ipc.session_requests import KeepTurn
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.tool_answers import moment
from rlm_memory import contexts, queries, sessions
from rlm_memory import model_turns as turns
from rlm_memory.contexts import ContextRow
from rlm_memory.frames import rows, transcript
from rlm_memory.journal import JournalEntry
from rlm_memory.queries import QueryRow, QueryState
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store


def known_session(store: Store, session: str) -> SessionRow:
    """Return the row of a session that is open or rests; raises ToolFault if there is none."""
    row = sessions.find(store, session)
    if row is None:
        raise ToolFault("session_not_found", _unknown(store, session), "list them: rlm-kernel sessions")
    return row


def _unknown(store: Store, session: str) -> str:
    ending = sessions.ending_of(store, session)
    if ending is None:
        return f"no session {session[:80]} is known"
    said = f"session {session[:80]} has {ending.how} at {moment(ending.at)}"
    return f"{said}, and only the records of its goals were kept"


def record_of(
    store: Store,
    journal: Journal,
    row: SessionRow,
    last: int | None,
    kernelspec: str | None,
    attachments: Sequence[AttachmentNote],
) -> SessionRecord:
    """Return a session's record, with the ``last`` cells only if that is given.

    Each cell has the queries that it asked, with their answers so far.
    """
    asked = {query.id: query_of(query) for query in queries.of_session(store, row.key)}
    return SessionRecord(
        session=row.id,
        policy=row.policy,
        state=row.state.value,
        contexts=tuple(context_of(context) for context in contexts.of_session(store, row.key)),
        cells=tuple(cell_of(entry, asked) for entry in journal.of_session(row.key, last)),
        turns=tuple(_turn(turn) for turn in turns.of_session(store, row.key)),
        kernelspec=kernelspec,
        attachments=tuple(attachments),
    )


def keep_turn(store: Store, session: int, turn: KeepTurn, variables: Sequence[RecordedVariable]) -> None:
    """Write a turn down, what the answers to its code have used, and the variables that there are after it."""
    said, held = tuple(map(plain, turn.said)), tuple(map(plain, variables))
    row = alike(turns.TurnRow, turn, session=session, said=said, variables=held, number=0)
    with store.transaction():
        turns.append(store, row)
        queries.spend(store, session, turn.answers)
        _in_frame(store, session, turn)


def _in_frame(store: Store, session: int, turn: KeepTurn) -> None:
    """Make the turn one of the goal that the session works for: the question, and replies. Cells are there already."""
    goal = rows.own_goal(rows.goals_running(store, session))
    if goal is None:
        return
    if any(message.role == "system" for message in turn.said):  # a run begins
        for message in turn.said:
            if message.role == "user":
                transcript.add(store, goal.key, plain(message), now=turn.started_at)
    transcript.add(store, goal.key, {"role": "assistant", "content": turn.reply}, now=turn.ended_at)


def cell_of(entry: JournalEntry, asked: dict[str, RecordedQuery]) -> RecordedCell:
    """Return a cell as records have it, with those of its queries that ``asked`` has by id."""
    known = tuple(asked[query] for query in entry.queries if query in asked)
    return alike(RecordedCell, entry, author=entry.by, queries=known, attachment=entry.front_end)


def query_of(row: QueryRow) -> RecordedQuery:
    """Return a query as records have it."""
    came = row.resolved_at if row.state is not QueryState.CANCELLED else None
    seconds = 0.0 if came is None else came - row.created_at
    return alike(RecordedQuery, row, state=row.state.value, model=row.answered_by or row.model, seconds=seconds)


def _turn(row: turns.TurnRow) -> RecordedTurn:
    said = tuple(SaidMessage(message["role"], message["content"]) for message in row.said)
    held = tuple(RecordedVariable(**variable) for variable in row.variables)
    return alike(RecordedTurn, row, said=said, variables=held)


def context_of(row: ContextRow) -> RecordedContext:
    """Return a context with the paths that it was loaded from, if it came from files."""
    paths = row.metadata.get("paths") or [row.metadata.get("path")]
    given = [path for path in paths if isinstance(path, str) and path != "-"] if isinstance(paths, list) else []
    facts = row.name, row.digest, row.size, row.line_count, row.type, row.origin.value
    return RecordedContext(*facts, tuple(given))
