"""Trees of public projects as they were at a commit: what is compared works on files on disk, and on the history."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlm_lock.extraction.packing import from_bytes, to_bytes
from rlm_lock.extraction.parse import extract
from rlm_lock.index.base import build
from rlm_lock.index.project import ProjectIndex
from rlm_lock.listing.history import read_history
from rlm_lock.map.past import Past

__all__ = ["Tree", "git", "lines_of", "tree_at"]

_BACK = 400


def git(root: Path, *arguments: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(root), "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "surrogateescape")


def lines_of(root: Path, *arguments: str) -> list[str]:
    """Return the lines that git prints, or none if it found nothing."""
    try:
        return git(root, *arguments).splitlines()
    except subprocess.CalledProcessError:
        return []


@dataclass(frozen=True)
class Tree:
    """A tree of files that tasks are about, and its index.

    Attributes:
        root: where the files are.
        files: all of them, as git lists them.
        index: of these files.
        packed: the extract of each.
        past: the commits before this one.
    """

    root: Path
    files: list[str]
    index: ProjectIndex
    packed: dict[bytes, bytes]
    past: Past


def base_of(repository: Path) -> str:
    """Return the commit that lies four hundred before the newest, on the main line; nothing without such a history."""
    found = lines_of(repository, "rev-list", "--first-parent", f"--max-count={_BACK + 1}", "HEAD")
    return found[_BACK] if len(found) > _BACK else ""


def tree_at(repository: Path, commit: str, cache: Path) -> Path:
    """Return a working tree of a commit, in a repository whose history ends there."""
    root = cache / f"{repository.parent.name if repository.name == 'repo' else repository.name}-{commit[:12]}"
    if not root.exists():
        with tempfile.TemporaryDirectory(dir=cache) as draft:
            git(cache, "clone", "--quiet", "--shared", "--no-checkout", str(repository), f"{draft}/tree")
            git(Path(draft, "tree"), "checkout", "--quiet", "--detach", commit)
            Path(draft, "tree").rename(root)
    return root


def indexed(root: Path) -> Tree:
    """Return a tree with its index, built now."""
    files = sorted(git(root, "ls-files", "-z").split("\0")[:-1], key=os.fsencode)
    packed: dict[bytes, bytes] = {}
    for path in files:
        place = root / path
        if place.is_file() and not place.is_symlink():
            packed[os.fsencode(path)] = to_bytes(extract(path, place.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), _rows(packed))
        index = ProjectIndex.open(Path(folder), lambda path: from_bytes(packed[path]).imports)
    history = next(found for found in read_history(os.fsencode(root), "HEAD") if found is not None)
    return Tree(root, files, index, packed, Past(history.commits))


def _rows(packed: dict[bytes, bytes]) -> Iterator[tuple[bytes, str, bytes]]:
    for path in sorted(packed):
        yield path, "", packed[path]
