"""The files of a directory, as git would see them: sorted, without what .gitignore excludes.

Each folder is listed, and each file opened, by the descriptor of the folder above it, and no symbolic link is followed.
So what is found lies in the directory, even if something is replaced meanwhile.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path

from rlm_contexts.errors import OutOfReach, SourceError
from rlm_contexts.loading.ignores import IgnoreRules, rules_in
from rlm_contexts.loading.places import PathReach, Place
from rlm_contexts.progress import stopped
from rlm_ipc.late_dataclasses import dataclass

MOST_FILES = 50_000
"""Maximum number of files; a folder with more is not a project and is refused."""
MOST_ENTRIES = 500_000
"""Maximum number of files and folders to look through, including those left out."""
DEEPEST = 200
"""Maximum depth of folders."""
_META = frozenset({".git", ".hg", ".svn"})

Ignores = tuple[tuple[Path, IgnoreRules], ...]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file: the open folder that contains it, and its name."""

    folder: Place
    name: str

    @property
    def path(self) -> Path:
        """Its path."""
        return self.folder.path / self.name


class TooMany(SourceError):
    """There is more than anyone can want to load."""


class EntryKind(Enum):
    """What kind of entry something in a folder is."""

    FOLDER = auto()
    FILE = auto()
    LINK = auto()
    OTHER = auto()


class Look:
    """Looks into folders, within a total limit, and while someone waits for it."""

    def __init__(self, where: object) -> None:
        """Args: where, for messages."""
        self._where, self._count = where, 0

    def into(self, folder: Place) -> list[tuple[str, EntryKind]]:
        """Return the entries of a folder, sorted by name.

        Raises: TooMany; SourceError when it cannot be listed, or nobody waits any more.
        """
        found = []
        with folder.listed() as entries:
            for entry in entries:
                found.append((entry.name, _kind(entry)))
                self._count += 1
                if self._count > MOST_ENTRIES:
                    what = f"{self._where} requires looking at more than {MOST_ENTRIES:,} files and folders"
                    raise TooMany(what, "load a smaller directory, or use a narrower pattern")
        if stopped():
            raise TooMany(f"nobody waits for {self._where} any more", "load it again")
        return sorted(found, key=lambda one: one[0])


def files_below(root: Place, skipped: Counter[str], reach: PathReach) -> Iterator[FoundFile]:
    """The regular files below a directory, depth first; each can be opened until the next one is asked for.

    Args: skipped, to which what is left out is added by reason (a directory counts once); reach, what may be read.
    Raises: TooMany.
    """
    look = Look(root.path)
    for count, found in enumerate(_walk(root, _ignores_above(root), skipped, reach, look, DEEPEST)):
        if count == MOST_FILES:
            raise TooMany(f"{root.path} holds more than {MOST_FILES:,} files", "load a smaller directory")
        yield found


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_symlink():
        return EntryKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.FOLDER
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


def _walk(
    folder: Place, ignores: Ignores, skipped: Counter[str], reach: PathReach, look: Look, levels: int
) -> Iterator[FoundFile]:
    ignores = _with_own(folder.fd, folder.path, ignores)
    try:
        entries = look.into(folder)
    except TooMany:
        raise
    except SourceError:
        skipped["unreadable"] += 1
        return
    for name, kind in entries:
        if name in _META:
            continue
        if _is_ignored(folder.path / name, kind is EntryKind.FOLDER, ignores):
            skipped["ignored"] += 1
        elif kind is EntryKind.FILE:
            yield FoundFile(folder, name)
        elif kind is EntryKind.FOLDER and levels == 0:
            skipped["too deep"] += 1
        elif kind is EntryKind.FOLDER:
            try:
                with reach.below(folder, name) as inner:
                    yield from _walk(inner, ignores, skipped, reach, look, levels - 1)
            except OutOfReach:
                skipped["private"] += 1
            except TooMany:
                raise
            except SourceError:
                skipped["unreadable"] += 1
        else:
            skipped["link" if kind is EntryKind.LINK else "special"] += 1


def _is_ignored(path: Path, is_folder: bool, ignores: Ignores) -> bool:
    """Return the verdict of the innermost .gitignore that has one."""
    for folder, rules in reversed(ignores):
        said = rules.excludes(path.relative_to(folder).as_posix(), is_folder=is_folder)
        if said is not None:
            return said
    return False


def _ignores_above(root: Place) -> Ignores:
    """Return the rules of the repository that a directory lies in, outermost first; its own come with the walk.

    A caller that names a directory which they exclude wants it (usually logs): then they do not apply to its contents.
    """
    paths = [*reversed(root.path.parents), root.path]
    chain = list(zip(paths, (*root.above, root.fd), strict=True))
    inside = next((at for at in range(len(chain) - 1, -1, -1) if _is_repository(chain[at][1])), None)
    if inside is None:
        return ()
    path, fd = chain[inside]
    rules = _rules(fd, path, ".git/info/exclude")
    for (path, fd), (below, _) in pairwise(chain[inside:]):
        rules = _with_own(fd, path, rules)
        if _is_ignored(below, True, rules):
            rules = ()
    return rules


def _is_repository(folder: int) -> bool:
    try:
        os.stat(".git", dir_fd=folder)
    except OSError:
        return False
    return True


def _with_own(fd: int, path: Path, ignores: Ignores) -> Ignores:
    return ignores + _rules(fd, path, ".gitignore")


def _rules(folder: int, path: Path, name: str) -> Ignores:
    rules = rules_in(folder, name)
    return () if rules is None else ((path, rules),)
