"""What a supervisor must not lose of one session and must not ask a kernel for: a file in memory, kept by the keeper.

The memory of such a file outlives a SIGKILL, so nothing is ever flushed. Numbers that change with every cell are plain
stores of eight bytes, in an order that is right at any instant. Values that must change together are in one of two
places: the number that says which one counts is stored last. Everything else works the same way, as JSON. Data that
grows is not rewritten each time: changes are appended to a log behind it, until that is half as long.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import struct
from collections.abc import Sequence
from typing import TypeVar

from rlm_ipc import framing
from rlm_ipc.kernel_reports import CellResult
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import read_known, sparse

T = TypeVar("T")

log = logging.getLogger(__name__)

_NUMBER, _TIME, _FOUR = struct.Struct("<Q"), struct.Struct("<d"), struct.Struct("<4Q")
_SENT_OUT = struct.Struct("<2Q2d")
"""What is known of a request: the numbers from `_PUBLISHED` to `_SINCE`."""
(
    _RUNNING,
    _ANSWERED,
    _PUBLISHED,
    _REQUEST_BYTES,
    _STARTED,
    _SINCE,
    _TAKING,
    _FAILURES,
) = range(0, 8 * 8, 8)
_CELLS, _CELLS_PLACES = 128, (136, 136 + _FOUR.size)
"""The number of the valid place, and the places: four numbers that a kill must not separate."""
_NUMBERS_BYTES = 4096
# The file is sparse: only what is written takes memory.
_REQUEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A JSON object in the file, with a log of changes.

    At ``numbers`` are the number of its place, the two lengths there, and the two lengths of the logs.
    """

    numbers: int
    places: tuple[int, int]

    def length(self, place: int) -> int:
        """Return where the length of what is written is stored."""
        return self.numbers + 8 + 8 * place

    def log_length(self, place: int) -> int:
        """Return where the length of the log behind it is stored."""
        return self.numbers + 24 + 8 * place


