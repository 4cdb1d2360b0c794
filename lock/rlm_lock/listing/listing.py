"""List a project: with git where there is a repository, otherwise by walking it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rlm_lock.listing import git
from rlm_lock.listing.walk import walked

MOST_FILES = 500_000
"""Maximum number of files to look at; the lock of a larger project is partial, and says so."""
_SECONDS = 60.0
_UNTRACKED_SECONDS = 5.0
_PATIENT_SECONDS = 0.5
"""If git takes longer to list untracked files, a walk starts in parallel that may have to replace it."""
_SLICE = 1_000
"""Number of files that the walk finds between checks whether git has ended."""
_SUBMODULE = b"160000"
_OURS = b".memory/"
"""Where `lock --write` puts the snapshot, which must not describe itself."""


@dataclass(slots=True)
class Listing:
    """Every file of a project.

    Attributes:
        paths: sorted; a listed file need not be on disk.
        index: what git's index says about a file's content, or a submodule's commit: 20 bytes for each path git tracks.
        submodules: paths that belong to another repository.
        digest: stays the same as long as nothing here changes.
        head: the commit that is checked out; empty without one.
        is_git: whether git has listed them.
        is_cut: whether git could not list untracked files, so that it need not be asked again.
        missing: what is left out, each as a sentence.
    """

    paths: list[bytes]
    index: dict[bytes, bytes]
    submodules: frozenset[bytes]
    digest: bytes
    head: str = ""
    is_git: bool = False
    is_cut: bool = False
    missing: tuple[str, ...] = ()


class Lister:
    """Lists a project; git starts at once, so that the caller can do something else meanwhile."""

    def __init__(self, root: bytes, known: Listing | None = None, most: int = MOST_FILES) -> None:
        """Args: root, the top of the working tree; known, the previous listing; most, how many files to list."""
        self._root, self._known, self._most, self._is_repository = root, known, most, git.is_repository(root)
        questions = [git.staged, git.head] if self._is_repository else []
        if self._is_repository and (known is None or not known.is_cut):
            questions.append(git.untracked)
        self._commands = [ask(root) for ask in questions]

    def close(self) -> None:
        """End git, if nobody has waited for it."""
        while self._commands:
            self._commands.pop().output(0.0)

    def listing(self, root_fd: int) -> Listing:
        """Return the listing: the previous object if it is still true, which takes no time.

        Args: root_fd, a descriptor of the root.
        """
        known = self._known
        if self._commands:
            staged, head, *others = self._commands
            self._commands = []
            listed, commit = staged.output(_SECONDS), head.output(_SECONDS)
            if listed.is_whole:
                return _of_git(listed, _untracked(others, root_fd), commit, known, self._most)
            for command in others:
                command.output(0.0)
        return _of_walk(root_fd, known, self._most, is_refused=self._is_repository)


def _untracked(commands: Sequence[git.GitCommand], root_fd: int) -> git.GitOutput:
    """Return the files that git does not track; those that a walk finds if git is not asked, or cannot say.

    A pipe in place of a .gitignore is enough for that, or very many rules.
    """
    names, paths = walked(root_fd, Counter()), list[bytes]()
    for command in commands:
        if not command.is_over(_PATIENT_SECONDS, _UNTRACKED_SECONDS):
            for path in names:
                paths.append(path)
                if len(paths) % _SLICE == 0 and command.is_over(0.0, _UNTRACKED_SECONDS):
                    break
        output = command.output(_UNTRACKED_SECONDS)
        if output.is_whole:
            return output
    paths.extend(names)
    return git.GitOutput(b"\0".join(sorted(paths)), False)


def _of_git(
    staged: git.GitOutput, untracked: git.GitOutput, head: git.GitOutput, known: Listing | None, most: int
) -> Listing:
    whole = hashlib.sha1(staged.data, usedforsecurity=False)
    whole.update(b"untracked" if untracked.is_whole else b"cut")
    whole.update(untracked.data)
    whole.update(head.data)
    digest = whole.digest()
    if known is not None and known.digest == digest:
        return known
    index: dict[bytes, bytes] = {}
    submodules: set[bytes] = set()
    missing: list[str] = []
    if not untracked.is_whole:
        missing.append("git cannot list what it does not track here; it is found by the rules of .gitignore alone")
    for path, hashed, is_submodule in islice(_records(staged.data), most + 1):
        index[path] = hashed
        if is_submodule:
            submodules.add(path)
    paths = set(index)
    # A path that ends with a slash is another repository inside, which is not a submodule.
    others = (path for path in untracked.data.split(b"\0") if path and path[-1:] != b"/" and _is_wanted(path))
    paths.update(islice(others, max(0, most + 1 - len(paths))))
    listed = _bounded(sorted(paths), most, missing)
    commit = head.data.strip().decode("ascii", "replace") if head.is_whole else ""
    is_cut = not untracked.is_whole
    return Listing(listed, index, frozenset(submodules), digest, commit, True, is_cut, tuple(missing))


def _records(staged: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    last = b""
    for record in staged.split(b"\0"):
        head, tab, path = record.partition(b"\t")
        if not tab or path == last or not _is_wanted(path):  # a path in conflict has up to three records
            continue
        last = path
        mode, hashed, _stage = head.split(b" ")
        yield path, bytes.fromhex(hashed.decode("ascii"))[:20], mode == _SUBMODULE


def _of_walk(root_fd: int, known: Listing | None, most: int, *, is_refused: bool) -> Listing:
    skipped: Counter[str] = Counter()
    missing: list[str] = []
    paths = sorted(islice((path for path in walked(root_fd, skipped) if _is_wanted(path)), most + 1))
    if is_refused:
        missing.append("git does not list this repository (run `git status` there to see why); its rules may be missed")
    paths = _bounded(paths, most, missing)
    if skipped["too deep"]:
        missing.append(f"{skipped['too deep']:,} folders are nested too deep to be looked into")
    if skipped["unreadable"]:
        missing.append(f"{skipped['unreadable']:,} folders cannot be read")
    digest = hashlib.sha1(b"\0".join((*paths, *map(os.fsencode, missing))), usedforsecurity=False).digest()
    if known is not None and known.digest == digest:
        return known
    return Listing(paths, {}, frozenset(), digest, missing=tuple(missing))


def _is_wanted(path: bytes) -> bool:
    """Return whether a path is below the root (a forged index can name any), and was not written by the lock."""
    if path.startswith((_OURS, b"/")):
        return False
    return not ((b".." in path or b".git" in path) and {b"..", b".git"} & set(path.split(b"/")))


def _bounded(paths: list[bytes], most: int, missing: list[str]) -> list[bytes]:
    """Return up to ``most`` paths, and say so if there are more."""
    if len(paths) > most:
        missing.append(f"the project has more than {most:,} files; the others are left out")
    return paths[:most]
