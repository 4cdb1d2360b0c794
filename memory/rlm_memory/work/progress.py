"""Work in progress: what the workers on a frame have done so far, merged so that no writer loses another's part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import RowRequestError
from rlm_memory.store import Store
from rlm_memory.tables import upsert_into
from rlm_memory.work_schema import progress as table

LARGEST = 64 * 1024
"""Bytes of one frame's work in progress as JSON."""
_MOST_ERRORS = 20
"""Number of errors kept, the latest: the others are usually repetitions."""
_KEPT = frozenset({"decisions", "errors", "files_modified"})
"""Lists to which writers append; every other list is replaced."""

_GET = "SELECT data, updated_at FROM frame_progress WHERE frame = :frame"
_PUT = upsert_into(table)


@dataclass(frozen=True, slots=True)
class Progress:
    """Work in progress, and when it was last written (epoch seconds; None: never)."""

    data: dict[str, Any] = field(default_factory=dict)
    updated_at: float | None = None


def get(store: Store, frame: int) -> Progress:
    """Return the work in progress of a frame."""
    return store.record(Progress, _GET, frame=frame) or Progress()


def update(store: Store, frame: int, data: Mapping[str, Any], *, now: float) -> Progress:
    """Merge data into the work in progress of a frame. Return the result.

    Raises:
        RowRequestError: it would be too large.
    """
    with store.transaction():
        whole = merge(get(store, frame).data, dict(data))
        whole["errors"] = whole.get("errors", [])[-_MOST_ERRORS:]
        if not whole["errors"]:
            del whole["errors"]
        text = json.dumps(whole)
        if len(text) > LARGEST:
            why = f"work in progress may hold at most {LARGEST:,} bytes, this would be {len(text):,}"
            raise RowRequestError(f"{why}; send null for a field to delete it, or put long text into a file")
        store.run(_PUT, frame=frame, data=text, updated_at=now)
    return Progress(whole, now)


def merge(old: Any, new: Any, name: str = "") -> Any:
    """Merge deeply: objects by key, lists in `_KEPT` by appending new items; null deletes a field."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = old | {key: merge(old.get(key), value, key) for key, value in new.items()}
        return {key: value for key, value in merged.items() if value is not None}
    if name in _KEPT and new is not None:
        known = old if isinstance(old, list) else [] if old is None else [old]
        more = new if isinstance(new, list) else [new]
        return known + [item for number, item in enumerate(more) if item not in known and item not in more[:number]]
    if isinstance(new, dict):
        return {key: value for key, value in new.items() if value is not None}
    return new


def resuming(frame: str, found: Progress) -> str:
    """Say in one line where the previous worker on a frame was; empty if nothing is known."""
    if not found.data:
        return ""
    said = f"Resuming {frame} from: {found.data.get('phase') or 'work in progress'}"
    return f"{said}, next: {step}" if (step := found.data.get("next_step")) else said
