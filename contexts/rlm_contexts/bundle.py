"""Several files as one text: a line with its path before each, and a table of where each begins.

Binary files and files that probably hold secrets are left out and counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate

from rlm_contexts.errors import SourceError
from rlm_ipc.late_dataclasses import dataclass

SECRET_NAMES = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.asc"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd"),
    *("credentials", "credentials.*", ".git-credentials", "secrets.*", "*.secret", ".dockercfg", "kubeconfig"),
)
"""Names of files that usually hold secrets."""
_HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", "*.pub")
_SECRET_NAME = re.compile("|".join(map(translate, SECRET_NAMES)))
_HARMLESS_NAME = re.compile("|".join(map(translate, _HARMLESS_NAMES)))
_SECRET = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PACKED = re.compile(r"(?<=.)\.(gz|bz2|xz|zst)$")
LOOKED_AT = 1 << 13
"""Bytes in which a NUL marks a file as binary."""
_WORTHWHILE = 1 << 16  # bytes
_BINARY = (b"%PDF-", b"PAR1")  # the beginnings of binary formats that may lack a NUL


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file of a bundle: its path, its first line (0-based) in the bundle, its lines, its bytes there."""

    path: str
    line: int
    lines: int
    size: int

    def to_json(self) -> str:
        """Return a line of the table."""
        row = {"path": self.path, "line": self.line, "lines": self.lines, "size": self.size}
        return json.dumps(row, ensure_ascii=False)


class LeftOut(Exception):
    """A file that is left out.  Attributes: reason, by which such files are counted."""

    def __init__(self, reason: str) -> None:
        """Args: as the attributes."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """A file to include: its path as shown, and how to read it in pieces.

    Reading may raise SourceError, and before the first piece LeftOut.
    """

    path: str
    pieces: Callable[[], Iterator[bytes]]


class Bundle:
    """Iterates over the bytes of several files as one text; afterwards `rows` and `skipped` are complete."""

    def __init__(self, entries: Iterable[Entry], skipped: Counter[str] | None = None) -> None:
        """Args: the files in order; skipped, the counter of left-out files by reason."""
        self._entries = entries
        self.rows: list[FileRow] = []
        self.skipped: Counter[str] = Counter() if skipped is None else skipped
        self._line = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield pieces that are worth their cost, however small the files are."""
        together: list[bytes] = []
        size = 0
        for piece in self._pieces():
            together.append(piece)
            size += len(piece)
            if size >= _WORTHWHILE:
                yield b"".join(together)
                together, size = [], 0
        yield b"".join(together)

    def _pieces(self) -> Iterator[bytes]:
        for entry in self._entries:
            if is_secret_name(entry.path):
                self.skipped["secret"] += 1
                continue
            try:
                pieces = entry.pieces()
                first = next(pieces, b"")
            except LeftOut as left:
                self.skipped[left.reason] += 1
                continue
            except SourceError:
                self.skipped["unreadable"] += 1
                continue
            if is_binary(first):
                self.skipped["binary"] += 1
            elif _SECRET.search(first):
                self.skipped["secret"] += 1
            else:
                yield from self._file(entry.path, first, pieces)

    def _file(self, path: str, first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
        shown = path.replace("\n", "\\n").encode("utf-8", "replace")
        yield b"==> " + shown + b" <==\n"
        start, lines, size, last = self._line + 1, 0, 0, b"\n"
        for piece in _chained(first, rest):
            lines += piece.count(b"\n")
            size += len(piece)
            last = piece[-1:]
            yield piece
        if last != b"\n":
            lines += 1
            yield b"\n"
        self._line = start + lines
        self.rows.append(FileRow(shown.decode(), start, lines, size))

    def table(self) -> str:
        """Return the rows as JSON lines."""
        return "".join(row.to_json() + "\n" for row in self.rows)


def is_secret_name(path: str) -> bool:
    """Whether a file of this name probably holds secrets."""
    name = _PACKED.sub("", path.rstrip("/").rpartition("/")[2].lower())
    return _SECRET_NAME.match(name) is not None and _HARMLESS_NAME.match(name) is None


def is_binary(start: bytes) -> bool:
    """Whether a file that begins like this is binary."""
    return b"\0" in start[:LOOKED_AT] or start.startswith(_BINARY)


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
