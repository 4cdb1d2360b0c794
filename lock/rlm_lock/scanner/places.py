"""Where an index is stored, and how it names the contents that it covers."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rlm_lock.listing.table import FileTable
from rlm_lock.parsing.keys import parse_key


def index_folder(store: Path, root: bytes) -> Path:
    """Return the folder of a working tree's index: a store has several working trees."""
    return store / f"index-{hashlib.sha256(root).hexdigest()[:16]}"


def indexed_key(table: FileTable, row: int, *, is_parsed: bool) -> str:
    """Return the key of a file's content in an index; it is different while there is no extract."""
    return f"{table.blob(row).hex()} {parse_key(table.paths[row]) if is_parsed else ''}"
