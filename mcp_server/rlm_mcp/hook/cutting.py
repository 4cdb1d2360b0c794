"""Cut the long texts of an event, such as file contents and program output, and keep both ends."""

from __future__ import annotations

import json
from typing import Any

_KEPT = 16_000
"""How many characters are kept at each end of a long text."""


def cut(given: bytes | bytearray, largest: int) -> str:
    """Return the event with its long texts cut; nothing if it is too large or not JSON."""
    if len(given) > largest:
        return ""
    try:
        return json.dumps(_cut(json.loads(given)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 2 * _KEPT else f"{value[:_KEPT]}\n…\n{value[-_KEPT:]}"
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    return value
