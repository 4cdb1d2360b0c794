"""Pictures that cells show, on their way to agents, to the page and into exports: PNG only, taken apart and made anew.

A picture comes from a kernel. It goes to a language model's provider, who refuses the whole conversation when it is
broken, into browsers, and lives in the client, who has to unpack it. So nothing is passed on but what was read: a
header of sane size, pixels that are as many as the header says, and none of the texts that a PNG can carry.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Iterator

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject

PNG = "image/png"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_KEPT = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"))
"""Chunks that make the picture; all others are left out, texts among them."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_LONGEST_SIDE = 8000
_MOST_PIXELS = 16_000_000
_PIECE = 1 << 16


class BadPicture(ValueError):
    """A display of a cell cannot be passed on as a picture; the message says why."""


@dataclass(frozen=True)
class ShownPicture:
    """A picture as a cell has shown it: base64, or why it was not kept."""

    data: str = ""
    problem: str = ""


def pictures_in(displays: Iterable[JsonObject], limit: int) -> list[ShownPicture]:
    """Return the pictures of a cell; what is over ``limit`` bytes, all taken together, is not kept."""
    found = []
    for bundle in displays:
        if not (kinds := sorted(kind for kind in bundle if kind.startswith("image/"))):
            continue
        data = bundle.get(PNG)
        if not isinstance(data, str):
            found.append(ShownPicture(problem=f"only PNG is passed on, and this is {', '.join(kinds)[:80]}"))
            continue
        size = len(data) * 3 // 4
        limit -= size
        over = f"{size:,} bytes are over what the policy permits (limits.image_bytes); lower its dpi or its size"
        found.append(ShownPicture(data) if limit >= 0 else ShownPicture(problem=over))
    return found


def checked_png(picture: ShownPicture) -> tuple[bytes, int, int]:
    """Return a picture's bytes, made anew, and its width and height; raises BadPicture."""
    if picture.problem:
        raise BadPicture(picture.problem)
    try:
        data = base64.b64decode("".join(picture.data.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadPicture("its data is not base64") from error
    chunks = [chunk for chunk in _chunks(data) if chunk[0] in _KEPT]
    kinds = [kind for kind, _ in chunks]
    if kinds[:1] != [b"IHDR"] or kinds[-1:] != [b"IEND"] or kinds.count(b"IHDR") != 1:
        raise BadPicture("it is a damaged PNG: its beginning or its end is missing")
    width, height, row = _header(chunks[0][1])
    _unpack((content for kind, content in chunks if kind == b"IDAT"), (row + 1) * height)
    return _SIGNATURE + b"".join(_chunk(*chunk) for chunk in chunks), width, height


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(_SIGNATURE):
        raise BadPicture("it is not a PNG")
    at, kind = len(_SIGNATURE), b""
    while kind != b"IEND":
        head = data[at : at + 8]
        if len(head) < 8:
            raise BadPicture("it is a damaged PNG: it breaks off")
        (length, kind), end = struct.unpack(">I4s", head), at + 8
        content, check = data[end : end + length], data[end + length : end + length + 4]
        if len(check) < 4 or struct.unpack(">I", check)[0] != zlib.crc32(kind + content):
            raise BadPicture("it is a damaged PNG: a checksum is wrong")
        yield kind, content
        at = end + length + 4


def _header(content: bytes) -> tuple[int, int, int]:
    """Return width, height and the bytes of a row."""
    if len(content) != 13:
        raise BadPicture("it is a damaged PNG: its header has a wrong length")
    width, height, depth, colour, *methods = struct.unpack(">IIBBBBB", content)
    if depth not in _DEPTHS.get(colour, ()):
        raise BadPicture("it is a damaged PNG with an unknown kind of pixel")
    if methods != [0, 0, 0]:
        raise BadPicture("it is interlaced or packed in an unknown way; save it without interlacing")
    if not (0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE and width * height <= _MOST_PIXELS):
        raise BadPicture(f"{width} by {height} pixels are too many; make it smaller")
    return width, height, (width * depth * _CHANNELS[colour] + 7) // 8


def _unpack(pieces: Iterable[bytes], expected: int) -> None:
    """Make sure that the pixels are there and no more than those, without holding them."""
    unpacker, size = zlib.decompressobj(), 0
    try:
        for piece in pieces:
            rest = piece
            while rest and not unpacker.eof and size <= expected:
                size += len(unpacker.decompress(rest, _PIECE))
                rest = unpacker.unconsumed_tail
        while size <= expected and (more := unpacker.decompress(unpacker.unconsumed_tail, _PIECE)):
            size += len(more)
    except zlib.error as error:
        raise BadPicture("it is a damaged PNG: its pixels cannot be unpacked") from error
    if size != expected or not unpacker.eof:
        raise BadPicture("it is a damaged PNG: its pixels do not match its header")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
