"""The tables of the project lock: which projects have one, which ids name it, and which version each frame has seen.

The snapshots themselves are in the scanner's store. These tables are the daemon's side and may be lost: the next call
rebuilds them.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text

from rlm_memory.schema import metadata

projects = Table(
    "lock_projects",
    metadata,
    # The top of a working tree, with the newest version that the daemon knows.
    Column("root", Text, primary_key=True),
    # The tree of frames of its repository.
    Column("tree", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("files", Integer, nullable=False),
    Column("made_at", Float, nullable=False),
    Index("lock_projects_by_tree", "tree"),
)

aliases = Table(
    "lock_aliases",
    metadata,
    # The ids that clients use for the lock of a project. The database belongs to one user, and so do the ids.
    Column("root", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("used_at", Float, nullable=False),
    Index("lock_aliases_by_use", "used_at"),
)

texts = Table(
    "lock_texts",
    metadata,
    # The sections as texts in the content store: all sessions share them, and they outlive every session.
    Column("root", Text, primary_key=True),
    Column("section", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    # Whether the scan was complete. A partial section is read again for the same version.
    Column("is_whole", Boolean, nullable=False),
    Index("lock_texts_by_digest", "digest"),
)

frame_versions = Table(
    "lock_frame_versions",
    metadata,
    Column("frame", Integer, ForeignKey("frames.key", ondelete="CASCADE"), primary_key=True),
    Column("root", Text, nullable=False),
    # The version at which the work on the frame began, the last one it was told about, and the one at which it ended.
    Column("began", Integer, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("ended", Integer),
    # Paths that others changed in the meantime.
    Column("changed", JSON),
)
