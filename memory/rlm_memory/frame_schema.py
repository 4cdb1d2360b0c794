"""The tables of the tree of frames. `Store.open` creates them with the others.

A frame has a *key* from the store's counter, which is never reused, and the *id* ``f<key>``, which people see. Rows
with what a frame's end copied out of its session belong to the frame: they outlive the session and are deleted when
someone forgets the frame. The column ``session`` becomes empty when that session ends.

Every ``DELETE`` of a frame also deletes the rows that belong to it and the frames below it.
"""

from __future__ import annotations

from rlm_memory.schema import OF_SESSION
from rlm_memory.tables import NUMBERED, Table

BASE = "(priority + 50 * dependents)"
"""The part of a score that does not change over time."""
READY = (
    "kind = 'task' AND waiting = 0 AND closed_above = 0 AND open_children = 0"
    " AND (status = 'planned' OR freed_at IS NOT NULL)"
)
"""The condition for a frame that may be claimed.

Queries must use exactly these words, or SQLite does not use its index.
"""


OF_FRAME = "INTEGER NOT NULL REFERENCES frames (key) ON DELETE CASCADE"
"""The declaration of the column ``frame`` of everything that is deleted with its frame."""

frames = Table(
    "frames",
    key="INTEGER NOT NULL PRIMARY KEY",
    # The location of the tree: git's common folder, otherwise a working directory, otherwise `session:NAME`.
    tree="TEXT NOT NULL",
    # Empty for the root; a tree has exactly one.
    parent="INTEGER REFERENCES frames (key) ON DELETE CASCADE",
    depth="INTEGER NOT NULL",
    kind="TEXT NOT NULL CHECK (kind in ('session', 'task', 'story', 'epic'))",
    goal="TEXT NOT NULL",
    status="TEXT NOT NULL CHECK (status in "
    "('planned', 'in_progress', 'completed', 'failed', 'blocked', 'invalidated'))",
    author="TEXT NOT NULL",
    # Several frames may run in one session; a planned one has none.
    session="INTEGER REFERENCES sessions (key) ON DELETE SET NULL",
    # The session that its own session was forked from.
    forked_from="INTEGER REFERENCES sessions (key) ON DELETE SET NULL",
    created_at="FLOAT NOT NULL",
    started_at="FLOAT",
    ended_at="FLOAT",
    # The event that ended it, which gives the order in which siblings ended. Empty for a frame that never started.
    ended="INTEGER",
    # The event that ended or invalidated it and the frames that ended with it: reopening brings back the same ones.
    cause="INTEGER",
    # Children that ended up to this event are one line in this frame's context. Only an end changes it, never a
    # read.
    folded="INTEGER NOT NULL",
    folded_count="INTEGER NOT NULL",
    # Where the log is, once it is written.
    log="TEXT",
    priority="INTEGER DEFAULT 500 NOT NULL",
    # Counts that make readiness an index lookup. `rlm_memory.frames.counts` maintains and explains them.
    waiting="INTEGER DEFAULT 0 NOT NULL",
    closed_above="INTEGER DEFAULT 0 NOT NULL",
    dependents="INTEGER DEFAULT 0 NOT NULL",
    open_children="INTEGER DEFAULT 0 NOT NULL",
    # Who claimed it last, and how many claims there have been. A fence never decreases.
    holder="TEXT",
    fence="INTEGER DEFAULT 0 NOT NULL",
    # When the holder lost it or gave it back; set as long as nobody has claimed it since.
    freed_at="FLOAT",
    indexes={
        "frames_by_parent": "(parent, status, key)",
        "frames_by_end": "(parent, ended) WHERE ended is not null",
        "frames_by_session": "(session) WHERE session is not null",
        "frames_by_cause": "(cause) WHERE cause is not null",
        "frames_ready": f"(tree, {BASE} DESC, created_at) WHERE {READY}",
        "frames_by_holder": "(holder) WHERE holder is not null",
    },
    unique_indexes={"frames_root": "(tree) WHERE parent is null"},
)

edges = Table(
    "frame_edges",
    # `frame` waits for `target`, or has it as a note; `rlm_memory.frames.edges` says what resolves each type.
    frame=OF_FRAME,
    target=OF_FRAME,
    type="TEXT NOT NULL CHECK (type in ('blocks', 'waits_for', 'on_failure', 'found_in', 'supersedes'))",
    resolved="BOOLEAN NOT NULL",
    primary_key=("frame", "target", "type"),
    indexes={"frame_edges_by_target": "(target, type, resolved)"},
)

events = Table(
    "frame_events",
    number=NUMBERED,
    frame=OF_FRAME,
    at="FLOAT NOT NULL",
    author="TEXT NOT NULL",
    verb="TEXT NOT NULL",
    data="JSON NOT NULL",
    indexes={"frame_events_by_frame": "(frame, number)"},
)

compactions = Table(
    "frame_compactions",
    # A frame's latest row counts: a model's summary may follow an extract.
    number=NUMBERED,
    frame=OF_FRAME,
    source="TEXT NOT NULL CHECK (source in ('caller', 'extract', 'model'))",
    text="TEXT NOT NULL",
    artifacts="JSON NOT NULL",
    decisions="JSON NOT NULL",
    at="FLOAT NOT NULL",
    indexes={"frame_compactions_by_frame": "(frame, number)"},
)

summaries = Table(
    "frame_summaries",
    # The query that asks a model for the summary of a frame, and the extract that its answer replaces. It is
    # deleted with the session that was asked, and with the frame.
    session=OF_SESSION,
    query="TEXT NOT NULL",
    frame=OF_FRAME,
    compaction="INTEGER NOT NULL",
    primary_key=("session", "query"),
    indexes={"frame_summaries_by_frame": "(frame)"},
)

handovers = Table(
    "frame_handovers",
    # A value for a frame above. It is in the content store before the end of `frame` commits.
    frame=OF_FRAME,
    name="TEXT NOT NULL",
    target=OF_FRAME,
    digest="TEXT NOT NULL",
    size="INTEGER NOT NULL",
    # The format of the content: a text, or an object that a worker serialized.
    form="TEXT NOT NULL CHECK (form in ('text', 'object'))",
    delivered_at="FLOAT",
    primary_key=("frame", "name"),
    indexes={
        "frame_handovers_by_target": "(target) WHERE delivered_at is null",
        # Deleting a frame looks for its rows, whether they were delivered or not.
        "frame_handovers_of_target": "(target)",
        "frame_handovers_by_digest": "(digest)",
    },
)

messages = Table(
    "frame_messages",
    # The conversation in a frame, in order.
    number=NUMBERED,
    frame=OF_FRAME,
    message="JSON NOT NULL",
    size="INTEGER NOT NULL",
    at="FLOAT NOT NULL",
    indexes={"frame_messages_by_frame": "(frame, number, size)"},
)

operations = Table(
    "frame_operations",
    # Slow work that a transaction has promised. After a crash it is done again or undone.
    number=NUMBERED,
    frame=OF_FRAME,
    what="TEXT NOT NULL CHECK (what in ('push', 'log', 'notebook', 'end'))",
    # The session it concerns; that session may have ended.
    of_session="INTEGER",
    indexes={"frame_operations_by_frame": "(frame, what)", "frame_operations_by_session": "(of_session, what)"},
)
