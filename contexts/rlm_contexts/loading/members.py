"""One file among several: its text, its unpacked contents, the text of a document, or the beginning of a table.

A file that cannot be read costs only itself: `LeftOut` says why, and the bundle counts it.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO

from rlm_contexts.bundle import Entry, LeftOut
from rlm_contexts.compressed import PIECE, compression_of, unpacked
from rlm_contexts.errors import HelperDied, HelperTimeout, MissingExtra, SourceError, StoreError
from rlm_contexts.helpers.protocol import DocumentPart
from rlm_contexts.helpers.requests import Packed, packed, parts, preview
from rlm_contexts.loading.places import Place
from rlm_contexts.progress import stopped

MOST_TEXT = 1 << 30
"""Default maximum bytes of text of a document."""
PARQUET = b"PAR1"
"""How a Parquet file begins."""
START = 8
"""Bytes by which compression and binary formats are recognised."""
_PDF = b"%PDF-"
_MOST_MEMBERS = 100_000  # files in an archive
_END = struct.Struct("<12x2L2x")  # of a zip archive: how long its directory is, and where
_LONGEST_END = _END.size + (1 << 16)
_LISTED_FILE = struct.Struct("<28x3H12x")  # in that directory: how long name, extra field and comment are
_LISTED = 1 << 20  # bytes of the directory that are read
_SECONDS = 600.0  # for all documents and tables of a load: each takes a process of its own
_UNPACKED = 1 << 30  # bytes of all unnamed files that have to be unpacked: no more of a bomb
_ROWS = 5  # of a table
_ABOUT_TABLE = b"(the beginning of a table; load this file by itself to query it or to have it as a DataFrame)\n"
_REST = b"--- the rest cannot be read ---\n"


def document_kind(fd: int, start: bytes) -> str | None:
    """Return pdf, docx or None; a Word file is a zip archive with a certain content."""
    if start.startswith(_PDF):
        return "pdf"
    return "docx" if compression_of(start) == "zip" and _lists(fd, b"word/document.xml") else None


def _lists(fd: int, name: bytes) -> bool:
    """Return whether a zip archive lists such a file among the first: a Word file is not an archive of thousands."""
    size = os.fstat(fd).st_size
    tail = os.pread(fd, _LONGEST_END, max(0, size - _LONGEST_END))
    end = tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) - end < _END.size:
        return False
    length, offset = _END.unpack_from(tail, end)
    listed, at = os.pread(fd, min(length, _LISTED), offset), 0
    while at + _LISTED_FILE.size <= len(listed) and listed.startswith(b"PK\1\2", at):
        name_length, *others = _LISTED_FILE.unpack_from(listed, at)
        at += _LISTED_FILE.size
        if listed[at : at + name_length] == name:
            return True
        at += name_length + sum(others)
    return False


class Members:
    """Reads the files of one load."""

    def __init__(self, limit: int | None, scratch: Path) -> None:
        """Args: limit, the maximum bytes of text that anyone wants; scratch, a folder to unpack into."""
        self._most = MOST_TEXT if limit is None else limit
        self._scratch = scratch
        self._seconds, self._unpacked = _SECONDS, _UNPACKED

    def entry(self, shown: str, opened: Callable[[], AbstractContextManager[Place]], *, named: bool) -> Entry:
        """Return an entry that is opened when it is read; ``named``: by someone, not only found in a folder."""
        return Entry(shown, lambda: self._pieces(shown, opened, named))

    def archive(self, fd: int) -> Iterator[Entry]:
        """Yield the files in a zip archive, in order; each must be read before the next one is requested."""
        with closing(packed(fd, self._most, self._unpacked, _MOST_MEMBERS)) as found:
            for first in found:
                pieces = _pieces_of(first, found)
                yield Entry(first.name, partial(self._member, pieces))
                with suppress(SourceError):
                    deque(pieces, 0)  # the rest, which nobody wanted

    def _pieces(self, shown: str, opened: Callable[[], AbstractContextManager[Place]], named: bool) -> Iterator[bytes]:
        with opened() as place, place.read() as fd:
            start = os.pread(fd, START, 0)
            packed = compression_of(start)
            if told := self._told(fd, start):
                yield from told
            elif packed == "zip":
                raise LeftOut("compressed")
            else:
                with os.fdopen(os.dup(fd), "rb", buffering=0) as file:
                    if packed is None:
                        yield from _read(file)
                    else:
                        pieces = unpacked(file, packed)
                        yield from _named(shown, pieces) if named else self._found(pieces)

    def _found(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the contents of a compressed file that nobody named, as far as it is readable and there is room."""
        if self._unpacked <= 0:
            raise LeftOut("compressed")
        end = b""
        try:
            for piece in pieces:
                if self._unpacked <= 0:
                    break
                yield piece
                end = piece[-1:]
                self._unpacked -= len(piece)
            else:
                return
        except MissingExtra as problem:
            raise LeftOut("compressed") from problem
        except SourceError:
            if not end:
                raise
        yield _REST if end == b"\n" else b"\n" + _REST

    def _member(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Unpack a possible document or table into a file without a name, because its readers need one."""
        first = next(pieces, b"")
        kind = compression_of(first)
        if not first.startswith((PARQUET, _PDF)) and kind != "zip":
            if kind:
                raise LeftOut("compressed")
            yield first
            yield from pieces
            return
        with tempfile.TemporaryFile(dir=self._scratch) as file:
            self._unpack(chain([first], pieces), file)
            extracted = self._told(file.fileno(), first)
            if extracted is None:
                raise LeftOut("compressed")
            yield from extracted

    def _unpack(self, pieces: Iterator[bytes], file: IO[bytes]) -> None:
        for piece in pieces:
            self._unpacked -= len(piece)
            if self._unpacked < 0:
                raise LeftOut(f"document or table beyond {_UNPACKED >> 20} MiB of them in an archive")
            try:
                file.write(piece)
                file.flush()
            except OSError as problem:
                raise StoreError(f"cannot unpack in {self._scratch} ({problem.strerror}); free some space") from problem

    def _told(self, fd: int, start: bytes) -> Iterator[bytes] | None:
        """Return what a helper process reports about a document or table; None for any other file."""
        if start.startswith(PARQUET):
            return self._confined(_table(fd), "parquet without the extra 'query'")
        if kind := document_kind(fd, start):
            return self._confined(_document(fd, kind, self._most), f"{kind} without the extra 'documents'")
        return None

    def _confined(self, pieces: Iterator[bytes], missing: str) -> Iterator[bytes]:
        """Yield what a helper process reports about a file.  The remaining time is for the next ones."""
        if self._seconds <= 0:
            raise LeftOut(f"document or table after {_SECONDS:g} seconds of reading them")
        began, any_yet = time.monotonic(), False
        try:
            for piece in pieces:
                yield piece
                any_yet = True
        except MissingExtra as problem:
            raise LeftOut(missing) from problem
        except (SourceError, HelperDied, HelperTimeout) as problem:
            if stopped():
                raise
            if not any_yet:
                raise LeftOut("unreadable") from problem
            yield _REST
        finally:
            self._seconds -= time.monotonic() - began


def _named(shown: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the contents of a compressed file that someone has named; an error says which of several files it is."""
    try:
        yield from pieces
    except SourceError as problem:
        raise SourceError(f"{shown}: {problem.what}", problem.hint) from problem


def _pieces_of(first: Packed, rest: Iterator[Packed]) -> Iterator[bytes]:
    """Yield the bytes of one file in an archive."""
    piece: Packed | None = first
    while piece is not None:
        if piece.data is None:
            what = f"{piece.name} in the zip archive cannot be read"
            raise SourceError(what, "give the path of a complete archive without a password")
        if piece.data:
            yield piece.data
        piece = next(rest, None) if piece.more else None


def _document(fd: int, kind: str, most: int) -> Iterator[bytes]:
    """Yield its pages or sections; nothing before one that has text, because without any it is of no use."""
    pending, any_text = b"", False
    with closing(parts(fd, kind, most)) as document_parts:
        try:
            for part in document_parts:
                pending += _section(part)
                if part.text and not part.text.isspace():
                    any_text = True
                    yield pending
                    pending = b""
        except SourceError as problem:
            if pending and not any_text:
                raise LeftOut("without text") from problem
            raise
    if pending:
        yield pending


def _section(part: DocumentPart) -> bytes:
    if part.text is None:
        return f"--- {part.name}: cannot be read ---\n".encode("utf-8", "replace")
    end = "\n" if part.text and not part.text.endswith("\n") else ""
    return f"--- {part.name} ---\n{part.text}{end}".encode("utf-8", "replace")


def _table(fd: int) -> Iterator[bytes]:
    yield _ABOUT_TABLE + preview(Path(f"/proc/self/fd/{fd}"), rows=_ROWS, fd=fd).text.encode("utf-8", "replace")


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
