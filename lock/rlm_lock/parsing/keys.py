"""The key under which an extract is kept: it changes with everything that decides what an extract holds."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from rlm_lock.extraction.languages import extraction_key


def parse_key(path: bytes) -> str:
    """Return the key for a file of this name, short, because stores keep one for each content."""
    return _short(extraction_key(path.decode("utf-8", "surrogateescape")))


@functools.lru_cache(maxsize=1000)
def _short(key: str) -> str:
    return hashlib.blake2b(f"{key} {_ours()}".encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


@functools.cache
def _ours() -> str:
    """Return a hash of what decides which texts are kept, so that no version number is forgotten."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in ("job", "secrets"))).hexdigest()
