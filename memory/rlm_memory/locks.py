"""What the daemon knows about project locks: versions, aliases, texts, and what each frame has seen of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.contexts import ContextOrigin, ContextRow
from rlm_memory.lock_schema import aliases, frame_versions, projects, texts
from rlm_memory.records import values_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, upsert_into

VERSION_KEY = "lock_version"
"""Key in the metadata of a context that is a section of a lock."""
_MOST_ALIASES = 10_000
"""Aliases kept over all projects; the least recently used ones are dropped."""

_PROJECTS = f"SELECT {columns_of(projects)} FROM lock_projects"
_PROJECT = f"{_PROJECTS} WHERE root = :root"
_OF_TREE = f"{_PROJECTS} WHERE tree = :tree ORDER BY made_at DESC LIMIT 1"
_ALL = f"{_PROJECTS} ORDER BY root"
_FORGET = [f"DELETE FROM {table.name} WHERE root = :root" for table in (projects, aliases, texts)]
_PUT_PROJECT, _BIND, _PUT_TEXT = upsert_into(projects), upsert_into(aliases), upsert_into(texts)
_USED_AT = "SELECT used_at FROM lock_aliases WHERE root = :root AND id = :id"
_DROP_OLDEST = """
    DELETE FROM lock_aliases WHERE rowid IN (
        SELECT rowid FROM lock_aliases ORDER BY used_at DESC LIMIT -1 OFFSET :most)"""
_TEXT = "SELECT version, digest, is_whole FROM lock_texts WHERE root = :root AND section = :section"
_BEGAN = """
    INSERT INTO lock_frame_versions (frame, root, began, seen) VALUES (:frame, :root, :version, 0)
    ON CONFLICT DO NOTHING"""
_SAW = """
    INSERT INTO lock_frame_versions (frame, root, began, seen) VALUES (:frame, :root, :version, :version)
    ON CONFLICT (frame) DO UPDATE SET root = excluded.root, seen = excluded.seen"""
_ENDED = "UPDATE lock_frame_versions SET ended = :version, changed = :paths WHERE frame = :frame"
_OF_FRAME = f"SELECT {columns_of(frame_versions)} FROM lock_frame_versions WHERE frame = :frame"
_GOALS = """
    SELECT f.key, f.goal, f.status, f.started_at, f.ended_at, max(f.fence, 1) AS attempts, h.label AS holder
    FROM frames f LEFT JOIN holders h ON h.id = f.holder
    WHERE f.kind <> 'session' AND f.started_at IS NOT NULL"""
_PAST_ONE = f"{_GOALS} AND f.key = :key"
_PAST = f"""{_GOALS} AND f.tree = :tree
    ORDER BY coalesce(f.ended_at, f.started_at) DESC, f.key DESC LIMIT :most"""


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project with a lock: the newest version that the daemon knows, and its hash, equal on every clone."""

    root: str
    tree: str
    version: int
    digest: str
    files: int
    made_at: float


@dataclass(frozen=True, slots=True)
class LockText:
    """A section of a version, as a text in the content store."""

    version: int
    digest: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class FrameVersion:
    """The versions of a project that a frame has seen; ``changed`` are paths that others changed meanwhile."""

    frame: int
    root: str
    began: int
    seen: int
    ended: int | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PastGoal:
    """A goal that was worked on: ``attempts`` says how often it was started, ``holder`` who claimed it last."""

    key: int
    goal: str
    status: str
    started_at: float | None
    ended_at: float | None
    attempts: int
    holder: str | None


# --- projects -----------------------------------------------------------------------------------------


def note_version(store: Store, row: ProjectRow) -> None:
    """Record the newest version of a project."""
    store.run(_PUT_PROJECT, **values_of(row))


def project(store: Store, root: str) -> ProjectRow | None:
    """Return the row of a project; None if it has no lock yet."""
    return store.record(ProjectRow, _PROJECT, root=root)


def of_tree(store: Store, tree: str) -> ProjectRow | None:
    """Return the project of a tree of frames that was viewed last; None if none has a lock."""
    return store.record(ProjectRow, _OF_TREE, tree=tree)


def projects_known(store: Store) -> list[ProjectRow]:
    """List all projects that have a lock, by their folders."""
    return store.records(ProjectRow, _ALL)


def forget(store: Store, root: str) -> None:
    """Forget a project whose folder is gone; its frames keep the versions at which they ended."""
    with store.transaction():
        for statement in _FORGET:
            store.run(statement, root=root)


# --- aliases ------------------------------------------------------------------------------------------


def bind(store: Store, root: str, alias: str, *, now: float) -> None:
    """Make an id stand for the lock of a project, or record that it is in use."""
    with store.transaction():
        store.run(_BIND, root=root, id=alias, used_at=now)
        store.run(_DROP_OLDEST, most=_MOST_ALIASES)


def alias_used_at(store: Store, root: str, alias: str) -> float | None:
    """Return when an id was last used for a project; None if it means nothing there."""
    used_at: float | None = store.scalar(_USED_AT, root=root, id=alias)
    return used_at


# --- texts --------------------------------------------------------------------------------------------


def put_text(store: Store, root: str, section: str, text: LockText) -> None:
    """Record which stored text is a section of a version."""
    store.run(_PUT_TEXT, root=root, section=section, **values_of(text))


def section_text(store: Store, root: str, section: str) -> LockText | None:
    """Return the stored text of a section; None if nobody has asked for it yet."""
    return store.record(LockText, _TEXT, root=root, section=section)


def is_section(row: ContextRow) -> bool:
    """Return whether a context is a section of a lock: nobody loaded it, and it costs no quota."""
    return row.origin is ContextOrigin.ATTACHED and row.handle is None and VERSION_KEY in row.metadata


# --- frames -------------------------------------------------------------------------------------------


def began(store: Store, frame: int, root: str, version: int) -> None:
    """Record the version at which the work on a frame begins; a frame that has one keeps it."""
    store.run(_BEGAN, frame=frame, root=root, version=version)


def saw(store: Store, frame: int, root: str, version: int) -> None:
    """Record which version a frame was told about."""
    store.run(_SAW, frame=frame, root=root, version=version)


def ended(store: Store, frame: int, version: int, changed: Sequence[str]) -> None:
    """Record the version at which a frame ended, and what others have changed since it began."""
    store.run(_ENDED, frame=frame, version=version, paths=json.dumps(list(changed)))


def of_frame(store: Store, frame: int) -> FrameVersion | None:
    """Return the versions that a frame has seen; None if it has never used a lock."""
    return store.record(FrameVersion, _OF_FRAME, frame=frame)


def past_goal(store: Store, key: int) -> PastGoal | None:
    """Return the goal of one frame; None if nobody has worked on it."""
    return store.record(PastGoal, _PAST_ONE, key=key)


def past_goals(store: Store, tree: str, most: int) -> list[PastGoal]:
    """List the goals of a tree that were worked on, latest first."""
    return store.records(PastGoal, _PAST, tree=tree, most=most)
