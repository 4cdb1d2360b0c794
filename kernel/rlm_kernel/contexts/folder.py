"""The files of a directory, as git would see them: sorted, without what .gitignore excludes.

No symbolic link is followed, so what is found lies in the directory; what is opened is checked to lie there,
because directories may be swapped for links meanwhile.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from .errors import SourceError

MOST_FILES = 50_000
"""More files than this are refused: that is no project."""
_META = frozenset({".git", ".hg", ".svn"})
_LONGEST_IGNORE = 1 << 20  # bytes of an ignore file that are read

Ignores = tuple[tuple[Path, GitIgnoreSpec], ...]


def files_below(root: Path, skipped: Counter[str], private: Callable[[Path], bool]) -> Iterator[Path]:
    """The regular files below a directory, depth first.

    Args: root, resolved; skipped, to which what is left out is added by reason (a directory counts once);
    private, whether a directory is not to be looked into.
    Raises: SourceError when there are too many.
    """
    for found, path in enumerate(_walk(root, _ignores_above(root), skipped, private)):
        if found == MOST_FILES:
            raise SourceError(f"{root} holds more than {MOST_FILES:,} files", "load a smaller directory")
        yield path


def is_below(fd: int, root: Path) -> bool:
    """Whether an open file really lies below a resolved directory; True where the system cannot tell."""
    try:
        real = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return not Path("/proc/self/fd").exists()
    return Path(real).is_relative_to(root)


def _walk(folder: Path, ignores: Ignores, skipped: Counter[str], private: Callable[[Path], bool]) -> Iterator[Path]:
    ignores = _with_own(folder, ignores)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        skipped["unreadable"] += 1
        return
    for entry in entries:
        path = folder / entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _META:
            continue
        if _is_ignored(path, is_folder, ignores):
            skipped["ignored"] += 1
        elif entry.is_symlink():
            skipped["link"] += 1
        elif is_folder and private(path):
            skipped["private"] += 1
        elif is_folder:
            yield from _walk(path, ignores, skipped, private)
        elif entry.is_file(follow_symlinks=False):
            yield path
        else:
            skipped["special"] += 1


def _is_ignored(path: Path, is_folder: bool, ignores: Ignores) -> bool:
    """What the innermost .gitignore that has an opinion says."""
    for folder, spec in reversed(ignores):
        name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
        said = spec.check_file(name).include
        if said is not None:
            return said
    return False


def _ignores_above(root: Path) -> Ignores:
    """The rules of the repository that a directory lies in, outermost first; its own come with the walk.

    Whoever names a directory that they exclude means it (logs, most often): then they say nothing of what is in it.
    """
    inside = next((at for at in (root, *root.parents) if (at / ".git").exists()), None)
    if inside is None:
        return ()
    found: Ignores = _rules(inside, inside / ".git" / "info" / "exclude")
    path = inside
    for part in root.relative_to(inside).parts:
        found = _with_own(path, found)
        path /= part
        if _is_ignored(path, True, found):
            found = ()
    return found


def _with_own(folder: Path, ignores: Ignores) -> Ignores:
    return ignores + _rules(folder, folder / ".gitignore")


def _rules(folder: Path, path: Path) -> Ignores:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return ()
    try:
        lines = os.read(fd, _LONGEST_IGNORE).decode("utf-8", "replace").splitlines()
        return ((folder, GitIgnoreSpec.from_lines(lines)),)
    except (OSError, ValueError):  # a directory, or a pattern that is none: git passes over those too
        return ()
    finally:
        os.close(fd)
