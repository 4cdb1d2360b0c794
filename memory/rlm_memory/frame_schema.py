"""The tables of the tree of frames. They join the metadata of `rlm_memory.schema`, so `Store.open` creates them too.

A frame has a *key* from the store's counter, which is never reused, and the *id* ``f<key>``, which people see. Rows
with what a frame's end copied out of its session belong to the frame: they outlive the session and are deleted when
someone forgets the frame. The column ``session`` becomes empty when that session ends.

Every ``DELETE`` of a frame also deletes the rows that belong to it and the frames below it.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, Float, ForeignKey, Index, Integer, Table, Text, text

from rlm_memory.schema import metadata

BASE = "(priority + 50 * dependents)"
"""The part of a score that does not change over time."""
READY = (
    "kind = 'task' AND waiting = 0 AND closed_above = 0 AND open_children = 0"
    " AND (status = 'planned' OR freed_at IS NOT NULL)"
)
"""The condition for a frame that may be claimed.

Queries must use exactly these words, or SQLite does not use its index.
"""


def _of_frame(name: str = "frame", *, primary: bool = False, empty: bool = False) -> Column[int]:
    key = ForeignKey("frames.key", ondelete="CASCADE")
    return Column(name, Integer, key, primary_key=primary, nullable=empty)


frames = Table(
    "frames",
    metadata,
    Column("key", Integer, primary_key=True, autoincrement=False),
    # The location of the tree: git's common folder, otherwise a working directory, otherwise `session:NAME`.
    Column("tree", Text, nullable=False),
    # Empty for the root; a tree has exactly one.
    _of_frame("parent", empty=True),
    Column("depth", Integer, nullable=False),
    Column("kind", Text, CheckConstraint("kind in ('session', 'task', 'story', 'epic')"), nullable=False),
    Column("goal", Text, nullable=False),
    Column(
        "status",
        Text,
        CheckConstraint("status in ('planned', 'in_progress', 'completed', 'failed', 'blocked', 'invalidated')"),
        nullable=False,
    ),
    Column("author", Text, nullable=False),
    # Several frames may run in one session; a planned one has none.
    Column("session", Integer, ForeignKey("sessions.key", ondelete="SET NULL")),
    # The session that its own session was forked from.
    Column("forked_from", Integer, ForeignKey("sessions.key", ondelete="SET NULL")),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    # The event that ended it, which gives the order in which siblings ended. Empty for a frame that never started.
    Column("ended", Integer),
    # The event that ended or invalidated it and the frames that ended with it: reopening brings back the same ones.
    Column("cause", Integer),
    # Children that ended up to this event are one line in this frame's context. Only an end changes it, never a read.
    Column("folded", Integer, nullable=False),
    Column("folded_count", Integer, nullable=False),
    # Where the log is, once it is written.
    Column("log", Text),
    Column("priority", Integer, nullable=False, server_default=text("500")),
    # Counts that make readiness an index lookup. `rlm_memory.frames.counts` maintains and explains them.
    Column("waiting", Integer, nullable=False, server_default=text("0")),
    Column("closed_above", Integer, nullable=False, server_default=text("0")),
    Column("dependents", Integer, nullable=False, server_default=text("0")),
    Column("open_children", Integer, nullable=False, server_default=text("0")),
    # Who claimed it last, and how many claims there have been. A fence never decreases.
    Column("holder", Text),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    # When the holder lost it or gave it back; set as long as nobody has claimed it since.
    Column("freed_at", Float),
    Index("frames_root", "tree", unique=True, sqlite_where=text("parent is null")),
    Index("frames_by_parent", "parent", "status", "key"),
    Index("frames_by_end", "parent", "ended", sqlite_where=text("ended is not null")),
    Index("frames_by_session", "session", sqlite_where=text("session is not null")),
    Index("frames_by_cause", "cause", sqlite_where=text("cause is not null")),
    Index("frames_ready", "tree", text(f"{BASE} DESC"), "created_at", sqlite_where=text(READY)),
    Index("frames_by_holder", "holder", sqlite_where=text("holder is not null")),
)

edges = Table(
    "frame_edges",
    metadata,
    # `frame` waits for `target`, or has it as a note; `rlm_memory.frames.edges` says what resolves each type.
    _of_frame(primary=True),
    _of_frame("target", primary=True),
    Column(
        "type",
        Text,
        CheckConstraint("type in ('blocks', 'waits_for', 'on_failure', 'found_in', 'supersedes')"),
        primary_key=True,
    ),
    Column("resolved", Boolean, nullable=False),
    Index("frame_edges_by_target", "target", "type", "resolved"),
)

events = Table(
    "frame_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    _of_frame(),
    Column("at", Float, nullable=False),
    Column("author", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Index("frame_events_by_frame", "frame", "number"),
    sqlite_autoincrement=True,
)

compactions = Table(
    "frame_compactions",
    metadata,
    # A frame's latest row counts: a model's summary may follow an extract.
    Column("number", Integer, primary_key=True, autoincrement=True),
    _of_frame(),
    Column("source", Text, CheckConstraint("source in ('caller', 'extract', 'model')"), nullable=False),
    Column("text", Text, nullable=False),
    Column("artifacts", JSON, nullable=False),
    Column("decisions", JSON, nullable=False),
    Column("at", Float, nullable=False),
    Index("frame_compactions_by_frame", "frame", "number"),
    sqlite_autoincrement=True,
)

summaries = Table(
    "frame_summaries",
    metadata,
    # The query that asks a model for the summary of a frame, and the extract that its answer replaces. It is deleted
    # with the session that was asked, and with the frame.
    Column("session", Integer, ForeignKey("sessions.key", ondelete="CASCADE"), primary_key=True),
    Column("query", Text, primary_key=True),
    _of_frame(),
    Column("compaction", Integer, nullable=False),
    Index("frame_summaries_by_frame", "frame"),
)

handovers = Table(
    "frame_handovers",
    metadata,
    # A value for a frame above. It is in the content store before the end of `frame` commits.
    _of_frame(primary=True),
    Column("name", Text, primary_key=True),
    _of_frame("target"),
    Column("digest", Text, nullable=False),
    Column("size", Integer, nullable=False),
    # The format of the content: a text, or an object that a worker serialized.
    Column("form", Text, CheckConstraint("form in ('text', 'object')"), nullable=False),
    Column("delivered_at", Float),
    Index("frame_handovers_by_target", "target", sqlite_where=text("delivered_at is null")),
    Index("frame_handovers_by_digest", "digest"),
)

messages = Table(
    "frame_messages",
    metadata,
    # The conversation in a frame, in order.
    Column("number", Integer, primary_key=True, autoincrement=True),
    _of_frame(),
    Column("message", JSON, nullable=False),
    Column("size", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Index("frame_messages_by_frame", "frame", "number", "size"),
    sqlite_autoincrement=True,
)

operations = Table(
    "frame_operations",
    metadata,
    # Slow work that a transaction has promised. After a crash it is done again or undone.
    Column("number", Integer, primary_key=True, autoincrement=True),
    _of_frame(),
    Column("what", Text, CheckConstraint("what in ('push', 'log', 'notebook', 'end')"), nullable=False),
    # The session it concerns; that session may have ended.
    Column("of_session", Integer),
    Index("frame_operations_by_frame", "frame", "what"),
    sqlite_autoincrement=True,
)
