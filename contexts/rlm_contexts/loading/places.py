"""Files and folders, opened and judged in one step: what may be read is decided on what is open, never on its name.

A path is walked from the root, one descriptor after the other. No step follows a symbolic link: the walk reads it and
goes on from the descriptors that it has. So nobody can put another file, a link or a folder in the place of what was
judged. The path of what is open is the names by which it was reached.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from rlm_contexts.errors import OutOfReach, SourceError
from rlm_ipc.late_dataclasses import dataclass

_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EMLINK})
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder that is held open.

    Attributes:
        fd: it, opened to be looked at; `read` and `listed` open the same one to be read.
        path: where it is, without a symbolic link.
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
        """A descriptor of its own to read from.  Raises: SourceError for all but a regular file."""
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
        """What is in the folder.  Raises: SourceError."""
        fd = self._opened(_READ | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                yield entries
        finally:
            os.close(fd)

    def _opened(self, flags: int) -> int:
        """Open it again, by its descriptor where that was opened only to look."""
        try:
            return os.open(f"/proc/self/fd/{self.fd}", flags) if hasattr(os, "O_PATH") else os.dup(self.fd)
        except OSError as problem:
            raise _unreadable(self.path, problem) from problem


@dataclass(frozen=True)
class PathReach:
    """What may be read: all that the user can but for some folders, or what lies in some folders only.

    Attributes:
        refused: folders of which nothing may be read, by whatever way. Where one of them is a file system of its own,
            that is refused wherever else it is mounted.
        allowed: the folders, without symbolic links, of which something may be read; None: any.
        whose: who is held to those, for the message.
    """

    refused: Sequence[str] = ()
    allowed: Sequence[str] | None = None
    whose: str = ""

    @contextmanager
    def opened(self, path: Path) -> Iterator[Place]:
        """Open what is at an absolute path; symbolic links are followed.

        Raises: OutOfReach when it may not be read, whether it is there or not; SourceError when it cannot be opened.
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
        """Open what is in an open folder; of a symbolic link the link itself, of which nothing can be read.

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
        root = root or self._names.get(str(reached))  # a file system may number its folders anew
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
            with suppress(OSError):  # it need not be there
                yield root, os.stat(root)


class _Walk:
    """The way to what is at a path.

    Attributes:
        path: by which names it was reached so far.
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
        """Go to the end.  Raises: OSError, OutOfReach."""
        while self._left:
            name = self._left.pop()
            if name == "..":
                self._back_to(max(1, len(self.descriptors) - 1))
            elif (target := self._enter(name)) is not None:
                self._follow(target)

    def _enter(self, name: str) -> Path | None:
        """Go one step; where there is a symbolic link, none, and return what is written in it."""
        at = self.descriptors[-1]
        try:
            fd = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=at)  # as a folder first: so it is mounted if need be
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
    """The names of a path, the first one last."""
    return [part for part in reversed(path.parts) if part.strip("/")]


def _unreadable(path: Path, problem: OSError | ValueError) -> SourceError:
    reason = getattr(problem, "strerror", None) or str(problem)
    return SourceError(f"{path}: {reason}", "give the path of a readable, regular file")
