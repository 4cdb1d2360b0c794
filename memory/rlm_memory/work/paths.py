"""The paths that frames declare: where they are going to write, so that no two write there at once.

A path is "/" and the path from the top of the repository; that of a folder ends with "/", so "/" is all of it. There
are no patterns: two paths overlap when they are equal, or one is a folder above the other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from sqlite3 import Row

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.errors import RowRequestError
from rlm_memory.frames.rows import frame_id
from rlm_memory.store import Store
from rlm_memory.tables import insert_into
from rlm_memory.work_schema import paths

MOST_PATHS = 100
"""Maximum number of paths of one frame."""
_LONGEST = 4096

# For the frame `f`: a path on which the holder of another claimed frame works. Most frames declare nothing.
_OVERLAP = """
    FROM frame_paths mine CROSS JOIN frames h CROSS JOIN frame_paths theirs
    WHERE mine.frame = {key} AND h.holder IS NOT NULL AND h.freed_at IS NULL AND +h.tree = {tree} AND h.key <> {key}
    AND theirs.frame = h.key AND (
        theirs.path = mine.path
        OR (substr(theirs.path, -1) = '/' AND substr(mine.path || '/', 1, length(theirs.path)) = theirs.path)
        OR (substr(mine.path, -1) = '/' AND substr(theirs.path || '/', 1, length(mine.path)) = mine.path))"""
OVERLAP = f"SELECT 1 {_OVERLAP.format(key='f.key', tree='f.tree')}"
_CLEAR, _DECLARE = "DELETE FROM frame_paths WHERE frame = :frame", insert_into(paths)
_DECLARED = "SELECT frame, path FROM frame_paths WHERE frame IN (SELECT value FROM json_each(:keys)) ORDER BY path"
_CONFLICT = f"SELECT h.key, h.holder, theirs.path {_OVERLAP.format(key=':key', tree=':tree')} LIMIT 1"
_TAKEN = """
    SELECT f.key, f.holder, f.fence, p.path FROM frame_paths p JOIN frames f ON f.key = p.frame
    WHERE p.path IN (SELECT value FROM json_each(:above)) AND f.holder IS NOT NULL AND f.freed_at IS NULL
    AND f.tree = :tree AND f.holder NOT IN (SELECT value FROM json_each(:own))
    ORDER BY length(p.path) DESC, f.key LIMIT 1"""


@dataclass(frozen=True, slots=True)
class Taken:
    """A path that a claimed frame has declared: the frame's id, and who holds it."""

    frame: str
    holder: str
    path: str


def declare(store: Store, frame: int, said: Iterable[str]) -> None:
    """Set the paths that a frame is going to write, in place of the previous ones.

    Raises:
        RowRequestError: there are too many, or one does not begin with "/".
    """
    distinct = sorted(set(said))
    if len(distinct) > MOST_PATHS:
        raise RowRequestError(f"a frame may declare at most {MOST_PATHS} paths; name folders, ending with /")
    if bad := [path for path in distinct if not path.startswith("/")]:
        raise RowRequestError(f'{bad[0][:80]!r} does not begin with "/"')
    with store.transaction():
        store.run(_CLEAR, frame=frame)
        store.run_each(_DECLARE, [{"frame": frame, "path": limits.storable(path, _LONGEST)} for path in distinct])


def declared(store: Store, frames: Sequence[int]) -> dict[int, list[str]]:
    """Map those of the frames that declare paths to their paths."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in store.rows(_DECLARED, keys=json.dumps(list(frames))):
        found[row["frame"]].append(row["path"])
    return found


def overlap(one: str, other: str) -> bool:
    """Whether writing to one path may write to the other."""
    return one == other or _inside(one, other) or _inside(other, one)


def _inside(path: str, folder: str) -> bool:
    return folder.endswith("/") and f"{path}/".startswith(folder)


def in_conflict(store: Store, tree: str, frame: int) -> Taken | None:
    """Return a claimed path that overlaps with what a frame declares."""
    return _taken(store.row(_CONFLICT, key=frame, tree=tree))


def taken_by_other(store: Store, tree: str, path: str, own: Iterable[str] = ()) -> Taken | None:
    """Return who has claimed a path or a folder above it, other than the holders in ``own``. Hooks ask this."""
    parts = path.removesuffix("/").split("/")
    above = [path, f"{path}/", *("/".join(parts[:number]) + "/" for number in range(1, len(parts)))]
    return _taken(store.row(_TAKEN, above=json.dumps(above), tree=tree, own=json.dumps(list(own))))


def _taken(row: Row | None) -> Taken | None:
    return None if row is None else Taken(frame_id(row["key"]), row["holder"], row["path"])
