"""The beginning of an image: variables as bytes, which a kernel writes and a kernel reads.

Nobody else looks into one. But the daemon writes images of JSON values of its own.
"""

from __future__ import annotations

import json
import pickle
import struct
from typing import Final

from rlm_ipc.messages import Json, JsonObject

__all__ = ["LENGTH", "MAGIC", "of_json", "with_header"]

MAGIC: Final = b"rlmvars3"
LENGTH: Final = struct.Struct("<Q")
"""The length of the header, which follows the magic number."""


def with_header(header: JsonObject) -> bytes:
    """The beginning of an image: the magic number, and the header with its length."""
    text = json.dumps(header).encode()
    return MAGIC + LENGTH.pack(len(text)) + text


def of_json(values: dict[str, Json]) -> bytes:
    """An image of variables that hold JSON."""
    written = pickle.dumps(values, 5) + pickle.dumps(None, 5)
    tables = {"texts": [], "functions": [], "classes": [], "cells": 0}
    return with_header({"tables": tables, "values": len(written), "buffers": []}) + written
