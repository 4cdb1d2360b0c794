"""An image: variables as one sequence of bytes. A header in JSON, the pickle of the values, and separate buffers."""

from __future__ import annotations

import fcntl
import json
import mmap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rlm_ipc.errors import ProtocolError
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import plain, read
from rlm_ipc.variable_images import LENGTH, LONG, MAGIC, PIECE, hash_of, with_header
from rlm_ipc.worker_requests import Piece
from rlm_kernel.worker.snapshots.common import Unkept
from rlm_kernel.worker.snapshots.records import Header, Tables
from rlm_sandbox.language_wall.audit_hook import trusted

MOST_HEADER_BYTES: Final = 256 << 20
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK


@dataclass(frozen=True, slots=True)
class Image:
    """Tables, the pickle in pieces, and buffers. Long pieces and buffers belong to the variables and are not copied."""

    tables: Tables
    values: Sequence[bytes | bytearray | memoryview]
    buffers: Sequence[Any] = ()

    def parts(self) -> list[memoryview]:
        """Return the bytes of the image in order."""
        views = [memoryview(buffer).cast("B") for buffer in self.buffers]
        header = Header(self.tables, sum(map(len, self.values)), tuple(len(view) for view in views))
        return [memoryview(with_header(plain(header))), *(memoryview(piece) for piece in self.values), *views]


def parted(parts: Sequence[memoryview]) -> list[memoryview]:
    """Return the same bytes, none of them in an object that may change."""
    return [part if type(part.obj) is bytes else memoryview(bytes(part)) for part in parts]


def slice_of(parts: Sequence[memoryview], start: int, count: int) -> bytes:
    """Return ``count`` bytes of the whole, from ``start`` on."""
    return b"".join(_slices(parts, start, start + count))


def _slices(parts: Sequence[memoryview], start: int, end: int) -> Iterator[memoryview]:
    at = 0
    for part in parts:
        if at < end and at + len(part) > start:
            yield part[max(0, start - at) : end - at]
        at += len(part)


def pieces_of(parts: Sequence[memoryview]) -> tuple[Piece, ...]:
    """Return the pieces of the whole. A long part has pieces of its own, which do not depend on where it begins."""
    pieces: list[Piece] = []
    open_, size = list[memoryview](), 0

    def close() -> None:
        nonlocal size
        if size:
            pieces.append(Piece(size, hash_of(*open_)))
            open_.clear()
            size = 0

    for part in parts:
        if len(part) >= LONG:
            close()
        at = 0
        while at < len(part):
            chunk = part[at : at + PIECE - size]
            open_.append(chunk)
            size += len(chunk)
            at += len(chunk)
            if size == PIECE:
                close()
        if len(part) >= LONG:
            close()
    close()
    return tuple(pieces)


def digest_of(pieces: Sequence[Piece]) -> str:
    """Return a hash of the whole."""
    return hash_of(*(piece.digest.encode() for piece in pieces))


def read_images(descriptor: int, sizes: Sequence[int]) -> list[Image | Unkept]:
    """Return the images in a file, one after the other; in place of an invalid one, the reason."""
    if not sum(sizes):
        return []
    images: list[Image | Unkept] = []
    view = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
    if not _is_sealed(descriptor):
        view = memoryview(bytes(view))
    at = 0
    for size in sizes:
        try:
            images.append(read_image(view[at : at + size]))
        except Unkept as error:
            images.append(error)
        at += size
    return images


@trusted  # no code of a session calls it, and it asks about one descriptor
def _is_sealed(descriptor: int) -> bool:
    """Return whether nobody can change the file any more, so that what was checked in it is what is read."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False


def read_image(data: memoryview) -> Image:
    """Return the image in these bytes; raises Unkept if they are not one. Every length is checked before it is used."""
    reader = _Reader(data)
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        raise Unkept("these are not the variables of a snapshot, or of another version")
    (length,) = LENGTH.unpack(reader.take(LENGTH.size))
    if length > MOST_HEADER_BYTES:
        raise Unkept("the header of the snapshot is too large")
    try:
        header = read(Header, json.loads(bytes(reader.take(length))))
    except (ProtocolError, ValueError, RecursionError) as error:
        raise Unkept(f"the header of the snapshot is damaged: {error}") from None
    sizes = (header.values, *header.buffers)
    if min(sizes) < 0 or sum(sizes) != reader.left:
        raise Unkept("the sizes in the snapshot do not add up")
    values = reader.take(header.values)
    # A bytearray: the user of a buffer may write to it, and it must not be the session's file.
    return Image(header.tables, [values], [bytearray(reader.take(count)) for count in header.buffers])


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= self.left:
            raise Unkept("the snapshot is cut off")
        self._at += count
        return self._data[self._at - count : self._at]
