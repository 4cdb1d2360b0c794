"""The tables. Times are seconds since the epoch, sizes are bytes, JSON columns hold JSON objects.

Everything that belongs to a session has a column ``session``: the key of one life of one session, which is never given
out again. It is a foreign key, so ending a session is one ``DELETE``: what belongs to it goes in the same step, and who
writes later for a key that has gone is refused. A new table that holds anything of a session takes `_session_key`.

`rlm_memory.migration` refuses a database whose ``user_version`` is not `VERSION`, unless a later version says that it
only added to what was there (`OLDEST_READER`). It adds missing tables, and missing columns that may be empty. Who
changes a table otherwise raises `VERSION` and writes a step there. The tables of frames stand in
`rlm_memory.frame_schema`, those of the queue in `rlm_memory.work_schema`, and those of the project lock in
`rlm_memory.lock_schema`.
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

VERSION = 5
OLDEST_READER = 5
"""The earliest version whose program can use such a database as it is: one that only adds to it leaves this alone."""
OLDEST_READER_SCOPE = "oldest reader"
"""The counter that tells it to a program of that version."""

metadata = MetaData()


def columns_of(table: Table) -> str:
    """The columns that this version knows, for a ``SELECT``: a later version may have added more."""
    return ", ".join(f"{table.name}.{column.name}" for column in table.columns)


def _session_key(*, primary: bool = False) -> Column[int]:
    return Column("session", Integer, _life(), primary_key=primary, nullable=False)


def _life() -> ForeignKey:
    return ForeignKey("sessions.key", ondelete="CASCADE")


sessions = Table(
    "sessions",
    metadata,
    # From a counter, so that it can be known before there is a row: a kernel is forked first.
    Column("key", Integer, primary_key=True, autoincrement=False),
    # The name by which clients know it. Of a session that has ended there is no row.
    Column("id", Text, nullable=False, unique=True),
    Column("state", Text, CheckConstraint("state in ('active', 'resting')"), nullable=False),
    Column("workspace", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("idle_seconds", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_used_at", Float, nullable=False),
    # When a session that rests ends; empty: not by itself.
    Column("kept_until", Float),
    # Why the variables of a session that rests could not be saved; empty: they were, or there were none.
    Column("unsaved", Text),
    # The policy as content, and where it was read: it is never read there again.
    Column("policy_text", Text),
    Column("policy_digest", Text),
    # What the first session of the family had, of which this one is a fork.
    Column("family_text", Text),
    Column("family_digest", Text),
    Index("sessions_by_use", "state", "last_used_at"),
)

endings = Table(
    "endings",
    metadata,
    # That a session of this name has ended, how and when; of one that has expired, how much went with it.
    Column("id", Text, primary_key=True),
    Column("how", Text, CheckConstraint("how in ('ended', 'expired')"), nullable=False),
    Column("at", Float, nullable=False),
    # Empty for sessions that somebody has ended.
    Column("went", JSON),
    Index("endings_by_time", "at"),
)

writable_folders = Table(
    "writable_folders",
    metadata,
    # A folder that some session could write, also after the end of that session: no policy is read there.
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
    # By which handle the name came: equal content is no sign of that. Empty for any other way.
    Column("handle", Text),
    # Tells two loads under one name apart, when a cell that began before the second reports on the first. A forked
    # session has its parent's: it is the same load.
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
    Column("resolved_at", Float),
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
    # Whether a model in a session of its own is to answer it.
    Column("recursive", Boolean),
    # Who has asked it ("code" or "tool"), and which one of theirs it is.
    Column("asked_by", Text),
    Column("number", Integer),
)

inherited_queries = Table(
    "inherited_queries",
    metadata,
    # A query that a forked session holds and another one has asked, whose key is ``asked_in``. It is the other's to
    # have answered while that lives, so it is not a foreign key: at its end a fork takes the query over.
    _session_key(primary=True),
    Column("query", Text, primary_key=True),
    Column("asked_in", Integer, nullable=False),
    Index("inherited_queries_by_asker", "asked_in", "query"),
)

budgets = Table(
    "budgets",
    metadata,
    # What the session's queries have used of its limits: how many there were, and what providers did for them.
    _session_key(primary=True),
    Column("calls", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("cost", Float, nullable=False),
    Column("milliseconds", Integer, nullable=False),
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
    # Set for a cell that the supervisor has told of: the same cell may be told twice.
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
    # The frame that the cell was run for. No foreign key: what a forgotten frame ran is still the session's.
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
    # Set while the session lives in which somebody has revoked the attachment.
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
    # In US dollars.
    Column("cost", Float),
    # Those of the session after the turn.
    Column("variables", JSON),
    Index("turns_by_session", "session", "number", "size"),
    sqlite_autoincrement=True,
)

ended_runs = Table(
    "run_records",
    metadata,
    # Of a session that has ended and in which a model worked: this outlives it. So its key is no foreign key.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("key", Integer, nullable=False, unique=True),
    # The key of the session that it was forked from.
    Column("parent", Integer),
    Column("ended_at", Float, nullable=False),
    # The runs in one line each, as JSON; and the whole record, as compressed JSON.
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
    # Counters outlive the rows that they number, and count by a session's name: no id is ever given out twice, so a
    # late answer to a query of a session that has ended does not meet one of the next session of that name.
    Column("scope", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)
