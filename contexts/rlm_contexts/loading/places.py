"""Files and folders, opened and checked in one step: the check applies to what is open, never to its name.

A path is walked from the root, one descriptor after the other. No step follows a symbolic link: the walk reads the link
and continues from the descriptors that it has. So nobody can put another file, a link or a folder in place of what was
checked. The path of an open file consists of the names by which it was reached.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from rlm_contexts.errors import OutOfReach, SourceError, SourceGone
from rlm_ipc.late_dataclasses import dataclass

_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EMLINK})
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder that is held open.

    Attributes:
        fd: its descriptor, opened for inspection only; `read` and `listed` open it again for reading.
        path: its path, without a symbolic link.
        above: the folders that it was reached through, from the root on.
    """

    fd: int
    path: Path
    above: tuple[int, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(os.fstat(self.fd).st_mode)

    @contextmanager
    def read(self) -> Iterator[int]:
        """Yield a descriptor of its own to read from.  Raises: SourceError for all but a regular file."""
        mode = os.fstat(self.fd).st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise SourceError(f"{self.path} is {kind}", "give the path of a file")
        fd = self._opened(_READ)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def listed(self) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Yield the entries of the folder.  Raises: SourceError."""
        fd = self._opened(_READ | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                yield entries
        finally:
            os.close(fd)

    def _opened(self, flags: int) -> int:
        """Open it again through its descriptor, which was opened for inspection only."""
        try:
            return os.open(f"/proc/self/fd/{self.fd}", flags) if hasattr(os, "O_PATH") else os.dup(self.fd)
        except OSError as problem:
            raise _unreadable(self.path, problem) from problem


@dataclass(frozen=True)
class PathReach:
    """What may be read: everything the user can read except some folders, or only the contents of some folders.

    Attributes:
        refused: folders of which nothing may be read, by whatever path. If one of them is a file system of its own,
            it is refused wherever else it is mounted.
        allowed: the folders, without symbolic links, whose contents may be read; None: any.
        whose: who is restricted to those, for the message.
    """

    refused: Sequence[str] = ()
    allowed: Sequence[str] | None = None
    whose: str = ""

    @contextmanager
    def opened(self, path: Path) -> Iterator[Place]:
        """Open what is at an absolute path; symbolic links are followed.

        Raises: OutOfReach when it may not be read, whether it exists or not; SourceError when it cannot be opened.
        """
        with closing(_Walk(self, path)) as walk:
            try:
                walk.finish()
            except OutOfReach:
                self.refuse_outside(walk.path, path)
                raise
            except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
                self.refuse_outside(walk.path, path)
                raise _unreadable(path, problem) from problem
            self.refuse_outside(walk.path, path)
            *above, fd = walk.descriptors
            yield Place(fd, walk.path, tuple(above))

    @contextmanager
    def below(self, folder: Place, name: str) -> Iterator[Place]:
        """Open an entry of an open folder; for a symbolic link the link itself, of which nothing can be read.

        Raises: as `opened`.
        """
        path = folder.path / name
        try:
            fd = os.open(name, _LOOK, dir_fd=folder.fd)
        except OSError as problem:
            raise _unreadable(path, problem) from problem
        try:
            self.refuse_private(fd, path, path)
            yield Place(fd, path)
        finally:
            os.close(fd)

    def refuse_private(self, fd: int, reached: Path, asked: Path) -> None:
        """Refuse what is open if it is a refused folder, or in a file system that is one.  Raises: OutOfReach."""
        status = os.fstat(fd)
        root = self._roots.get((status.st_dev, status.st_ino)) or self._mounted.get(status.st_dev)
        root = root or self._names.get(str(reached))  # a file system may renumber its folders
        if root is not None:
            raise OutOfReach(
                f"{str(asked)!r} is below {root}, which is closed to loading",
                "load a file of your own; load a result of code with variable=",
            )

    def refuse_outside(self, reached: Path, asked: Path) -> None:
        """Refuse what is in none of the allowed folders.  Raises: OutOfReach."""
        if self.allowed is not None and not any(reached.is_relative_to(root) for root in self.allowed):
            raise OutOfReach(
                f"{str(asked)!r} is not in a folder from which {self.whose} may load",
                f"load a file below one of: {', '.join(self.allowed) or '(none)'}; or send its text as content",
            )

    @cached_property
    def _roots(self) -> Mapping[tuple[int, int], str]:
        return {(status.st_dev, status.st_ino): root for root, status in self._statuses()}

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {os.path.realpath(root): root for root in self.refused}

    @cached_property
    def _mounted(self) -> Mapping[int, str]:
        return {status.st_dev: root for root, status in self._statuses() if os.path.ismount(root)}

    def _statuses(self) -> Iterator[tuple[str, os.stat_result]]:
        for root in self.refused:
            with suppress(OSError):  # it need not exist
                yield root, os.stat(root)


class _Walk:
    """The walk along a path.

    Attributes:
        path: the names by which it was reached so far.
        descriptors: of these, from the root on.
    """

    def __init__(self, reach: PathReach, path: Path) -> None:
        self._reach, self._asked = reach, path
        self._left = _parts(path)
        self._links = 0
        self.path = Path("/")
        self.descriptors = [os.open("/", _LOOK | os.O_DIRECTORY)]

    def close(self) -> None:
        """Close all of it."""
        self._back_to(0)

    def finish(self) -> None:
        """Walk to the end.  Raises: OSError, OutOfReach."""
        while self._left:
            name = self._left.pop()
            if name == "..":
                self._back_to(max(1, len(self.descriptors) - 1))
            elif (target := self._enter(name)) is not None:
                self._follow(target)

    def _enter(self, name: str) -> Path | None:
        """Go one step; at a symbolic link, do not move but return its target."""
        at = self.descriptors[-1]
        try:
            fd = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=at)  # as a folder first, so that it is mounted if need be
        except OSError as problem:
            if problem.errno not in _NO_FOLDER:
                raise
            try:
                return Path(os.readlink(name, dir_fd=at))
            except OSError as none:
                if none.errno != errno.EINVAL:
                    raise
            fd = os.open(name, _LOOK, dir_fd=at)
        self.descriptors.append(fd)
        self.path /= name
        self._reach.refuse_private(fd, self.path, self._asked)
        return None

    def _follow(self, target: Path) -> None:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.is_absolute():
            self._back_to(1)
        self._left += _parts(target)

    def _back_to(self, depth: int) -> None:
        while len(self.descriptors) > depth:
            os.close(self.descriptors.pop())
            self.path = self.path.parent


def _parts(path: Path) -> list[str]:
    """Return the names of a path, the first one last."""
    return [part for part in reversed(path.parts) if part.strip("/")]


def _unreadable(path: Path, problem: OSError | ValueError) -> SourceError:
    reason = getattr(problem, "strerror", None) or str(problem)
    kind = SourceGone if isinstance(problem, FileNotFoundError) else SourceError
    return kind(f"{path}: {reason}", "give the path of a readable, regular file")
