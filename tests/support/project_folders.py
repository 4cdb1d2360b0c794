"""A real folder as a `ProjectView`: listed by git as the scanner lists it, read from disk."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlm_lock.model import FileEntry
from rlm_lock.sections.view import Imported

GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def git(root: Path, *words: str) -> bytes:
    """Run git in a folder, as a person who is the same on every machine."""
    person = ("-c", "user.name=someone", "-c", "user.email=someone@example.org", "-c", "protocol.file.allow=always")
    return subprocess.run(
        [*GIT, *person, *words], cwd=root, check=True, capture_output=True, stdin=subprocess.DEVNULL
    ).stdout


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files, with the folders in which they lie."""
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


class FolderView:
    """Answers what the sections ask of a scanner, without an index."""

    def __init__(
        self,
        root: Path,
        *,
        imports: Mapping[str, Sequence[Imported]] | None = None,
        most_used: Sequence[str] = (),
        secrets: Sequence[str] = (),
        is_git: bool = True,
    ) -> None:
        self.root = str(root)
        self._imports = imports or {}
        self._most_used = [name.encode() for name in most_used]
        self._secrets = {name.encode() for name in secrets}
        self._is_git = is_git
        self._unread: set[bytes] = set()
        self._entries = sorted(self._listed(), key=lambda entry: entry.path)

    def _listed(self) -> Iterator[FileEntry]:
        if not self._is_git:
            for place in Path(self.root).rglob("*"):
                if place.is_symlink() or not place.is_dir():
                    yield self._entry(os.fsencode(place.relative_to(self.root)), is_tracked=True)
            return
        for words, is_tracked in ((("-c",), True), (("-o", "--exclude-standard"), False)):
            listed = git(Path(self.root), "ls-files", "-z", *words)
            for path in dict.fromkeys(listed.split(b"\0")):
                if path:
                    yield self._entry(path, is_tracked=is_tracked)

    def _entry(self, path: bytes, *, is_tracked: bool) -> FileEntry:
        found = os.lstat(os.path.join(os.fsencode(self.root), path))
        if not stat.S_ISREG(found.st_mode) or path in self._secrets:
            self._unread.add(path)
        return FileEntry(path, found.st_size, is_tracked)

    def files(self) -> Iterator[FileEntry]:
        """Return what git lists and what it does not know."""
        return iter(self._entries)

    def read(self, path: bytes, limit: int) -> bytes | None:
        """Read a listed regular file that is no secret."""
        if path in self._unread or not any(entry.path == path for entry in self._entries):
            return None
        with open(os.path.join(os.fsencode(self.root), path), "rb") as file:
            return file.read(limit)

    def imports_of(self, path: bytes) -> Sequence[Imported]:
        """Return what the test said."""
        return self._imports.get(path.decode("utf-8", "replace"), ())

    def most_used(self, count: int, below: bytes = b"") -> Sequence[bytes]:
        """Return what the test said."""
        return [path for path in self._most_used if path.startswith(below)][:count]

    def last_modified(self, path: bytes) -> float | None:
        """Return the time on disk."""
        is_listed = any(entry.path == path for entry in self._entries)
        return os.lstat(os.path.join(os.fsencode(self.root), path)).st_mtime_ns / 1e9 if is_listed else None
