"""The record of a session: its journal with all that a person needs to understand and repeat it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rlm_ipc.daemon_protocol import KeepTurn, TurnKept
from rlm_ipc.messages import plain
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.tool_answers import moment
from rlm_memory import contexts, queries, sessions
from rlm_memory import model_turns as turns
from rlm_memory.contexts import ContextRow
from rlm_memory.journal import JournalEntry
from rlm_memory.queries import Bill, QueryRow, QueryState
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

__all__ = ["keep_turn", "known_session", "note_turn", "record_of"]


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
    return f"session {session[:80]} has {ending.how} at {moment(ending.at)}, and nothing of it is kept"


def record_of(store: Store, journal: Journal, session: str, last: int | None) -> dict[str, Any]:
    """Return a session's policy, contexts and cells (only the ``last`` ones if given), the oldest cell first.

    Times are epoch seconds, sizes bytes. Each cell has the queries that it asked, with their answers so far.

    Raises:
        ToolFault: there is no such session, or it has ended.
    """
    row = known_session(store, session)
    asked = {query.id: _query(query) for query in queries.of_session(store, row.key)}
    return {
        "session": row.id,
        "policy": row.policy,
        "state": row.state.value,
        "contexts": [_context(context) for context in contexts.of_session(store, row.key)],
        "cells": [_cell(entry, asked) for entry in journal.of_session(row.key, last)],
        "turns": [asdict(turn) for turn in turns.of_session(store, row.key)],
    }


def note_turn(store: Store, turn: KeepTurn) -> TurnKept:
    """Keep a turn of a model that works in a session.

    Raises:
        ToolFault: there is no such session.
    """
    keep_turn(store, known_session(store, turn.session).key, turn)
    return TurnKept(turn.session)


def keep_turn(store: Store, session: int, turn: KeepTurn) -> None:
    """Write a turn down, and what the answers to its code have used."""
    row = turns.TurnRow(
        session,
        model=turn.model,
        said=tuple(plain(message) for message in turn.said),
        reply=turn.reply,
        final=turn.final,
        input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens,
        started_at=turn.started_at,
        ended_at=turn.ended_at,
    )
    used = [Bill(use.query, use.model, use.input_tokens, use.output_tokens, cost=0.0) for use in turn.answers]
    with store.transaction():
        turns.append(store, row)
        queries.spend(store, session, used)


def _cell(entry: JournalEntry, asked: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "number": entry.number,
        "author": entry.by,
        "attachment": entry.attachment,
        "displays": list(entry.displays),
        "code": entry.code,
        "started_at": entry.started_at,
        "ended_at": entry.ended_at,
        "status": entry.status,
        "output": entry.output,
        "queries": [asked[query] for query in entry.queries if query in asked],
    }


def _query(row: QueryRow) -> dict[str, Any]:
    came = row.resolved_at if row.state is not QueryState.CANCELLED else None
    return {
        "id": row.id,
        "prompt": row.prompt,
        "state": row.state.value,
        "answer": row.answer,
        "error": row.error,
        "model": row.answered_by or row.model,
        "seconds": 0.0 if came is None else came - row.created_at,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
    }


def _context(row: ContextRow) -> dict[str, Any]:
    """A context with the paths that it was loaded from, if it came from files."""
    paths = row.metadata.get("paths") or [row.metadata.get("path")]
    return {
        "name": row.name,
        "digest": row.digest,
        "size": row.size,
        "line_count": row.line_count,
        "type": row.type,
        "origin": row.origin.value,
        "paths": [path for path in paths if isinstance(path, str) and path != "-"] if isinstance(paths, list) else [],
    }
