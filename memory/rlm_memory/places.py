"""The location of a tree of frames: one for each repository, however many worktrees it has.

It is found by reading git's own files, because no program may be started for it. A ``.git`` file in a worktree names
the folder of that worktree, whose file ``commondir`` leads to what all worktrees share. A submodule has no such file,
and gets a tree of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

_LONGEST = 4096
"""Bytes read of a file that holds one path."""


def tree_of(workspace: str, session: str) -> str:
    """Return the tree of a session: its repository's, otherwise its workspace's, otherwise one of its own."""
    if not workspace:
        return f"session:{session}"
    folder = Path(os.path.realpath(workspace))
    for place in (folder, *folder.parents):
        if (found := _git_folder(place / ".git")) is not None:
            return str(found)
    return str(folder)


def checkout_of(folder: str | Path) -> Path | None:
    """Return the top of the checkout that contains a folder: the innermost parent with `.git`, or None.

    `.git` is a folder, or a file in worktrees.
    """
    place = Path(os.path.realpath(folder))
    return next((here for here in (place, *place.parents) if (here / ".git").exists()), None)


def name_of_tree(tree: str) -> str:
    """Return the display name of a tree: the name of its folder or of its session."""
    if tree.startswith("session:"):
        return tree.removeprefix("session:")
    folder = Path(tree)
    return (folder.parent if folder.name == ".git" else folder).name or "/"


def path_in_worktree(workspace: str, path: str) -> str:
    """Return "/" and the path relative to the top of its worktree; that of a folder ends with "/".

    Links are followed up to the folder that contains the path. A path outside keeps its full form behind "//".
    """
    whole = os.path.join(workspace, os.path.expanduser(path)) if workspace else os.path.abspath(path)
    is_folder = path.endswith("/") or os.path.isdir(whole)
    plain = os.path.normpath(whole)
    real = os.path.join(os.path.realpath(os.path.dirname(plain)), os.path.basename(plain))
    found_top = checkout_of(plain if is_folder else os.path.dirname(real))
    top = os.path.realpath(workspace or "/") if found_top is None else str(found_top)
    if is_folder and os.path.isdir(plain):
        real = os.path.realpath(plain)
    inside = os.path.relpath(real, top)
    if inside == "." or real == top:
        return "/"
    place = f"//{real.lstrip('/')}" if inside.startswith("..") else f"/{inside}"
    return f"{place}/" if is_folder else place


def _git_folder(git: Path) -> Path | None:
    if git.is_dir():
        return Path(os.path.realpath(git))
    said = _read(git)
    if said is None or not said.startswith("gitdir:"):
        return None
    own = git.parent / said.removeprefix("gitdir:").strip()
    common = _read(own / "commondir")
    folder = own if common is None else own / common
    return Path(os.path.realpath(folder)) if folder.is_dir() else None


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_LONGEST)).strip()
    except OSError:
        return None
