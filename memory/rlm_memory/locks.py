"""What the daemon knows about project locks: versions, aliases, texts, and what each frame has seen of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.contexts import ContextOrigin, ContextRow
from rlm_memory.lock_schema import aliases, frame_versions, projects, texts
from rlm_memory.schema import upsert
from rlm_memory.store import Store

VERSION_KEY = "lock_version"
"""Key in the metadata of a context that is a section of a lock."""
_MOST_ALIASES = 10_000
"""Aliases kept over all projects; the least recently used ones are dropped."""

_PUT_PROJECT, _BIND, _PUT_TEXT = upsert(projects), upsert(aliases), upsert(texts)
_BEGAN = insert(frame_versions).on_conflict_do_nothing()
_SAW = upsert(frame_versions, "root", "seen")
_GOALS = """
    SELECT f.key, f.goal, f.status, f.started_at, f.ended_at, max(f.fence, 1) AS attempts, h.label AS holder
    FROM frames f LEFT JOIN holders h ON h.id = f.holder
    WHERE f.kind <> 'session' AND f.started_at IS NOT NULL"""
_PAST_ONE = f"{_GOALS} AND f.key = :key"
_PAST = f"""{_GOALS} AND f.tree = :tree
    ORDER BY coalesce(f.ended_at, f.started_at) DESC, f.key DESC LIMIT :most"""
_ENDED = (
    update(frame_versions)
    .where(frame_versions.c.frame == bindparam("of"))
    .values(ended=bindparam("version"), changed=bindparam("paths"))
)


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
    changed: Sequence[str]


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
    store.run(_PUT_PROJECT, {name: getattr(row, name) for name in row.__slots__})


def project(store: Store, root: str) -> ProjectRow | None:
    """Return the row of a project; None if it has no lock yet."""
    row = store.row(select(projects).where(projects.c.root == root))
    return None if row is None else ProjectRow(**row)


def of_tree(store: Store, tree: str) -> ProjectRow | None:
    """Return the project of a tree of frames that was viewed last; None if none has a lock."""
    newest = select(projects).where(projects.c.tree == tree).order_by(projects.c.made_at.desc()).limit(1)
    row = store.row(newest)
    return None if row is None else ProjectRow(**row)


def projects_known(store: Store) -> list[ProjectRow]:
    """List all projects that have a lock, by their folders."""
    return [ProjectRow(**row) for row in store.rows(select(projects).order_by(projects.c.root))]


def forget(store: Store, root: str) -> None:
    """Forget a project whose folder is gone; its frames keep the versions at which they ended."""
    with store.transaction():
        for table in (projects, aliases, texts):
            store.run(delete(table).where(table.c.root == root))


# --- aliases ------------------------------------------------------------------------------------------


def bind(store: Store, root: str, alias: str, *, now: float) -> None:
    """Make an id stand for the lock of a project, or record that it is in use."""
    with store.transaction() as connection:
        connection.execute(_BIND, {"root": root, "id": alias, "used_at": now})
        excess = connection.execute(select(func.count()).select_from(aliases)).scalar_one() - _MOST_ALIASES
        if excess > 0:
            oldest = select(aliases.c.root, aliases.c.id).order_by(aliases.c.used_at).limit(excess)
            for row in connection.execute(oldest).all():
                connection.execute(delete(aliases).where(aliases.c.root == row.root, aliases.c.id == row.id))


def alias_used_at(store: Store, root: str, alias: str) -> float | None:
    """Return when an id was last used for a project; None if it means nothing there."""
    named = select(aliases.c.used_at).where(aliases.c.root == root, aliases.c.id == alias)
    return next(iter(store.scalars(named)), None)


# --- texts --------------------------------------------------------------------------------------------


def put_text(store: Store, root: str, section: str, text: LockText) -> None:
    """Record which stored text is a section of a version."""
    values = {"root": root, "section": section} | {name: getattr(text, name) for name in text.__slots__}
    store.run(_PUT_TEXT, values)


def section_text(store: Store, root: str, section: str) -> LockText | None:
    """Return the stored text of a section; None if nobody has asked for it yet."""
    named = select(texts.c.version, texts.c.digest, texts.c.is_whole).where(
        texts.c.root == root, texts.c.section == section
    )
    row = store.row(named)
    return None if row is None else LockText(**row)


def is_section(row: ContextRow) -> bool:
    """Return whether a context is a section of a lock: nobody loaded it, and it costs no quota."""
    return row.origin is ContextOrigin.ATTACHED and row.handle is None and VERSION_KEY in row.metadata


# --- frames -------------------------------------------------------------------------------------------


def began(store: Store, frame: int, root: str, version: int) -> None:
    """Record the version at which the work on a frame begins; a frame that has one keeps it."""
    store.run(_BEGAN, {"frame": frame, "root": root, "began": version, "seen": 0})


def saw(store: Store, frame: int, root: str, version: int) -> None:
    """Record which version a frame was told about."""
    store.run(_SAW, {"frame": frame, "root": root, "began": version, "seen": version})


def ended(store: Store, frame: int, version: int, changed: Sequence[str]) -> None:
    """Record the version at which a frame ended, and what others have changed since it began."""
    store.run(_ENDED, {"of": frame, "version": version, "paths": list(changed)})


def of_frame(store: Store, frame: int) -> FrameVersion | None:
    """Return the versions that a frame has seen; None if it has never used a lock."""
    row = store.row(select(frame_versions).where(frame_versions.c.frame == frame))
    return None if row is None else FrameVersion(**{**row, "changed": tuple(row["changed"] or ())})


def past_goal(store: Store, key: int) -> PastGoal | None:
    """Return the goal of one frame; None if nobody has worked on it."""
    return next((PastGoal(**dict(row)) for row in store.read(_PAST_ONE, key=key)), None)


def past_goals(store: Store, tree: str, most: int) -> list[PastGoal]:
    """List the goals of a tree that were worked on, latest first."""
    return [PastGoal(**dict(row)) for row in store.read(_PAST, tree=tree, most=most)]
