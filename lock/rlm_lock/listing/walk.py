"""The files of a folder without git: by descriptors, without following a link, without what .gitignore excludes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from rlm_contexts.loading.ignores import IgnoreRules, rules_in

DEEPEST = 200
"""Maximum depth of folders."""
_META = frozenset({".git", ".hg", ".svn"})
_MOST_RULES = 20_000
"""Maximum number of rules of all ignore files together; each costs time at every name below."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Ignores = tuple[tuple[int, IgnoreRules], ...]
"""Rules, each with the length of the path of its folder."""


class _Walk:
    def __init__(self, skipped: Counter[str]) -> None:
        self._skipped, self._rules_left = skipped, _MOST_RULES

    def below(self, fd: int, prefix: str, ignores: _Ignores, levels: int) -> Iterator[bytes]:
        ignores = self._with_own(fd, prefix, ignores)
        folders = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = entry.name
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if name in _META:
                        continue
                    if ignores and _is_ignored(prefix + name, ignores, is_folder=is_folder):
                        self._skipped["ignored"] += 1
                    elif is_folder:
                        folders.append(name)
                    else:
                        yield os.fsencode(prefix + name)
        except OSError:
            self._skipped["unreadable"] += 1
        if folders and levels == 0:
            self._skipped["too deep"] += len(folders)
            return
        for name in sorted(folders):
            try:
                inner = os.open(name, _FOLDER, dir_fd=fd)
            except OSError:
                self._skipped["unreadable"] += 1
                continue
            try:
                yield from self.below(inner, f"{prefix}{name}/", ignores, levels - 1)
            finally:
                os.close(inner)

    def _with_own(self, fd: int, prefix: str, ignores: _Ignores) -> _Ignores:
        rules = rules_in(fd, ".gitignore") if self._rules_left > 0 else None
        if rules is None:
            return ignores
        self._rules_left -= rules.count
        return (*ignores, (len(prefix), rules))


def walked(root: int, skipped: Counter[str]) -> Iterator[bytes]:
    """Yield the paths of all files below an open folder, in no particular order.

    Args: skipped, the counter of left-out entries by reason (a directory counts once).
    """
    yield from _Walk(skipped).below(root, "", (), DEEPEST)


def _is_ignored(path: str, ignores: _Ignores, *, is_folder: bool) -> bool:
    for start, rules in reversed(ignores):
        said = rules.excludes(path[start:], is_folder=is_folder)
        if said is not None:
            return said
    return False
