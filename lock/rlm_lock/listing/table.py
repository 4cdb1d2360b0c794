"""The file table: what a scan knows about each file, in arrays that stay small however many files there are."""

from __future__ import annotations

import hashlib
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from rlm_lock.model import FileNote

HASH = 20
"""Bytes of a content's hash."""
_NO_BLOB = bytes(HASH)
NOTES = tuple(FileNote)
"""The notes by their number in a table; new ones go last, because stores keep the numbers."""
UNTRACKED, DIRTY = 1, 2
"""Flags of a row: git does not track the file, or knows it with another content."""


class FileTable:
    """One row per file, in the order of the paths.

    A file whose ``ctimes`` is 0 has to be read again. ``modes`` is 0 for a file that is listed but not on disk.
    """

    __slots__ = ("_folders", "blobs", "ctimes", "flags", "inodes", "modes", "mtimes", "notes", "paths", "sizes")

    def __init__(self, paths: list[bytes]) -> None:
        """Args: paths, sorted; nothing is known about them yet."""
        count = len(paths)
        self.paths = paths
        self._folders: tuple[bytes, ...] | None = None
        self.ctimes, self.mtimes, self.sizes = (array("q", bytes(8 * count)) for _ in range(3))
        self.inodes, self.modes = array("Q", bytes(8 * count)), array("I", bytes(4 * count))
        self.notes, self.flags, self.blobs = bytearray(count), bytearray(count), bytearray(HASH * count)

    def __len__(self) -> int:
        return len(self.paths)

    def folders(self) -> tuple[bytes, ...]:
        """Return every folder that contains a path."""
        if self._folders is None:
            seen: set[bytes] = set()
            for path in self.paths:
                folder = path.rpartition(b"/")[0]
                while folder and folder not in seen:
                    seen.add(folder)
                    folder = folder.rpartition(b"/")[0]
            self._folders = tuple(seen)
        return self._folders

    def row_of(self, path: bytes) -> int:
        """Return the row of a path; -1 if it is not listed."""
        row = bisect_left(self.paths, path)
        return row if row < len(self.paths) and self.paths[row] == path else -1

    def blob(self, row: int) -> bytes:
        """Return the hash of a file's content; zeros where it is unknown."""
        return bytes(self.blobs[HASH * row : HASH * row + HASH])

    def set_blob(self, row: int, blob: bytes) -> None:
        """Remember the hash of a file's content."""
        self.blobs[HASH * row : HASH * row + HASH] = blob

    def has_text(self, row: int) -> bool:
        """Return whether a file has content from which an extract can be made."""
        return not self.notes[row] and bool(self.modes[row]) and self.blob(row) != _NO_BLOB

    def note(self, row: int) -> FileNote:
        """Return why nothing, or not everything, is known about a file."""
        return NOTES[self.notes[row]]

    def set_note(self, row: int, note: FileNote) -> None:
        """Remember why nothing, or not everything, is known about a file."""
        self.notes[row] = NOTES.index(note)

    def present(self) -> Iterator[int]:
        """Yield the rows of the files that are on disk."""
        modes = self.modes
        return (row for row in range(len(modes)) if modes[row])

    def tree(self) -> str:
        """Return the hash over path, mode and content of all files: the same on every clone."""
        whole = hashlib.sha1(usedforsecurity=False)
        blobs, modes = bytes(self.blobs), self.modes
        for row, path in enumerate(self.paths):
            if mode := modes[row]:
                whole.update(b"%s\0%o\0%s" % (path, plain_mode(mode), blobs[HASH * row : HASH * row + HASH]))
        return whole.hexdigest()

    def rearranged(self, paths: list[bytes]) -> FileTable:
        """Return a table of other paths, with what is known about those that are also here."""
        new = FileTable(paths)
        known = {path: row for row, path in enumerate(self.paths)}
        pairs = [(row, old) for row, path in enumerate(paths) if (old := known.get(path)) is not None]
        for name in ("ctimes", "mtimes", "sizes", "inodes", "modes", "notes", "flags"):
            ours, theirs = getattr(self, name), getattr(new, name)
            for row, old in pairs:
                theirs[row] = ours[old]
        for row, old in pairs:
            new.set_blob(row, self.blob(old))
        return new

    def mark(self, index: dict[bytes, bytes], *, is_git: bool, rows: Iterable[int] | None = None) -> None:
        """Remember which files git does not track, and which differ from its index."""
        for row in range(len(self.paths)) if rows is None else rows:
            known = index.get(self.paths[row])
            if known is None:
                self.flags[row] = UNTRACKED | DIRTY if is_git else 0
            else:
                is_dirty = self.note(row) is FileNote.NONE and self.blob(row) != known
                self.flags[row] = DIRTY if is_dirty else 0


def plain_mode(mode: int) -> int:
    """Return the mode as git keeps it: of the permissions only whether the owner may run the file."""
    if stat.S_ISREG(mode):
        return 0o100755 if mode & 0o100 else 0o100644
    return {stat.S_IFLNK: 0o120000, stat.S_IFDIR: 0o160000}.get(stat.S_IFMT(mode), 0)
