"""What a supervisor leaves of a kernel that it ended while no daemon was there: one file, for the next daemon.

The file starts with an image of the variables, which only kernels read, followed by a `LeftKernel` and its length.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rlm_ipc.errors import ProtocolError
from rlm_ipc.kernel_reports import AskedQuery, CellNote
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, plain, read_known
from rlm_ipc.worker_requests import HandedOut

FOLDER: Final = "left"
"""The folder of these files, in the folder of lasting state."""
_TEMPORARY = ".left-"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class LeftKernel:
    """A kernel that has ended: its caller's ``label``, when it was used and ended (epoch), and what happened to it.

    ``contexts`` are the revisions of the texts that it had, ``cells`` and ``pending`` its latest cells and its queries.
    ``saved`` says what the image holds. Without an image it is None, and ``unsaved`` says why, unless its policy does
    not let variables come back. ``idled`` says that it was idle too long; otherwise another version could not continue
    with it.
    """

    kernel_id: str
    label: dict[str, Json]
    last_used: float
    ended_at: float
    contexts: dict[str, int]
    cells: tuple[CellNote, ...] = ()
    pending: tuple[AskedQuery, ...] = ()
    saved: HandedOut | None = None
    unsaved: str = ""
    idled: bool = True


class Leaving:
    """Writes the file of one kernel, which appears at once and complete, or not at all."""

    def __init__(self, folder: Path, kernel_id: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / kernel_id
        descriptor, self._temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def add(self, piece: bytes) -> None:
        """Write a piece of the image."""
        view = memoryview(piece)
        while view:
            view = view[self._file.write(view) :]

    def forget_image(self) -> None:
        """Start over without an image, because it cannot be had."""
        self._file.seek(0)
        self._file.truncate()

    def finish(self, left: LeftKernel) -> None:
        """Write the rest, durably."""
        text = json.dumps(plain(left)).encode("utf-8", "surrogatepass")
        self.add(text + _LENGTH.pack(len(text)))
        os.fsync(self._file.fileno())

    def publish(self) -> None:
        """Move the file into its place, which takes no time."""
        os.replace(self._temporary, self._path)
        self._file.close()

    def abandon(self) -> None:
        """Discard the file; does nothing after `publish`."""
        if not self._file.closed:
            self._file.close()
            with suppress(OSError):
                os.unlink(self._temporary)


@dataclass(frozen=True, slots=True)
class LeftFile:
    """An open file, and its description of the kernel; the image is its first ``size`` bytes."""

    descriptor: int
    size: int
    left: LeftKernel

    def pieces(self, room: int = 1 << 20) -> Iterator[bytes]:
        """Yield the image, piece by piece."""
        at = 0
        while piece := os.pread(self.descriptor, min(room, self.size - at), at):
            at += len(piece)
            yield piece


@contextmanager
def _opened(path: Path) -> Iterator[LeftFile]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size - _LENGTH.size
        (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, max(0, size)))
        if not 0 < length <= size:
            raise ProtocolError(f"{path} is damaged")
        text = os.pread(descriptor, length, size - length)
        yield LeftFile(descriptor, size - length, read_known(LeftKernel, json.loads(text)))
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"{path} is damaged: {error}") from error
    finally:
        os.close(descriptor)


def left_kernels(folder: Path) -> Iterator[tuple[Path, LeftFile | None]]:
    """Yield each file with its description, open meanwhile; None if it cannot be read or was never finished."""
    with suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):
            try:
                with _opened(path) as file:
                    yield path, file
            except (OSError, ProtocolError):
                yield path, None
