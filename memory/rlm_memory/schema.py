"""The tables. Times are seconds since the epoch, sizes are bytes, JSON columns hold JSON objects.

A session's rows are keyed by its full id everywhere: the first eight characters, which a handle shows, are
the same for many clients' ids (OpenCode's all begin with ``ses_``).

Version 1. `rlm_memory.store` refuses a database whose ``user_version`` is higher than `VERSION`; tables that
a later version adds, and columns that may be empty, are created when it opens an older database.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 1

metadata = MetaData()


def _session_key(*, primary: bool = False) -> Column[str]:
    return Column("session", Text, ForeignKey("sessions.id"), primary_key=primary, nullable=False)


sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, CheckConstraint("state in ('active', 'expired', 'ended')"), nullable=False),
    Column("workspace", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("idle_seconds", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_used_at", Float, nullable=False),
    Index("sessions_by_use", "state", "last_used_at"),
)

forks = Table(
    "forks",
    metadata,
    _session_key(primary=True),
    Column("parent", Text, ForeignKey("sessions.id"), nullable=False),
)

contexts = Table(
    "contexts",
    metadata,
    _session_key(primary=True),
    Column("name", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("line_count", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("origin", Text, CheckConstraint("origin in ('loaded', 'attached', 'output')"), nullable=False),
    # Tells two loads under one name apart, when a cell that began before the second reports on the first.
    Column("revision", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_accessed_at", Float, nullable=False),
    Index("contexts_by_digest", "digest"),
)

handles = Table(
    "handles",
    metadata,
    Column("handle", Text, primary_key=True),
    _session_key(),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("line_count", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("metadata", JSON, nullable=False),
    # Whether the text counts against the owner's quota: not when the owner itself got it through a handle.
    Column("charged", Boolean, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("handles_by_session", "session", "name"),
)

grants = Table(
    "grants",
    metadata,
    Column("handle", Text, ForeignKey("handles.handle", ondelete="CASCADE"), primary_key=True),
    Column(
        "audience",
        Text,
        CheckConstraint("audience in ('session', 'workspace', 'everyone')"),
        primary_key=True,
    ),
    # The session id or the workspace path that is meant; empty for everyone.
    Column("subject", Text, primary_key=True),
)

queries = Table(
    "queries",
    metadata,
    _session_key(primary=True),
    Column("id", Text, primary_key=True),
    # The order of asking, which the ids do not tell: those of code and those of tools are numbered apart.
    Column("ordinal", Integer, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("model", Text),
    Column(
        "state",
        Text,
        CheckConstraint("state in ('pending', 'answered', 'failed', 'cancelled')"),
        nullable=False,
    ),
    Column("answer", Text),
    Column("error", Text),
    Column("created_at", Float, nullable=False),
    Column("settled_at", Float),
    Index("queries_by_state", "session", "state"),
)

query_details = Table(
    "query_details",
    metadata,
    # What a query has beside its row: who is to answer it in what form, who did, and what that has used.
    _session_key(primary=True),
    Column("query", Text, primary_key=True),
    Column("mode", Text, nullable=False),
    Column("form", JSON),
    Column("answered_by", Text),
    Column("input_tokens", Integer, nullable=False, default=0),
    Column("output_tokens", Integer, nullable=False, default=0),
    Column("cost", Float, nullable=False, default=0.0),
    # Whether a model in a session of its own is to answer it; empty means no.
    Column("recursive", Boolean),
)

known_answers = Table(
    "known_answers",
    metadata,
    # By the hash of who was asked what: answers that any session whose policy says so may have again.
    Column("key", Text, primary_key=True),
    Column("answer", Text, nullable=False),
    Column("used_at", Float, nullable=False),
    Index("known_answers_by_use", "used_at"),
)

journal = Table(
    "journal",
    metadata,
    # The order in which cells ended, over all sessions; a number is never given out twice.
    Column("number", Integer, primary_key=True, autoincrement=True),
    _session_key(),
    Column("author", Text, CheckConstraint("author in ('agent', 'notebook')"), nullable=False),
    Column("code", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float, nullable=False),
    Column("status", Text, nullable=False),
    Column("output", Text, nullable=False),
    Column("queries", JSON, nullable=False),
    # What the row counts against the bounds of the journal: bytes of code, output and displays.
    Column("size", Integer, nullable=False),
    # Set for a cell that the kernel host has told of: the same cell may be told twice.
    Column("kernel", Text),
    Column("serial", Integer),
    # The door that a person's cell came through; empty for a client of the session's own connection file.
    Column("door", Text),
    # Pictures and HTML that the cell showed, each a JSON object by MIME type.
    Column("displays", JSON),
    UniqueConstraint("kernel", "serial"),
    Index("journal_by_session", "session", "number", "size"),
    sqlite_autoincrement=True,
)

doors = Table(
    "doors",
    metadata,
    Column("id", Text, primary_key=True),
    _session_key(),
    Column("mode", Text, nullable=False),
    Column("key_digest", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float),
    # Set while the session lives in which somebody has revoked the door.
    Column("revoked", Boolean, nullable=False),
    Index("doors_by_session", "session", "ended_at"),
)

door_events = Table(
    "door_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("door", Text, nullable=False),
    _session_key(),
    Column("event", Text, nullable=False),
    Column("at", Float, nullable=False),
    Index("door_events_by_session", "session", "number"),
)

turns = Table(
    "turns",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    _session_key(),
    Column("model", Text, nullable=False),
    # What the model was told since its turn before: a list of messages. A run begins with the system's.
    Column("said", JSON, nullable=False),
    Column("reply", Text, nullable=False),
    Column("final", Text),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float, nullable=False),
    # What the row counts against the bounds: bytes of what was said on both sides.
    Column("size", Integer, nullable=False),
    Index("turns_by_session", "session", "number", "size"),
    sqlite_autoincrement=True,
)

counters = Table(
    "counters",
    metadata,
    # Counters outlive the rows that they number: no id is ever given out twice.
    Column("scope", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)

__all__ = [
    "VERSION",
    "contexts",
    "counters",
    "door_events",
    "doors",
    "forks",
    "grants",
    "handles",
    "journal",
    "known_answers",
    "metadata",
    "queries",
    "query_details",
    "sessions",
    "turns",
]
