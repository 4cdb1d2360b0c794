"""The record of a session: its journal with all that a person needs to understand and repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from rlm_mcp.service.answers import moment
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.journal import Journal
from rlm_memory import contexts, queries, sessions, turns
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


class _Message(BaseModel):
    role: str
    content: str


class _Answer(BaseModel):
    """What the model's answer to a query of code has used."""

    query: str
    model: str
    input_tokens: int
    output_tokens: int


class _Turn(BaseModel):
    """A turn as the program tells it that drives the model."""

    session: str
    model: str
    said: list[_Message]
    reply: str
    final: str | None
    input_tokens: int
    output_tokens: int
    started_at: float
    ended_at: float
    answers: list[_Answer] = Field(default_factory=list)


def note_turn(store: Store, told: object) -> dict[str, Any]:
    """Keep a turn of a model that works in a session.

    Raises:
        ToolFault: it is none, or of a session that never was.
    """
    try:
        turn = _Turn.model_validate(told)
    except ValidationError as error:
        raise ToolFault("invalid_turn", f"this is no turn: {error.errors()[0]['msg']}", "use one version") from error
    row = sessions.find(store, turn.session)
    if row is None:
        raise ToolFault("session_not_found", f"no session {turn.session[:80]} is known", "open it first")
    keep_turn(store, row.key, turn.model_dump(exclude={"session"}))
    return {"kept": turn.session}


def keep_turn(store: Store, session: int, row: Mapping[str, Any]) -> None:
    """Write a turn down, and what the answers to its code have used."""
    told = {name: value for name, value in row.items() if name != "answers"}
    with store.transaction():
        turns.append(store, turns.TurnRow(session, **{**told, "said": tuple(row["said"])}))
        queries.spend(store, session, [Bill(**used, cost=0.0) for used in row["answers"]])


def _cell(entry: JournalEntry, asked: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "number": entry.number,
        "author": entry.by,
        "door": entry.door,
        "displays": list(entry.displays),
        "code": entry.code,
        "started_at": entry.started_at,
        "ended_at": entry.ended_at,
        "status": entry.status,
        "output": entry.output,
        "queries": [asked[query] for query in entry.queries if query in asked],
    }


def _query(row: QueryRow) -> dict[str, Any]:
    came = row.settled_at if row.state is not QueryState.CANCELLED else None
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
