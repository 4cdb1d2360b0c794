"""The store's files: their names, their header, and how one is opened under a pin.

    <root>/texts/<digest>.text    the UTF-8 bytes, 0400; published last, so what has a name is complete
    <root>/texts/<digest>.index   JSON header padded to INDEX_HEADER bytes, then the ranks as 64-bit words
    <root>/texts/<digest>.data    for a text that only describes a binary file: that file
    <root>/texts/<digest>.wide    code units of the Python string, for texts that are not ASCII; made on demand
    <root>/drafts/                what is being written; a draft nobody has locked is a leftover
    <root>/lock                   shared by publishers, exclusive for the collector

A pin is a shared flock on the text file.  It belongs to the open file: it passes with the descriptor to other
processes, is kept by a map of the file after the descriptor is closed, is inherited by forks, and ends with the last of
them, however they end.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm_contexts.errors import CorruptText, StoreError, UnknownText
from rlm_contexts.text.model import BLOCK, StoredText

INDEX_HEADER = 512
"""Bytes of JSON, padded with spaces, before the ranks of an index file."""
WRITTEN = 1 << 16
"""Bytes of a text written at a time, which decide the size of its pages in the cache.

Searches took up to a fifth longer with 256 KiB or 1 MiB, and for larger pages a virtual machine may have to ask its
host for memory first.
"""
_PIECE = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{32}(-[1-9][0-9]{0,3})?")
_FORMAT = f"rlm-text-1-{sys.byteorder}"


def text_path(root: Path, digest: str) -> Path:
    """Return where the bytes of a text are.  Raises: UnknownText when `digest` is not a digest at all."""
    if not _DIGEST.fullmatch(digest):
        raise UnknownText(f"{digest[:80]!r} is not the digest of a stored text; load the text again")
    return root / "texts" / f"{digest}.text"


def index_header(facts: StoredText) -> bytes:
    """Return the header of an index file."""
    return json.dumps({"format": _FORMAT, **facts.to_dict()}).encode().ljust(INDEX_HEADER)


def read_facts(index: Path, digest: str) -> StoredText:
    """Return the facts an index file was published with.  Raises: UnknownText, CorruptText."""
    try:
        with index.open("rb") as file:
            header = json.loads(file.read(INDEX_HEADER))
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise UnknownText(f"no text {digest} is stored (any more); load it again") from None
    except ValueError:
        raise CorruptText(f"the index of {digest} is damaged; load the text again") from None
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise CorruptText(f"the index of {digest} has another format; load the text again")
    facts = StoredText.from_dict(header)
    if size != INDEX_HEADER + 8 * (1 + -(-facts.size // BLOCK)):
        raise CorruptText(f"the index of {digest} has a wrong size; load the text again")
    return facts


def write_index(path: Path, facts: StoredText, ranks: array[int]) -> None:
    """Publish an index file atomically."""
    with draft(path.parent.parent) as (fd, name):
        write_all(fd, index_header(facts))
        write_all(fd, ranks.tobytes())
        os.fchmod(fd, 0o400)
        Path(name).replace(path)


def pin(path: Path) -> int | None:
    """Open a text file under a shared lock; None when it is not there (any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(fd, fcntl.LOCK_SH)
    if os.fstat(fd).st_nlink:
        return fd
    os.close(fd)  # the collector was faster
    return None


@contextmanager
def draft(root: Path) -> Iterator[tuple[int, str]]:
    """Yield a new locked file to write and then link or rename; its name is removed afterwards, whatever happens."""
    with locked(root, fcntl.LOCK_SH):  # the collector must not see it before it is locked
        fd, name = tempfile.mkstemp(dir=root / "drafts")
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield fd, name
    except OSError as problem:
        raise StoreError(
            f"the context store at {root} cannot be written ({problem.strerror}); free some space"
        ) from problem
    finally:
        Path(name).unlink(missing_ok=True)  # an exception caught here would keep its frames, and their maps, alive
        os.close(fd)


@contextmanager
def locked(root: Path, mode: int) -> Iterator[None]:
    """Hold the store's lock: LOCK_SH to publish, LOCK_EX to collect.  Not reentrant across modes."""
    fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, mode)
        yield
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte.  Raises: OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync(path: Path) -> None:
    """Make sure that the disk holds a file's contents, or a folder's names.  Raises: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def pieces_of(fd: int) -> Iterator[bytes]:
    """Yield the contents of a file, from its beginning, piece by piece.  Raises: OSError."""
    at = 0
    while piece := os.pread(fd, _PIECE, at):
        at += len(piece)
        yield piece


class Blocks:
    """A file that is written in blocks of one size, so that the page cache keeps it in pages of that size."""

    def __init__(self, fd: int) -> None:
        """Args: an empty file, open for writing."""
        self._fd = fd
        self._buffer, self._filled = memoryview(b""), 0

    def write(self, piece: bytes | bytearray) -> None:
        """Take all of a piece; an incomplete block waits for the next one.  Raises: OSError."""
        rest = memoryview(piece)
        while rest:
            if not self._filled and len(rest) >= WRITTEN:
                write_all(self._fd, rest[:WRITTEN])
                rest = rest[WRITTEN:]
                continue
            chunk = rest[: WRITTEN - self._filled]
            if not self._buffer:
                self._buffer = memoryview(bytearray(WRITTEN))
            self._buffer[self._filled : self._filled + len(chunk)] = chunk
            self._filled += len(chunk)
            rest = rest[len(chunk) :]
            if self._filled == WRITTEN:
                self.flush()

    def flush(self) -> None:
        """Write what is waiting.  Raises: OSError."""
        write_all(self._fd, self._buffer[: self._filled])
        self._filled = 0


def prepare(root: Path) -> None:
    """Create the store's directories, 0700 and ours.  Raises: StoreError."""
    try:
        for folder in (root, root / "texts", root / "drafts"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
    except OSError as problem:
        raise StoreError(f"the context store {root} cannot be created: {problem.strerror}") from problem
    if status.st_uid != os.geteuid():
        raise StoreError(f"the context store {root} belongs to another user; choose another RLM_KERNEL_STATE_DIR")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise StoreError(f"the context store {root} is open to other users; run: chmod 700 {root}")
