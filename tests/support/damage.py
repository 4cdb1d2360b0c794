"""Change a stored text as no program of ours does."""

from __future__ import annotations

import os

from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText


def damage(store: ContextStore, stored: StoredText, *, suffix: str = ".text", keep_time: bool = False) -> None:
    """Change one byte of a stored file, as no program of ours does."""
    path = store.root / "texts" / f"{stored.digest}{suffix}"
    before = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)
        file.seek(before.st_size // 2)
        file.write(bytes([byte[0] ^ 1]))
    path.chmod(0o400)
    times = (before.st_atime_ns, before.st_mtime_ns)
    os.utime(path, ns=times if keep_time else (times[0], times[1] + 1))
