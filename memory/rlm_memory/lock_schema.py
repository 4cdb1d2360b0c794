"""The tables of the project lock: which projects have one, who may name it, and which version each frame has seen.

The snapshots themselves are in the store of the scanner. What stands here is the daemon's side, and may be lost: the
next call makes it anew.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text

from rlm_memory.schema import metadata

projects = Table(
    "lock_projects",
    metadata,
    # The top of a working tree, with its newest version as far as the daemon knows.
    Column("root", Text, primary_key=True),
    # The tree of frames that it belongs to: that of its repository.
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
    # The ids by which clients name the lock of a project. The database is one user's, so the id is too.
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
    # Whether the scan was done: what is partial is read again for the same version.
    Column("is_whole", Boolean, nullable=False),
    Index("lock_texts_by_digest", "digest"),
)

frame_versions = Table(
    "lock_frame_versions",
    metadata,
    Column("frame", Integer, ForeignKey("frames.key", ondelete="CASCADE"), primary_key=True),
    Column("root", Text, nullable=False),
    # The version that the work on the frame began with, the one that it was told of last, and the one it ended with.
    Column("began", Integer, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("ended", Integer),
    # Paths that others have changed meanwhile.
    Column("changed", JSON),
)
