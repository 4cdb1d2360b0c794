"""The key with which the daemons of this user seal the snapshots that they write."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from rlm_ipc.private_folders import put_file

_BYTES = 32


def key_in(folder: Path) -> bytes:
    """The key in a folder; made when it is first needed."""
    path = folder / "key"
    with suppress(FileNotFoundError):
        if len(key := path.read_bytes()) == _BYTES:
            return key
    folder.mkdir(mode=0o700, exist_ok=True)
    put_file(path, secrets.token_bytes(_BYTES))
    return path.read_bytes()
