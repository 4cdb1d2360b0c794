"""One file among several: its text, what it unpacks to, the text of a document, or the beginning of a table.

What cannot be taken costs its own place only: `LeftOut` says why, and who makes one text of all of them counts it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO

from rlm_kernel.confined.reading import Part, parts, preview

from .bundle import Entry, LeftOut, holds, zip_entries
from .compressed import PIECE, compression_of, unpacked
from .errors import HelperDied, HelperTimeout, MissingExtra, SourceError, StoreError
from .folder import is_below
from .progress import stopped
from .store import opened

MOST_TEXT = 1 << 30
"""Bytes of text of a document where nobody says less."""
PARQUET = b"PAR1"
"""How a Parquet file begins."""
START = 8
"""Bytes by which compression and binary formats are recognised."""
_PDF = b"%PDF-"
_SECONDS = 600.0  # for all documents and tables of a load: each takes a process of its own
_UNPACKED = 1 << 30  # bytes of all that nobody has named and has to be unpacked: no more of a bomb
_ROWS = 5  # of a table
_ABOUT_TABLE = b"(the beginning of a table; load this file by itself to query it or to have it as a DataFrame)\n"
_REST = b"--- the rest cannot be read ---\n"


def document_kind(fd: int, start: bytes) -> str | None:
    """pdf, docx or None; a Word file is a zip archive of a certain content."""
    if start.startswith(_PDF):
        return "pdf"
    if compression_of(start) == "zip":
        with os.fdopen(os.dup(fd), "rb") as file:
            return "docx" if holds(file, "word/document.xml") else None
    return None


class Members:
    """Reads the files of one load."""

    def __init__(self, limit: int | None, scratch: Path) -> None:
        """Args: limit, the most bytes of text that anybody wants; scratch, a folder to unpack into."""
        self._most = MOST_TEXT if limit is None else limit
        self._scratch = scratch
        self._seconds, self._unpacked = _SECONDS, _UNPACKED

    def entry(self, path: Path, top: Path, root: Path | None = None) -> Entry:
        """A file, shown relative to `top`; if it was found below `root`, it must still be there."""
        return Entry(str(path.relative_to(top)), lambda: self._pieces(path, root))

    def archive(self, file: BinaryIO) -> Iterator[Entry]:
        """The files in a zip archive, in its order."""
        for packed in zip_entries(file):
            yield Entry(packed.path, lambda packed=packed: self._member(packed))  # type: ignore[misc]

    def _pieces(self, path: Path, root: Path | None) -> Iterator[bytes]:
        with opened(path) as fd:
            if root is not None and not is_below(fd, root):
                raise SourceError(f"{path} is not below {root} any more", "load it again")
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
                        yield from pieces if root is None else self._found(pieces)

    def _found(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """What a compressed file holds that nobody has named: as far as it can be read, and while there is room."""
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

    def _member(self, packed: Entry) -> Iterator[bytes]:
        """What may be a document or a table is unpacked into a file without a name, as those that read it need one."""
        pieces = packed.pieces()
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
            told = self._told(file.fileno(), first)
            if told is None:
                raise LeftOut("compressed")
            yield from told

    def _unpack(self, pieces: Iterator[bytes], file: IO[bytes]) -> None:
        for piece in pieces:
            self._unpacked -= len(piece)
            if self._unpacked < 0:
                raise LeftOut(f"document or table after {_UNPACKED >> 20} MiB of such in an archive")
            try:
                file.write(piece)
                file.flush()
            except OSError as problem:
                raise StoreError(f"cannot unpack in {self._scratch} ({problem.strerror}); free some space") from problem

    def _told(self, fd: int, start: bytes) -> Iterator[bytes] | None:
        """What a confined process says of a document or table; None for any other file."""
        if start.startswith(PARQUET):
            return self._confined(_table(fd), "parquet without the extra 'query'")
        if kind := document_kind(fd, start):
            return self._confined(_document(fd, kind, self._most), f"{kind} without the extra 'documents'")
        return None

    def _confined(self, pieces: Iterator[bytes], missing: str) -> Iterator[bytes]:
        """What a confined process says of a file.  The time that is left is for the next ones."""
        if self._seconds <= 0:
            raise LeftOut(f"document or table after {_SECONDS:g} seconds of reading such")
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


def _document(fd: int, kind: str, most: int) -> Iterator[bytes]:
    """Its pages or sections; nothing before one that has text, as without any it is of no use."""
    held, any_text = b"", False
    with closing(parts(fd, kind, most)) as found:
        try:
            for part in found:
                held += _section(part)
                if part.text and not part.text.isspace():
                    any_text = True
                    yield held
                    held = b""
        except SourceError as problem:
            if held and not any_text:
                raise LeftOut("without text") from problem
            raise
    if held:
        yield held


def _section(part: Part) -> bytes:
    if part.text is None:
        return f"--- {part.name}: cannot be read ---\n".encode("utf-8", "replace")
    end = "\n" if part.text and not part.text.endswith("\n") else ""
    return f"--- {part.name} ---\n{part.text}{end}".encode("utf-8", "replace")


def _table(fd: int) -> Iterator[bytes]:
    yield _ABOUT_TABLE + preview(Path(f"/proc/self/fd/{fd}"), rows=_ROWS, fd=fd).text.encode("utf-8", "replace")


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
