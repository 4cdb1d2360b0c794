"""Which paths a session may open, and the ``open`` that it gets."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any, Final

from rlm_sandbox.errors import CellError
from rlm_sandbox.language_wall import _core

_WRITING: Final = frozenset("wax+")


class PathRefused(CellError, PermissionError):
    """A path outside the policy's folders."""

    rule = "files"


class FileAccess:
    """The folders of a policy, symbolic links followed."""

    def __init__(self, read: Iterable[str], write: Iterable[str]) -> None:
        self.write = tuple(dict.fromkeys(map(os.path.realpath, write)))
        self.read = tuple(dict.fromkeys((*map(os.path.realpath, read), *self.write)))

    def allows(self, path: str, *, writing: bool) -> bool:
        """Return whether a path, after following its links, is in one of the folders, or a place that keeps nothing."""
        if path == os.devnull:
            return True
        real = os.path.realpath(path)
        return any(is_within(real, root) for root in (self.write if writing else self.read))

    def refusal(self, path: str, *, writing: bool) -> PathRefused:
        """Return the error for a path that is not allowed."""
        folders = ", ".join(self.write if writing else self.read) or "none"
        kind = "writable" if writing else "readable"
        way = "load the text as a context or ask for a wider policy"
        if writing:
            way = self._copying(path) or "write below one of them"
        field = "files.write" if writing else "files.read"
        told = f"outside the {kind} folders of this session (policy field {field}: {folders}): {way}"
        return PathRefused(errno.EACCES, told, path)

    def _copying(self, path: str) -> str:
        """How to write to a file that can only be read, also one that sqlite3 names by an address; empty for others."""
        file = path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path
        if not (self.write and self.allows(file, writing=False) and os.path.isfile(file)):
            return ""
        way = "this file can only be read: to change it, or to open it as a database, use a copy of it"
        return f"{way}, shutil.copy({file!r}, {self.write[0]!r})"

    def refusal_of(self, path: str, writing: bool) -> PathRefused:
        """Return `refusal`, with the audit hook's arguments."""
        return self.refusal(path, writing=writing)

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """Act as ``open`` within the folders. The caller's own descriptors and openers would bypass them."""
        if isinstance(file, int) or opener is not None or not closefd:
            raise PathRefused(errno.EACCES, "file descriptors are not available in this session: open a path")
        mode = str.__str__(mode)
        path = _core.overlay_path(exact_path(file), mode)
        if not self.allows(path, writing=not _WRITING.isdisjoint(mode)):
            raise self.refusal(path, writing=not _WRITING.isdisjoint(mode))
        return open(path, mode, buffering, encoding, errors, newline)


def is_within(path: str, root: str) -> bool:
    """Return whether a real path is a real root or is below it."""
    return path == root or path.startswith(root if root.endswith("/") else f"{root}/")


def exact_path(file: Any) -> str:
    """Return the text of a path. A subclass of str could name one file when checked and another when opened."""
    path = os.fspath(file)
    if isinstance(path, str):
        return str.__str__(path)
    return bytes.decode(bytes(memoryview(path)), "utf-8", "surrogateescape")
