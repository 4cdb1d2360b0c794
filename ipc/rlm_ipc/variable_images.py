"""Images: variables as bytes, which a kernel writes and a kernel reads.

Nobody else looks into one. But the daemon writes images of JSON values of its own.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Sequence
from typing import Final

from rlm_ipc.errors import KernelError
from rlm_ipc.messages import Json, JsonObject
from rlm_ipc.worker_requests import HandedOut

__all__ = ["LENGTH", "MAGIC", "NO_IMAGE", "ROOM", "ArrivingImage", "of_json", "with_header"]

MAGIC: Final = b"rlmvars3"
LENGTH: Final = struct.Struct("<Q")
"""The length of the header, which follows the magic number."""
ROOM: Final = 4 << 20
"""Bytes that a kernel hands out at once. Several processes have copies of them on the way."""
NO_IMAGE: Final = "the kernel did not answer with an image of its variables"
_WITHIN = 2
"""An image has at most so many times the bytes that the session may use."""


class ArrivingImage:
    """Takes the pieces of an image from a kernel that may use ``memory_bytes``; what it says may be untrue."""

    def __init__(self, memory_bytes: int) -> None:
        self._most = memory_bytes * _WITHIN
        self.at = 0
        """How many bytes have come."""
        self.told: HandedOut | None = None
        """What the kernel said with the first piece."""

    @property
    def whole(self) -> bool:
        """Whether all of it has come."""
        return self.told is not None and self.at >= self.told.size

    def take(self, told: HandedOut, blobs: Sequence[bytes]) -> tuple[HandedOut, bytes]:
        """Take the next piece; returns it with what was said first. Raises KernelError."""
        first = self.told = self.told or told
        data = blobs[0] if len(blobs) == 1 else b""
        self.at += len(data)
        if not data or self.at > first.size or told.size != first.size:
            raise KernelError(NO_IMAGE)
        if first.size > self._most:
            raise KernelError(f"the kernel says that its variables have {first.size:,} bytes, more than it may use")
        return first, data


def with_header(header: JsonObject) -> bytes:
    """The beginning of an image: the magic number, and the header with its length."""
    text = json.dumps(header).encode()
    return MAGIC + LENGTH.pack(len(text)) + text


def of_json(values: dict[str, Json]) -> bytes:
    """An image of variables that hold JSON."""
    written = pickle.dumps(values, 5) + pickle.dumps(None, 5)
    tables = {"texts": [], "functions": [], "classes": [], "cells": 0}
    return with_header({"tables": tables, "values": len(written), "buffers": []}) + written
