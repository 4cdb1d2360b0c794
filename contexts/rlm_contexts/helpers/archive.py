"""The job `archive`: the files in a zip archive, in order, each in pieces."""

from __future__ import annotations

import base64
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import BinaryIO

from rlm_contexts.bundle import LOOKED_AT, is_binary, is_secret_name
from rlm_contexts.compressed import PIECE, compression_of
from rlm_contexts.helpers.protocol import FaultKind, JobFault, JobSpec, UnpackArchive, UnpackedPiece, UnpackedPieces

Say = Callable[[UnpackedPieces], None]

_TOGETHER = 1000
_TOGETHER_BYTES = 1 << 20


def run(spec: JobSpec, request: UnpackArchive, say: Say) -> None:
    """Write the pieces of each file; of a file that nobody wants, only the beginning. ``spec`` has the open file."""
    with os.fdopen(spec.open_file, "rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except MemoryError:
            raise
        except Exception as problem:  # what a parser raises on a hostile file is not documented
            what = f"the zip archive is damaged ({problem})"[:300]
            raise JobFault(FaultKind.SOURCE, what, "give the path of a complete one") from problem
        with archive:
            members = [info for info in archive.infolist() if not info.is_dir() and not _is_link(info)]
            if len(members) > request.members:
                what = f"the zip archive holds more than {request.members:,} files"
                raise JobFault(FaultKind.SOURCE, what, "unpack it, and load a part")
            _say_together(_Members(archive, request.unpacked).pieces(members), say)


def _is_link(info: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(info.external_attr >> 16)


class _Members:
    def __init__(self, archive: zipfile.ZipFile, unpacked: int) -> None:
        self._archive, self._left = archive, unpacked

    def pieces(self, wanted: list[zipfile.ZipInfo]) -> Iterator[tuple[str, bytes | None, bool]]:
        for info in wanted:
            if is_secret_name(info.filename):
                yield info.filename, b"", False
                continue
            try:
                last = b""
                with closing(self._archive.open(info)) as file:
                    for piece in self._of(file):  # type: ignore[arg-type]
                        if last:
                            yield info.filename, last, True
                        last = piece
                yield info.filename, last, False
            except MemoryError:
                raise
            except Exception:  # one bad file does not cost the others
                yield info.filename, None, False

    def _of(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the wanted part of a file."""
        first = file.read(PIECE)
        kind = compression_of(first)
        is_document = kind == "zip" or first.startswith((b"%PDF-", b"PAR1"))
        if not is_document and (kind or is_binary(first)):
            yield first[:LOOKED_AT]
            return
        piece = first
        while piece:
            yield piece
            if is_document:
                self._left -= len(piece)
                if self._left < 0:  # the caller has counted too
                    return
            piece = file.read(PIECE)


def _say_together(pieces: Iterator[tuple[str, bytes | None, bool]], say: Say) -> None:
    """Write many small pieces in one message."""
    said: list[UnpackedPiece] = []
    size = 0
    for name, data, more in pieces:
        plain = data is None or data.isascii()
        text = None if data is None else data.decode("ascii") if plain else base64.b64encode(data).decode("ascii")
        said.append(UnpackedPiece(name, text, not plain, more))
        size += len(data or b"")
        if len(said) >= _TOGETHER or size >= _TOGETHER_BYTES:
            say(UnpackedPieces(tuple(said)))
            said, size = [], 0
    if said:
        say(UnpackedPieces(tuple(said)))
