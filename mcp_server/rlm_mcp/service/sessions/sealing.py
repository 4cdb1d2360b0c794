"""The key with which the daemons of this user seal the snapshots that they write."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

_BYTES = 32


def key_in(folder: Path) -> bytes:
    """The key in a folder; made when it is first needed."""
    path = folder / "key"
    with suppress(FileNotFoundError):
        if len(key := path.read_bytes()) == _BYTES:
            return key
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"key.{os.getpid()}"
    made.unlink(missing_ok=True)
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
    made.replace(path)
    return path.read_bytes()
