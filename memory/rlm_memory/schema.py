"""The tables. Times are seconds since the epoch, sizes are bytes, JSON columns hold JSON objects.

Everything that belongs to a session has a column ``session``: the key of one life of one session, which is never
reused. It is a foreign key, so one ``DELETE`` ends a session and everything that belongs to it, and later writes for
that key are refused. A new table that holds anything of a session uses `_session_key`.

`rlm_memory.migration` refuses a database whose ``user_version`` is not `VERSION`, unless a later version says that it
only added to what was there (`OLDEST_READER`). It adds missing tables, and missing columns that may be empty. Any other
change of a table raises `VERSION` and needs a step there. The tables of frames are in `rlm_memory.frame_schema`, those
of the queue in `rlm_memory.work_schema`, and those of the project lock in `rlm_memory.lock_schema`.
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
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.sqlite import Insert, insert

VERSION = 5
OLDEST_READER = 5
"""The earliest version whose program can use such a database unchanged.

A version that only adds tables or nullable columns keeps this value.
"""
OLDEST_READER_SCOPE = "oldest reader"
"""The counter through which a program of that version learns it."""

metadata = MetaData()


def columns_of(table: Table) -> str:
    """Return the columns that this version knows, for a ``SELECT``: a later version may have added more."""
    return ", ".join(f"{table.name}.{column.name}" for column in table.columns)


def insert_into(table: Table) -> str:
    """Return a statement that inserts a row, with a parameter for each column."""
    names = [column.name for column in table.columns]
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


def upsert_into(table: Table, *columns: str) -> str:
    """Return a statement that inserts a row, or changes ``columns`` (default: all) of the one that has the same key."""
    key = [column.name for column in table.primary_key]
    changed = columns or [column.name for column in table.columns if column.name not in key]
    put = ", ".join(f"{name} = excluded.{name}" for name in changed)
    return f"{insert_into(table)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {put}"


def upsert(table: Table, *columns: str) -> Insert:
    """A statement that inserts a row, or changes ``columns`` (default: all) of the one that has the same key."""
    put = insert(table)
    changed = columns or [column.name for column in table.columns if not column.primary_key]
    return put.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: put.excluded[name] for name in changed}
    )


def _session_key(*, primary: bool = False) -> Column[int]:
    return Column("session", Integer, _life(), primary_key=primary, nullable=False)


def _life() -> ForeignKey:
    return ForeignKey("sessions.key", ondelete="CASCADE")


sessions = Table(
    "sessions",
    metadata,
    # From a counter, so that the key is known before there is a row: the kernel is forked first.
    Column("key", Integer, primary_key=True, autoincrement=False),
    # The name by which clients know it. An ended session has no row.
    Column("id", Text, nullable=False, unique=True),
    Column("state", Text, CheckConstraint("state in ('active', 'resting')"), nullable=False),
    Column("workspace", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("idle_seconds", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_used_at", Float, nullable=False),
    # When a suspended session ends; empty: not by itself.
    Column("kept_until", Float),
    # Why the variables of a suspended session could not be saved; empty: they were, or there were none.
    Column("unsaved", Text),
    # The policy's content, and where it was read: it is never read there again.
    Column("policy_text", Text),
    Column("policy_digest", Text),
    # The policy of the first session in the family of forks.
    Column("family_text", Text),
    Column("family_digest", Text),
    Index("sessions_by_use", "state", "last_used_at"),
)

endings = Table(
    "endings",
    metadata,
    # That a session with this name has ended, how and when; for an expired one, how much was deleted with it.
    Column("id", Text, primary_key=True),
    Column("how", Text, CheckConstraint("how in ('ended', 'expired')"), nullable=False),
    Column("at", Float, nullable=False),
    # Empty for sessions that someone ended.
    Column("went", JSON),
    Index("endings_by_time", "at"),
)

writable_folders = Table(
    "writable_folders",
    metadata,
    # A folder that some session could write, even after that session's end: no policy is read from it.
    Column("path", Text, primary_key=True),
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
    # The handle through which the name came: equal content does not show that. Empty for every other origin.
    Column("handle", Text),
    # Distinguishes two loads under one name, when a cell that began before the second reports on the first. A forked
    # session has its parent's value: it is the same load.
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
    Index("handles_by_digest", "digest"),
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
    # The session id or the workspace path of the grant; empty for everyone.
    Column("subject", Text, primary_key=True),
)

queries = Table(
    "queries",
    metadata,
    _session_key(primary=True),
    Column("id", Text, primary_key=True),
    # The order of asking, which the ids do not show: queries of code and of tools are numbered separately.
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
    Column("resolved_at", Float),
    Index("queries_by_state", "session", "state"),
)

query_details = Table(
    "query_details",
    metadata,
    # What a query has besides its row: who is to answer it in what form, who did, and the usage.
    _session_key(primary=True),
    Column("query", Text, primary_key=True),
    Column("mode", Text, nullable=False),
    Column("form", JSON),
    Column("answered_by", Text),
    Column("input_tokens", Integer, nullable=False, default=0),
    Column("output_tokens", Integer, nullable=False, default=0),
    Column("cost", Float, nullable=False, default=0.0),
    # Whether a model is to answer it in a session of its own.
    Column("recursive", Boolean),
    # Who asked it ("code" or "tool"), and its number among theirs.
    Column("asked_by", Text),
    Column("number", Integer),
)

inherited_queries = Table(
    "inherited_queries",
    metadata,
    # A query that a forked session holds and another session asked, whose key is ``asked_in``. While the other session
    # lives, it gets the query answered. At its end a fork takes the query over, so this is not a foreign key.
    _session_key(primary=True),
    Column("query", Text, primary_key=True),
    Column("asked_in", Integer, nullable=False),
    Index("inherited_queries_by_asker", "asked_in", "query"),
)

budgets = Table(
    "budgets",
    metadata,
    # What the session's queries have used of its limits: their number, and what providers did for them.
    _session_key(primary=True),
    Column("calls", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("cost", Float, nullable=False),
    Column("milliseconds", Integer, nullable=False),
)

known_answers = Table(
    "known_answers",
    metadata,
    # Keyed by the hash of who was asked what: answers that any session whose policy allows it may get again.
    Column("key", Text, primary_key=True),
    Column("answer", Text, nullable=False),
    Column("used_at", Float, nullable=False),
    Index("known_answers_by_use", "used_at"),
)

journal = Table(
    "journal",
    metadata,
    # The order in which cells ended, over all sessions; a number is never reused.
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
    # Set for a cell that the supervisor reported: it may report the same cell twice.
    Column("kernel", Text),
    Column("serial", Integer),
    # The attachment that a person's cell came through; empty for a client of the session's own connection file.
    Column("attachment", Text),
    # Pictures and HTML that the cell showed, each a JSON object by MIME type.
    Column("displays", JSON),
    # The number that the kernel gave the cell, the text of its last expression, and the lines of its traceback.
    Column("count", Integer),
    Column("value", Text),
    Column("traceback", JSON),
    # The frame that the cell ran for. Not a foreign key: what a forgotten frame ran still belongs to the session.
    Column("frame", Integer),
    UniqueConstraint("kernel", "serial"),
    Index("journal_by_session", "session", "number", "size"),
    Index("journal_by_frame", "frame", "number", sqlite_where=text("frame is not null")),
    sqlite_autoincrement=True,
)

attachments = Table(
    "attachments",
    metadata,
    Column("id", Text, primary_key=True),
    _session_key(),
    Column("mode", Text, nullable=False),
    Column("key_digest", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float),
    # Set if someone revoked the attachment while the session lives.
    Column("revoked", Boolean, nullable=False),
    Index("attachments_by_session", "session", "ended_at"),
)

attachment_events = Table(
    "attachment_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("attachment", Text, nullable=False),
    _session_key(),
    Column("event", Text, nullable=False),
    Column("at", Float, nullable=False),
    Index("attachment_events_by_session", "session", "number"),
)

turns = Table(
    "turns",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    _session_key(),
    Column("model", Text, nullable=False),
    # What the model was told since its previous turn: a list of messages. A run starts with the system message.
    Column("said", JSON, nullable=False),
    Column("reply", Text, nullable=False),
    Column("final", Text),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float, nullable=False),
    # What the row counts against the bounds: bytes of the messages on both sides.
    Column("size", Integer, nullable=False),
    # In US dollars.
    Column("cost", Float),
    # The session's variables after the turn.
    Column("variables", JSON),
    Index("turns_by_session", "session", "number", "size"),
    sqlite_autoincrement=True,
)

ended_runs = Table(
    "run_records",
    metadata,
    # For an ended session in which a model worked. It outlives the session, so its key is not a foreign key.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("key", Integer, nullable=False, unique=True),
    # The key of the session that it was forked from.
    Column("parent", Integer),
    Column("ended_at", Float, nullable=False),
    # The runs as JSON, one line each; and the whole record, as compressed JSON.
    Column("lines", JSON, nullable=False),
    Column("record", LargeBinary, nullable=False),
    # What the row counts against the bound: bytes of the record.
    Column("size", Integer, nullable=False),
    Index("run_records_by_parent", "parent"),
    sqlite_autoincrement=True,
)

counters = Table(
    "counters",
    metadata,
    # Counters outlive the rows that they number, and count per session name: no id is ever reused, so a late answer to
    # a query of an ended session cannot match a query of the next session with that name.
    Column("scope", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)
