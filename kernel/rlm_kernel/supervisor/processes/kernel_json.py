"""JSON from a kernel, within bounds."""

from __future__ import annotations

from typing import Any

from rlm_ipc.json_parts import json_in
from rlm_ipc.json_size import has_too_many_values

LARGEST_JSON = 32 << 20
"""Maximum bytes of JSON from a kernel. Parsed values take some twenty times the memory of their JSON."""


def parse(data: bytes) -> Any:
    """Parse JSON from a kernel; raises ValueError and RecursionError, also for more than fits into memory."""
    # Checked on the bytes: `[[],[],…]` takes twenty times its length as Python objects, before any limit could see it.
    if len(data) > LARGEST_JSON or has_too_many_values(data):
        raise ValueError(f"{len(data):,} bytes of JSON are too much")
    return json_in(data)
