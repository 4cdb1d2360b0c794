"""A folder of variables that are saved again and again: an image in pieces, each named by its hash, and an index.

What a save has in common with the one before it is neither asked for nor written again.

The index is replaced last, when its pieces are on the disk. A save that is cut off at any instant leaves the one before
it. `PieceFolder` believes no name and no length that it reads: each piece is compared with its hash.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlm_contexts.errors import SourceError
from rlm_contexts.store.files import pieces_of, sync, write_all
from rlm_contexts.store.opening import opened
from rlm_ipc.errors import KernelError
from rlm_ipc.variable_images import NO_IMAGE, PIECE, ROOM, hash_of
from rlm_ipc.worker_requests import Piece
from rlm_mcp.formats.snapshot import Missing, Name, SavedImage, SnapshotRefused

_INDEX = "index.json"
_MOST_INDEX_BYTES = 64 << 20

Digest = Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


class Index(BaseModel):
    """What a folder holds. ``created_at`` is in epoch seconds, and the pieces are in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format: Literal["rlm-kernel variables"] = "rlm-kernel variables"
    version: Literal[1] = 1
    created_at: float
    size: int = Field(ge=0)
    pieces: tuple[Digest, ...]
    shadowed: dict[Name, int]
    missing: tuple[Missing, ...]


class PieceFolder:
    """A folder that one writer at a time writes to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self) -> bool:
        """Whether anything has been saved."""
        return (self.folder / _INDEX).is_file()

    def image(self) -> SavedImage | None:
        """Return what was saved last, unread; None if nothing has been.

        Raises:
            SnapshotRefused: The index is damaged.
        """
        index = self._index()
        if index is None:
            return None
        return SavedImage(index.created_at, index.size, partial(self._pieces, index), index.shadowed, index.missing)

    def writer(self, pieces: Sequence[Piece]) -> PieceWriter:
        """Begin to save an image that consists of these; raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known: set[str] = set()
        with suppress(SnapshotRefused):
            if (index := self._index()) is not None:
                known = {*index.pieces} & {*os.listdir(self.folder)}
        return PieceWriter(self.folder, pieces, known)

    def tidy(self) -> None:
        """Remove what is no part of what was saved last; nobody writes or reads meanwhile."""
        index = self._index()
        kept = {_INDEX, *(index.pieces if index is not None else ())}
        for left in {*os.listdir(self.folder)} - kept:
            with suppress(OSError):
                (self.folder / left).unlink()

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        # The index first: without it nobody takes what is left for what was saved.
        (self.folder / _INDEX).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _index(self) -> Index | None:
        path = self.folder / _INDEX
        if not path.exists():
            return None
        try:
            with opened(path) as descriptor:
                if os.fstat(descriptor).st_size > _MOST_INDEX_BYTES:
                    raise SnapshotRefused(path, "it is too large")
                return Index.model_validate_json(b"".join(pieces_of(descriptor)))
        except SourceError as error:
            raise SnapshotRefused(path, error.what) from error
        except ValidationError as error:
            raise SnapshotRefused(path, "it is damaged") from error

    def _pieces(self, index: Index) -> Iterator[bytes]:
        left = index.size
        for digest in index.pieces:
            try:
                with opened(self.folder / digest) as descriptor:
                    data = os.read(descriptor, PIECE + 1)
            except (SourceError, OSError) as error:
                raise SnapshotRefused(self.folder, f"a part of it cannot be read ({error})") from error
            left -= len(data)
            if left < 0 or hash_of(data) != digest:
                raise SnapshotRefused(self.folder, "a part of it is damaged")
            yield data
        if left:
            raise SnapshotRefused(self.folder, "a part of it is missing")


class PieceWriter:
    """Writes one image. What it has written counts when `finish` returns, and not before."""

    def __init__(self, folder: Path, pieces: Sequence[Piece], known: Collection[str]) -> None:
        """``known`` are pieces that are on the disk for certain."""
        self._folder = folder
        self._pieces = pieces
        self._new = {piece.digest for piece in pieces} - {*known}

    def wanted(self) -> list[tuple[int, list[Piece]]]:
        """List what has to be added: pieces that follow each other, with where in the image the first begins."""
        runs: list[tuple[int, list[Piece]]] = []
        at = end = room = 0
        listed = set[str]()
        for piece in self._pieces:
            if piece.digest in self._new and piece.digest not in listed:
                if not runs or end != at or room + piece.size > ROOM:
                    runs.append((at, []))
                    room = 0
                runs[-1][1].append(piece)
                listed.add(piece.digest)
                end, room = at + piece.size, room + piece.size
            at += piece.size
        return runs

    def add(self, pieces: Sequence[Piece], data: bytes) -> None:
        """Write pieces that follow each other.

        Raises:
            KernelError: These are not their bytes.
            OSError: They cannot be written.
        """
        at = 0
        for piece in pieces:
            part = memoryview(data)[at : at + piece.size]
            if hash_of(part) != piece.digest:
                raise KernelError(NO_IMAGE)
            _write(self._folder / piece.digest, part)
            at += piece.size

    def finish(self, created_at: float, shadowed: dict[str, int], missing: Sequence[Missing]) -> None:
        """Put the image in the place of the one before it, durably; all that is wanted has been added.

        What only the one before had is there until `PieceFolder.tidy`. Raises OSError.
        """
        for name in self._new:
            sync(self._folder / name)
        sync(self._folder)
        pieces = tuple(piece.digest for piece in self._pieces)
        size = sum(piece.size for piece in self._pieces)
        index = Index(created_at=created_at, size=size, pieces=pieces, shadowed=shadowed, missing=tuple(missing))
        draft = self._folder / f"{_INDEX}.draft"
        _write(draft, index.model_dump_json().encode())
        sync(draft)
        draft.replace(self._folder / _INDEX)
        sync(self._folder)


def _write(path: Path, data: bytes | memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
