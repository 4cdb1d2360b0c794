"""The tables of the queue besides those of frames: holders, paths, progress, hand-offs, batches, chains, aliases.

Rows of a frame are deleted with it. Holders outlive their leases, so that the log of a tree can name them.
"""

from __future__ import annotations

from sqlalchemy import JSON, CheckConstraint, Column, Float, ForeignKey, Index, Integer, Table, Text, text

from rlm_memory.schema import metadata


def _of_frame(*, primary: bool = True) -> Column[int]:
    key = ForeignKey("frames.key", ondelete="CASCADE")
    return Column("frame", Integer, key, primary_key=primary, nullable=False)


holders = Table(
    "holders",
    metadata,
    # Who claims: one row for each holder, not for each lease, so that a death frees everything it held in one step.
    Column("id", Text, primary_key=True),
    # What its life is tied to: its connection, a process, or a time.
    Column("anchor", Text, CheckConstraint("anchor in ('connection', 'process', 'time')"), nullable=False),
    # How to find out after a restart of the daemon whether it is alive: a locked file, or a process; for a time, a
    # token's hash.
    Column("proof", Text, nullable=False),
    # The parent it belongs to: a new holder from there gets these frames back, if nobody has claimed them since.
    Column("kin", Text),
    Column("label", Text, nullable=False),
    Column("worktree", Text, nullable=False),
    Column("beat_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("gone_at", Float),
    Index("holders_by_proof", "proof"),
    Index("holders_that_live", "id", sqlite_where=text("gone_at is null")),
)

machine = Table(
    "machine",
    metadata,
    # The boot of the machine in which the last daemon ran: after another boot, the last rows may be lost.
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

items = Table(
    "frame_items",
    metadata,
    # What a tracker knows about a task besides its goal.
    _of_frame(),
    Column("type", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("acceptance", Text, nullable=False),
)

paths = Table(
    "frame_paths",
    metadata,
    # Where a frame is going to write: "/" and a path in the repository. That of a folder ends with "/".
    _of_frame(),
    Column("path", Text, primary_key=True),
    Index("frame_paths_by_path", "path"),
)

progress = Table(
    "frame_progress",
    metadata,
    _of_frame(),
    Column("data", JSON, nullable=False),
    Column("updated_at", Float, nullable=False),
)

handoffs = Table(
    "frame_handoffs",
    metadata,
    _of_frame(),
    Column("status", Text, CheckConstraint("status in ('PASS', 'FAIL', 'BLOCKED')"), nullable=False),
    Column("summary", Text, nullable=False),
    Column("files", JSON, nullable=False),
    Column("decisions", JSON, nullable=False),
    # A text in the content store; empty once it has decayed.
    Column("details", Text),
    Column("size", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("compacted_at", Float),
    Column("archived_at", Float),
    Index("frame_handoffs_by_details", "details", sqlite_where=text("details is not null")),
)

session_metrics = Table(
    "session_metrics",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("batches_completed", Integer, nullable=False),
    Column("last_batch_size", Integer, nullable=False),
    Column("last_batch_outcome", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    # The data behind the table of targets.
    Column("tree", Text, nullable=False),
    Column("batches", Integer, nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("interrupted", Integer, nullable=False),
    Column("next_size", Integer, nullable=False),
    Index("session_metrics_by_tree", "tree", "created_at"),
)

aliases = Table(
    "frame_aliases",
    metadata,
    # The name by which another tracker knows a frame, and everything it says about it.
    Column("tree", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("alias", Text, primary_key=True),
    _of_frame(primary=False),
    Column("data", JSON, nullable=False),
    Index("frame_aliases_by_frame", "frame"),
)

chains = Table(
    "work_chains",
    metadata,
    # The work of one loop on one scope (empty: the whole tree). The rest of its data, in `data`, belongs to the loop.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("tree", Text, nullable=False),
    Column("scope", Integer, ForeignKey("frames.key", ondelete="CASCADE")),
    # The process that runs the loop.
    Column("loop", Text, nullable=False),
    Column("ended_at", Float),
    Column("data", JSON, nullable=False),
    Index("work_chains_by_tree", "tree", "number"),
)

chain_runs = Table(
    "work_chain_runs",
    metadata,
    # One run of an agent program for one task.
    Column("chain", Integer, ForeignKey("work_chains.number", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    _of_frame(primary=False),
    Column("ended_at", Float),
    Column("data", JSON, nullable=False),
    Index("work_chain_runs_by_frame", "frame"),
)
