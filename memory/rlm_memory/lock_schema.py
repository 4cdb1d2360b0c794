"""The tables of the project lock: which projects have one, which ids name it, and which version each frame has seen.

The snapshots themselves are in the scanner's store. These tables are the daemon's side and may be lost: the next call
rebuilds them.
"""

from __future__ import annotations

from rlm_memory.frame_schema import OF_FRAME
from rlm_memory.tables import Table

projects = Table(
    "lock_projects",
    # The top of a working tree, with the newest version that the daemon knows.
    root="TEXT NOT NULL PRIMARY KEY",
    # The tree of frames of its repository.
    tree="TEXT NOT NULL",
    version="INTEGER NOT NULL",
    digest="TEXT NOT NULL",
    files="INTEGER NOT NULL",
    made_at="FLOAT NOT NULL",
    indexes={"lock_projects_by_tree": "(tree)"},
)

aliases = Table(
    "lock_aliases",
    # The ids that clients use for the lock of a project. The database belongs to one user, and so do the ids.
    root="TEXT NOT NULL",
    id="TEXT NOT NULL",
    used_at="FLOAT NOT NULL",
    primary_key=("root", "id"),
    indexes={"lock_aliases_by_use": "(used_at)"},
)

texts = Table(
    "lock_texts",
    # The sections as texts in the content store: all sessions share them, and they outlive every session.
    root="TEXT NOT NULL",
    section="TEXT NOT NULL",
    version="INTEGER NOT NULL",
    digest="TEXT NOT NULL",
    # Whether the scan was complete. A partial section is read again for the same version.
    is_whole="BOOLEAN NOT NULL",
    primary_key=("root", "section"),
    indexes={"lock_texts_by_digest": "(digest)"},
)

frame_versions = Table(
    "lock_frame_versions",
    frame=f"{OF_FRAME} PRIMARY KEY",
    root="TEXT NOT NULL",
    # The version at which the work on the frame began, the last one it was told about, and the one at which it
    # ended.
    began="INTEGER NOT NULL",
    seen="INTEGER NOT NULL",
    ended="INTEGER",
    # Paths that others changed in the meantime.
    changed="JSON",
)
