"""What changed between two versions: by file, and for files with extracts by definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlm_lock.listing.table import FileTable, plain_mode
from rlm_lock.model import Change, FileChange
from rlm_lock.names import shown
from rlm_lock.protocol import Difference
from rlm_lock.sections.view import is_below

MOST_CHANGES = 1_000
_MOST_NAMES = 50
"""Maximum names of definitions listed for one file, on each side."""

Names = Callable[[FileTable, int], frozenset[str] | None]
"""The names of the definitions in a row of a version; None if nobody has parsed that content."""


def compare(
    before: tuple[int, FileTable], after: tuple[int, FileTable], names: Names, below: bytes = b""
) -> Difference:
    """Compare what two versions, each a number and its files, have below a folder.

    At most a thousand changes are described.
    """
    changes: list[FileChange] = []
    count = 0
    for old, new in _differing(before[1], after[1]):
        at = before[1].paths[old] if old is not None else after[1].paths[new or 0]
        if not is_below(at, below):
            continue
        count += 1
        if len(changes) == MOST_CHANGES:
            continue
        had = names(before[1], old) if old is not None else frozenset[str]()
        has = names(after[1], new) if new is not None else frozenset[str]()
        change = Change.ADDED if old is None else Change.REMOVED if new is None else Change.MODIFIED
        path = shown(at)
        if had is None or has is None:
            changes.append(FileChange(path, change, is_parsed=False))
        else:
            changes.append(FileChange(path, change, _some(has - had), _some(had - has)))
    return Difference(before[0], after[0], count, tuple(changes))


def _some(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(map(shown, names))[:_MOST_NAMES])


def _differing(before: FileTable, after: FileTable) -> Iterator[tuple[int | None, int | None]]:
    """Yield each path that differs, in order, with its rows on both sides; None where it is missing."""
    olds, news = before.present(), after.present()
    old, new = next(olds, None), next(news, None)
    while old is not None or new is not None:
        old_path = before.paths[old] if old is not None else None
        new_path = after.paths[new] if new is not None else None
        if new_path is None or (old_path is not None and old_path < new_path):
            assert old is not None
            yield old, None
            old = next(olds, None)
        elif old_path is None or new_path < old_path:
            assert new is not None
            yield None, new
            new = next(news, None)
        else:
            assert old is not None
            assert new is not None
            same = plain_mode(before.modes[old]) == plain_mode(after.modes[new])
            if not same or before.blob(old) != after.blob(new):
                yield old, new
            old, new = next(olds, None), next(news, None)
