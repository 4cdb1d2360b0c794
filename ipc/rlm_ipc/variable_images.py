"""Images: variables as bytes, written and read by kernels.

No other process reads one, but the daemon writes images of its own JSON values.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import struct
from collections.abc import Sequence
from typing import Final

from rlm_ipc.errors import KernelError
from rlm_ipc.messages import Json, JsonObject
from rlm_ipc.worker_requests import HandedOut, Piece

MAGIC: Final = b"rlmvars3"
LENGTH: Final = struct.Struct("<Q")
"""The length of the header, which follows the magic number."""
ROOM: Final = 4 << 20
"""Bytes that a kernel hands out at once. Several processes hold copies of them on the way."""
LONG: Final = 256 << 10
"""Size from which a value has pieces of its own, which do not depend on where it begins.

Pickles are written in less.
"""
PIECE: Final = 1 << 20
"""Maximum bytes of a piece: changing one byte in a long value changes that many."""
NO_IMAGE: Final = "the kernel did not answer with an image of its variables"
_HASH_BYTES = 20
_HASH = re.compile(rf"[0-9a-f]{{{2 * _HASH_BYTES}}}")
_WITHIN = 2
"""Limit of an image's size, as a multiple of the bytes that the session may use."""


class ArrivingImage:
    """Takes the pieces of an image from a kernel that may use ``memory_bytes``; its statements may be untrue."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self.at = 0
        """How many bytes have come."""
        self.told: HandedOut | None = None
        """What the kernel said with the first piece."""

    @property
    def whole(self) -> bool:
        """Whether all of it has arrived."""
        return self.told is not None and self.at >= self.told.size

    def take(self, told: HandedOut, blobs: Sequence[bytes]) -> tuple[HandedOut, bytes]:
        """Take the next piece. Return it with the kernel's first statement. Raises KernelError."""
        first = self.told = self.told or told
        data = blobs[0] if len(blobs) == 1 else b""
        self.at += len(data)
        if not data or self.at > first.size or told.size != first.size:
            raise KernelError(NO_IMAGE)
        refuse_too_large(first, self._memory_bytes)
        return first, data


def refuse_too_large(told: HandedOut, memory_bytes: int) -> None:
    """Raise KernelError for an image that is too large for a session with that much memory."""
    if told.size > memory_bytes * _WITHIN:
        raise KernelError(f"the kernel says that its variables have {told.size:,} bytes, more than it may use")


def pieces_in(told: HandedOut) -> tuple[Piece, ...]:
    """Return the pieces of an image; raises KernelError if they are impossible. The hashes may be untrue."""
    pieces = told.pieces
    sound = all(0 < piece.size <= PIECE and _HASH.fullmatch(piece.digest) for piece in pieces)
    # The largest possible number, if each long value is cut before and after it.
    few = len(pieces) <= 3 * (told.size // LONG) + 1
    if not (sound and few and sum(piece.size for piece in pieces) == told.size):
        raise KernelError(NO_IMAGE)
    return pieces


def hash_of(*data: bytes | memoryview) -> str:
    """Return the hash that identifies these bytes."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def with_header(header: JsonObject) -> bytes:
    """Return the beginning of an image: the magic number, and the header with its length."""
    text = json.dumps(header).encode()
    return MAGIC + LENGTH.pack(len(text)) + text


def of_json(values: dict[str, Json]) -> bytes:
    """Return an image of variables that hold JSON."""
    written = pickle.dumps(values, 5) + pickle.dumps(None, 5)
    tables = {"texts": [], "functions": [], "classes": [], "cells": 0}
    return with_header({"tables": tables, "values": len(written), "buffers": []}) + written
