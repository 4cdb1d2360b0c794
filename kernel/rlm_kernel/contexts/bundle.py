"""Several files as one text: before each a line with its path, and a table of where each begins.

Left out, and counted, are binary files and what probably holds secrets.
"""

from __future__ import annotations

import json
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import PurePath
from typing import BinaryIO

from .compressed import PIECE
from .errors import SourceError

SECRET_NAMES = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.asc"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd"),
    *("credentials", "credentials.*", ".git-credentials", "secrets.*", "*.secret", ".dockercfg", "kubeconfig"),
)
"""Names of files that usually hold secrets."""
_HARMLESS_NAMES = (".env.example", ".env.sample", ".env.template", "*.pub")
_SECRET = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PACKED = re.compile(r"(?<=.)\.(gz|bz2|xz|zst)$")
_LOOKED_AT = 1 << 13  # bytes in which a NUL tells that a file is binary
_BINARY = (b"%PDF-", b"PAR1")  # ... and how those begin that may have none


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file of a bundle: its path, its first line (0-based) in the bundle, its lines, its bytes there."""

    path: str
    line: int
    lines: int
    size: int

    def to_json(self) -> str:
        """A line of the table."""
        return json.dumps(asdict(self), ensure_ascii=False)


class LeftOut(Exception):
    """A file that is not taken.  Attributes: reason, by which such files are counted."""

    def __init__(self, reason: str) -> None:
        """Args: as the attributes."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """A file to take: its path as it is to be shown, and how to read it in pieces.

    Reading may raise SourceError, and before the first piece LeftOut.
    """

    path: str
    pieces: Callable[[], Iterator[bytes]]


class Bundle:
    """Iterates over the bytes of several files as one text; afterwards `rows` and `skipped` are complete."""

    def __init__(self, entries: Iterable[Entry], skipped: Counter[str] | None = None) -> None:
        """Args: the files in order; skipped, to which what is left out is added by reason."""
        self._entries = entries
        self.rows: list[FileRow] = []
        self.skipped: Counter[str] = Counter() if skipped is None else skipped
        self._line = 0

    def __iter__(self) -> Iterator[bytes]:
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
            if b"\0" in first[:_LOOKED_AT] or first.startswith(_BINARY):
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
        """The rows as JSON lines."""
        return "".join(row.to_json() + "\n" for row in self.rows)


def is_secret_name(path: str) -> bool:
    """Whether a file of this name probably holds secrets."""
    name = _PACKED.sub("", PurePath(path).name.lower())
    return any(fnmatch(name, form) for form in SECRET_NAMES) and not any(fnmatch(name, h) for h in _HARMLESS_NAMES)


def zip_entries(file: BinaryIO) -> Iterator[Entry]:
    """The files in a zip archive, in its order; those that are encrypted raise SourceError when they are read."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError) as problem:
        raise SourceError(f"the zip archive is damaged ({problem})", "give the path of a complete one") from problem
    with archive:
        for info in archive.infolist():
            if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16):
                yield Entry(info.filename, lambda info=info: _member(archive, info))  # type: ignore[misc]


def holds(file: BinaryIO, name: str) -> bool:
    """Whether a zip archive holds a file of that name; False for a damaged one."""
    try:
        with zipfile.ZipFile(file) as archive:
            return name in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with closing(archive.open(info)) as file:
            while piece := file.read(PIECE):
                yield piece
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, NotImplementedError, EOFError) as problem:
        what = f"{info.filename} in the zip archive cannot be read ({problem})"
        raise SourceError(what, "give the path of a complete archive without a password") from problem


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
