"""Check files by their status, and read and hash them, without leaving the project through a link."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator

from rlm_contexts.bundle import is_secret_name
from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.listing.table import FileTable
from rlm_lock.listing.walk import DEEPEST
from rlm_lock.model import FileNote

MOST_HASHED = 4 << 20
"""Maximum bytes of a file that is read completely to be hashed."""
_SAMPLE = 1 << 20
"""Bytes that are read at both ends of a longer one."""
_SLICE = 4_000
"""Number of files that are checked before others get a turn."""
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FRESH_NS = 50_000_000
"""A file that changed this shortly before it was read may change again and look the same: file clocks tick."""
_NO_HASH = bytes(20)


def look(
    table: FileTable, root_fd: int, submodules: frozenset[bytes], rows: list[int] | None = None
) -> Iterator[list[int]]:
    """Yield, slice by slice, which rows (of all, or of these) differ from the table."""
    linked = _linked_folders(table, root_fd)
    yield []
    wanted = range(len(table)) if rows is None else rows
    for start in range(0, len(wanted), _SLICE):
        yield changed_rows(table, root_fd, submodules, wanted[start : start + _SLICE], linked)


def changed_rows(
    table: FileTable, root_fd: int, submodules: frozenset[bytes], rows: range | list[int], linked: tuple[bytes, ...]
) -> list[int]:
    """Return which of these rows differ from the table.

    Args: linked, folders that are no longer folders: nothing below them belongs to the project.
    """
    paths, ctimes, sizes, inodes, modes = table.paths, table.ctimes, table.sizes, table.inodes, table.modes
    lstat = os.lstat
    changed = []
    for row in rows:
        path = paths[row]
        try:
            status = lstat(path, dir_fd=root_fd)
            is_same = (
                status.st_ctime_ns == ctimes[row]
                and status.st_size == sizes[row]
                and status.st_ino == inodes[row]
                and not (linked and path.startswith(linked))
            )
        except (OSError, ValueError):  # gone, or not reached
            is_same = not modes[row]
        if not is_same and path not in submodules:  # the index says everything about a submodule
            changed.append(row)
    return changed


def _linked_folders(table: FileTable, root_fd: int) -> tuple[bytes, ...]:
    """Return those folders of a table's paths that are no folders on disk, such as links out of the project."""
    found = []
    for folder in table.folders():
        try:
            if not stat.S_ISDIR(os.lstat(folder, dir_fd=root_fd).st_mode):
                found.append(folder + b"/")
        except OSError:
            pass  # then nothing below it exists either
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result at a path: the status of the open file, its hash, and why nothing more is known."""

    status: os.stat_result | None
    blob: bytes = _NO_HASH
    note: FileNote = FileNote.NONE
    is_fresh: bool = False
    """Whether it may have changed since without looking different, so that it must be read again next time."""


class ContentReader:
    """Opens files through the descriptors of their folders, which it keeps from one path to the next."""

    def __init__(self, root_fd: int) -> None:
        """Args: the open top of the project, which the caller closes."""
        self._root = root_fd
        self._open: list[tuple[bytes, int]] = []

    def close(self) -> None:
        """Close the folders."""
        while self._open:
            os.close(self._open.pop()[1])

    def opened(self, path: bytes) -> int:
        """Open a file for reading; raises OSError, also where a part of the path is a link."""
        folder, name = self._folder(path)
        return os.open(name, _FILE, dir_fd=folder)

    def take(self, path: bytes, now_ns: int) -> Taken:
        """Hash what is at a path. Args: now_ns, the clock's time."""
        try:
            folder, name = self._folder(path)
            status = os.lstat(name, dir_fd=folder)
        except OSError:
            return Taken(None)
        is_fresh = status.st_ctime_ns > now_ns - _FRESH_NS
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            return self._link(folder, name, status, is_fresh)
        if stat.S_ISDIR(mode):
            return Taken(None)
        if not stat.S_ISREG(mode):
            return Taken(status, note=FileNote.SPECIAL)
        if is_secret_name(os.fsdecode(name)):
            return Taken(status, _hash(b"secret %d" % status.st_size), FileNote.SECRET)
        return self._file(folder, name, status, now_ns)

    def _link(self, folder: int, name: bytes, status: os.stat_result, is_fresh: bool) -> Taken:
        try:
            target = os.readlink(name, dir_fd=folder)
        except OSError:
            return Taken(None)
        return Taken(status, blob_of(target), FileNote.LINK, is_fresh)

    def _file(self, folder: int, name: bytes, status: os.stat_result, now_ns: int) -> Taken:
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except OSError:
            return Taken(status, note=FileNote.UNREADABLE)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                return Taken(before, note=FileNote.SPECIAL)
            blob, note = _hashed(fd, before.st_size)
            after = os.fstat(fd)
        except OSError:
            return Taken(status, note=FileNote.UNREADABLE)
        finally:
            os.close(fd)
        is_fresh = before.st_ctime_ns > now_ns - _FRESH_NS or after.st_ctime_ns != before.st_ctime_ns
        return Taken(before, blob, note, is_fresh)

    def _folder(self, path: bytes) -> tuple[int, bytes]:
        """Return the open folder of a path, and its name there."""
        *folders, name = path.split(b"/")
        if len(folders) > DEEPEST:
            raise OSError("nested too deep")
        kept = 0
        while kept < len(folders) and kept < len(self._open) and self._open[kept][0] == folders[kept]:
            kept += 1
        while len(self._open) > kept:
            os.close(self._open.pop()[1])
        at = self._open[-1][1] if self._open else self._root
        for folder in folders[kept:]:
            at = os.open(folder, _FOLDER, dir_fd=at)
            self._open.append((folder, at))
        return at, name


def blob_of(data: bytes) -> bytes:
    """Return git's hash of a content."""
    return _hash(b"blob %d\0" % len(data), data)


def _hashed(fd: int, size: int) -> tuple[bytes, FileNote]:
    if size > MOST_HASHED:
        ends = os.pread(fd, _SAMPLE, 0), os.pread(fd, _SAMPLE, size - _SAMPLE)
        return _hash(b"large %d\0" % size, *ends), FileNote.LARGE
    data = b""
    while len(data) <= MOST_HASHED and (piece := os.read(fd, MOST_HASHED + 1 - len(data))):
        data = data + piece if data else piece
    return blob_of(data), FileNote.LARGE if len(data) > MOST_HASHED else FileNote.NONE


def _hash(*parts: bytes) -> bytes:
    whole = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        whole.update(part)
    return whole.digest()
