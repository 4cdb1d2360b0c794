"""Remove stored texts that nobody uses any more, and leftovers of crashes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rlm_contexts.store.files import locked
from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did.

    Attributes: removed, the digests; freed and left, bytes on disk, sidecars included; leftovers, drafts of crashes;
    leased, how many texts were kept only because someone was reading them.
    """

    removed: tuple[str, ...]
    freed: int
    left: int
    leftovers: int
    leased: int


class _Candidate(NamedTuple):
    used: float  # time of the last use
    digest: str
    size: int


def collect(root: Path, ttl_seconds: float, keep: Container[str], max_bytes: int | None) -> Collected:
    """See ContextStore.collect."""
    with locked(root, fcntl.LOCK_EX):  # nobody publishes meanwhile
        leftovers = _remove_drafts(root / "drafts")
        texts = sorted(_texts(root / "texts"))
        removed, remaining, leased = [], sum(text.size for text in texts), 0
        oldest = time.time() - ttl_seconds
        for text in texts:
            due = text.used <= oldest or (max_bytes is not None and remaining > max_bytes)
            if not due or text.digest in keep:
                continue
            if _remove(root / "texts", text.digest, keep):
                removed.append(text)
                remaining -= text.size
            else:
                leased += 1
    digests = tuple(text.digest for text in removed)
    return Collected(digests, sum(text.size for text in removed), remaining, leftovers, leased)


def _texts(folder: Path) -> list[_Candidate]:
    """Return every digest with a file; an index or wide form without a text is a leftover of a crash."""
    found: dict[str, tuple[float, int]] = {}
    for entry in os.scandir(folder):
        digest = entry.name.partition(".")[0]
        status = entry.stat(follow_symlinks=False)
        used, size = found.get(digest, (0.0, 0))
        found[digest] = (max(used, status.st_mtime), size + status.st_size)
    return [_Candidate(used, digest, size) for digest, (used, size) in found.items()]


def _remove(folder: Path, digest: str, keep: Container[str]) -> bool:
    """Unlink a text and its sidecars unless someone holds a pin, or it is to be kept."""
    path = folder / f"{digest}.text"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        _unlink_all(path)
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if digest in keep:  # asked again: a pin may have ended since
            return False
        _unlink_all(path)  # under the lock: a process that waits for a pin sees that the file has no name any more
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _unlink_all(path: Path) -> None:
    for suffix in (".text", ".index", ".data", ".wide"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _remove_drafts(folder: Path) -> int:
    """Unlink drafts that no living process has locked."""
    removed = 0
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):  # published meanwhile: that needs no lock
            removed += _remove_draft(Path(entry.path))
    return removed


def _remove_draft(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
