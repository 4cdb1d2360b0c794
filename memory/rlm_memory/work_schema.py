"""The tables of the queue besides those of frames: holders, paths, progress, hand-offs, batches, chains, aliases.

Rows of a frame are deleted with it. Holders outlive their leases, so that the log of a tree can name them.
"""

from __future__ import annotations

from rlm_memory.frame_schema import OF_FRAME
from rlm_memory.tables import Table

holders = Table(
    "holders",
    # Who claims: one row for each holder, not for each lease, so that a death frees everything it held in one step.
    id="TEXT NOT NULL PRIMARY KEY",
    # What its life is tied to: its connection, a process, or a time.
    anchor="TEXT NOT NULL CHECK (anchor in ('connection', 'process', 'time'))",
    # How to find out after a restart of the daemon whether it is alive: a locked file, or a process; for a time, a
    # token's hash.
    proof="TEXT NOT NULL",
    # The parent it belongs to: a new holder from there gets these frames back, if nobody has claimed them since.
    kin="TEXT",
    label="TEXT NOT NULL",
    worktree="TEXT NOT NULL",
    beat_at="FLOAT NOT NULL",
    expires_at="FLOAT",
    gone_at="FLOAT",
    indexes={"holders_by_proof": "(proof)", "holders_that_live": "(id) WHERE gone_at is null"},
)

machine = Table(
    "machine",
    # The boot of the machine in which the last daemon ran: after another boot, the last rows may be lost.
    name="TEXT NOT NULL PRIMARY KEY",
    value="TEXT NOT NULL",
)

items = Table(
    "frame_items",
    # What a tracker knows about a task besides its goal.
    frame=f"{OF_FRAME} PRIMARY KEY",
    type="TEXT NOT NULL",
    description="TEXT NOT NULL",
    acceptance="TEXT NOT NULL",
)

paths = Table(
    "frame_paths",
    # Where a frame is going to write: "/" and a path in the repository. That of a folder ends with "/".
    frame=OF_FRAME,
    path="TEXT NOT NULL",
    primary_key=("frame", "path"),
    indexes={"frame_paths_by_path": "(path)"},
)

progress = Table(
    "frame_progress",
    frame=f"{OF_FRAME} PRIMARY KEY",
    data="JSON NOT NULL",
    updated_at="FLOAT NOT NULL",
)

handoffs = Table(
    "frame_handoffs",
    frame=f"{OF_FRAME} PRIMARY KEY",
    status="TEXT NOT NULL CHECK (status in ('PASS', 'FAIL', 'BLOCKED'))",
    summary="TEXT NOT NULL",
    files="JSON NOT NULL",
    decisions="JSON NOT NULL",
    # A text in the content store; empty once it has decayed.
    details="TEXT",
    size="INTEGER NOT NULL",
    created_at="FLOAT NOT NULL",
    compacted_at="FLOAT",
    archived_at="FLOAT",
    indexes={"frame_handoffs_by_details": "(details) WHERE details is not null"},
)

session_metrics = Table(
    "session_metrics",
    session_id="TEXT NOT NULL PRIMARY KEY",
    batches_completed="INTEGER NOT NULL",
    last_batch_size="INTEGER NOT NULL",
    last_batch_outcome="TEXT NOT NULL",
    created_at="FLOAT NOT NULL",
    # The data behind the table of targets.
    tree="TEXT NOT NULL",
    batches="INTEGER NOT NULL",
    tasks="INTEGER NOT NULL",
    interrupted="INTEGER NOT NULL",
    next_size="INTEGER NOT NULL",
    indexes={"session_metrics_by_tree": "(tree, created_at)"},
)

aliases = Table(
    "frame_aliases",
    # The name by which another tracker knows a frame, and everything it says about it.
    tree="TEXT NOT NULL",
    source="TEXT NOT NULL",
    alias="TEXT NOT NULL",
    frame=OF_FRAME,
    data="JSON NOT NULL",
    primary_key=("tree", "source", "alias"),
    indexes={"frame_aliases_by_frame": "(frame)"},
)

chains = Table(
    "work_chains",
    # The work of one loop on one scope (empty: the whole tree). The rest of its data, in `data`, belongs to the
    # loop.
    number="INTEGER NOT NULL PRIMARY KEY",
    tree="TEXT NOT NULL",
    scope="INTEGER REFERENCES frames (key) ON DELETE CASCADE",
    # The process that runs the loop.
    loop="TEXT NOT NULL",
    ended_at="FLOAT",
    data="JSON NOT NULL",
    indexes={
        "work_chains_by_tree": "(tree, number)",
        # Deleting a frame looks for its rows.
        "work_chains_by_scope": "(scope) WHERE scope is not null",
    },
)

chain_runs = Table(
    "work_chain_runs",
    # One run of an agent program for one task.
    chain="INTEGER NOT NULL REFERENCES work_chains (number) ON DELETE CASCADE",
    number="INTEGER NOT NULL",
    frame=OF_FRAME,
    ended_at="FLOAT",
    data="JSON NOT NULL",
    primary_key=("chain", "number"),
    indexes={"work_chain_runs_by_frame": "(frame)"},
)