SPEC, STATE, QUERIES, FAILED = (Part(2048 + 64 * n, (1 + 2 * n << 33, 2 + 2 * n << 33)) for n in range(4))
"""What its caller wants; its processes; its queries; the latest answer that no process will repeat."""
_LOG = 1 << 32
"""How far behind its place a part's log begins."""
_LEAST_LOG = 1 << 16
_RUNS, _RUN_BYTES, _MOST_RUNS = 256, 16, 64


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The answer of a cell whose process has died."""

    run: str = ""
    result: CellResult | None = None


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=_RUN_BYTES).digest()


class SessionFile:
    """The file ``fd``, which this object owns."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._numbers = mmap.mmap(fd, _NUMBERS_BYTES)

    @classmethod
    def new(cls) -> SessionFile:
        """Return an empty one."""
        fd = os.memfd_create("session", os.MFD_CLOEXEC)
        os.ftruncate(fd, _NUMBERS_BYTES)
        return cls(fd)

    def close(self) -> None:
        """Release it."""
        self._numbers.close()
        os.close(self.fd)

    def _get(self, place: int) -> int:
        return int(_NUMBER.unpack_from(self._numbers, place)[0])

    def _set(self, place: int, value: int) -> None:
        if self._numbers.closed:  # the session has ended meanwhile
            return
        _NUMBER.pack_into(self._numbers, place, value)

    # -- what its process has completed

    def note_cells(self, cells: int, counted: int, only_cells: bool, pristine: bool) -> None:
        """Record what `checkpoints.Checkpoints` says of the live process; the request ``counted`` is its latest."""
        place = 1 - self._get(_CELLS)
        _FOUR.pack_into(self._numbers, _CELLS_PLACES[place], cells, only_cells, pristine, counted)
        self._set(_CELLS, place)

    @property
    def cells(self) -> tuple[int, bool, bool, int]:
        """Return the last record: cells, whether only cells changed it, whether it was fresh, the request counted."""
        cells, only_cells, pristine, counted = _FOUR.unpack_from(self._numbers, _CELLS_PLACES[self._get(_CELLS)])
        return cells, bool(only_cells), bool(pristine), counted

    # -- supervisors that may die of it

    def begin_taking_over(self, *, before_failed: bool) -> int:
        """Record that a supervisor is about to take the session over. Return how many in a row have failed at that."""
        failures = self._get(_FAILURES) + 1 if before_failed and self._get(_TAKING) else 0
        self._set(_FAILURES, failures)
        self._set(_TAKING, 1)
        return failures

    def taken_over(self) -> None:
        """Record that the session works again."""
        self._set(_TAKING, 0)

    # -- the request in progress

    def begin(self, serial: int, parts: Sequence[bytes], started: float, since: float) -> None:
        """Record a request that is about to go out; ``started`` by the system clock, ``since`` by the monotonic one."""
        data = framing.pack(b"r", parts)
        self._set(_RUNNING, 0)  # until all of it is here: half of it must not be taken for the previous one
        if not self._put(data, _REQUEST):
            return
        _SENT_OUT.pack_into(self._numbers, _PUBLISHED, 0, len(data), started, since)
        self._set(_RUNNING, serial)

    def note_published(self, messages: int) -> None:
        """Record that this many messages of the kernel have been shown to watchers."""
        self._set(_PUBLISHED, messages)

    def answered(self, serial: int) -> None:
        """Record that the request was answered."""
        self._set(_ANSWERED, serial)

    @property
    def running(self) -> tuple[int, bool]:
        """Return the number of the last request sent out (0: none), and whether it was answered."""
        running = self._get(_RUNNING)
        return running, running <= self._get(_ANSWERED)

    def note_run(self, name: str) -> None:
        """Record that a cell with that name is about to start."""
        count = self._get(_RUNS)
        at = _RUNS + 8 + count % _MOST_RUNS * _RUN_BYTES
        self._numbers[at : at + _RUN_BYTES] = _digest(name)
        self._set(_RUNS, count + 1)

    def knows_run(self, name: str) -> bool:
        """Return whether it is one of the latest that have started."""
        return _digest(name) in self._numbers[_RUNS + 8 : _RUNS + 8 + _MOST_RUNS * _RUN_BYTES]

    @property
    def published(self) -> int:
        """Return how many of its messages were shown."""
        return self._get(_PUBLISHED)

    @property
    def times(self) -> tuple[float, float]:
        """Return when it was sent out, by both clocks."""
        started, since = (float(_TIME.unpack_from(self._numbers, place)[0]) for place in (_STARTED, _SINCE))
        return started, since

    def request(self) -> tuple[bytes, ...]:
        """Return the parts of the latest request."""
        parser = framing.Parser()
        parser.feed(os.pread(self.fd, self._get(_REQUEST_BYTES), _REQUEST))
        message = parser.next()
        return message.parts if message is not None else ()

    # -- everything else

    def write(self, part: Part, message: object) -> bool:
        """Record a message, in place of the previous one. Return False if there is no memory for it."""
        data = _json(message)
        place = 1 - self._get(part.numbers)
        if not self._put(data, part.places[place]):
            return False
        self._set(part.length(place), len(data))
        self._set(part.log_length(place), 0)
        self._set(part.numbers, place)
        return True

    def add(self, part: Part, change: object) -> bool:
        """Append a change of what was written. Return False if all of it must be rewritten."""
        data = _json(change) + b"\n"
        place = self._get(part.numbers)
        written, logged = self._get(part.length(place)), self._get(part.log_length(place))
        if logged + len(data) > max(_LEAST_LOG, written // 2):
            return False
        if not self._put(data, part.places[place] + _LOG + logged):
            return False
        self._set(part.log_length(place), logged + len(data))
        return True

    def _put(self, data: bytes, place: int) -> bool:
        """Write data; without memory for it a session continues, but a later supervisor knows less about it."""
        try:
            return os.pwrite(self.fd, data, place) == len(data)
        except OSError as error:
            log.warning("a session cannot be recorded for a later supervisor: %s", error)
            return False

    def read(self, part: Part, kind: type[T]) -> T:
        """Return what was last recorded; an empty message if nothing was."""
        place = self._get(part.numbers)
        length = self._get(part.length(place))
        return read_known(kind, json.loads(os.pread(self.fd, length, part.places[place]) or b"{}"))

    def changes(self, part: Part, kind: type[T]) -> list[T]:
        """Return the changes since then, in order."""
        place = self._get(part.numbers)
        log = os.pread(self.fd, self._get(part.log_length(place)), part.places[place] + _LOG)
        return [read_known(kind, json.loads(line)) for line in log.split(b"\n") if line]


def _json(message: object) -> bytes:
    return json.dumps(sparse(message), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
