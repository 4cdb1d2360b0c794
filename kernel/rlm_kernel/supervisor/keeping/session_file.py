"""What a supervisor must not lose of one session, and a kernel must not be asked: a file in memory, kept by the keeper.

The memory of such a file outlives a SIGKILL, so nothing is ever flushed. Numbers that change with every cell are plain
stores of eight bytes, in an order that is right at any instant. What must not be parted is in one of two places: the
number that says which one counts is stored last. So is everything else, as JSON. What grows is not written anew each
time: changes are added to a log behind it, until that is half as long.
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
from rlm_ipc.messages import plain, read_known

T = TypeVar("T")

log = logging.getLogger(__name__)

_NUMBER, _TIME, _FOUR = struct.Struct("<Q"), struct.Struct("<d"), struct.Struct("<4Q")
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
"""The number of the place that counts, and the places: four numbers that a kill must not part."""
_NUMBERS_BYTES = 4096
# The file is sparse: only what is written takes memory.
_REQUEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A JSON object in the file, with a log of changes.

    At ``numbers`` stand the number of its place, the two lengths there, and the two lengths of the logs.
    """

    numbers: int
    places: tuple[int, int]

    def length(self, place: int) -> int:
        """Where the length of what is written stands."""
        return self.numbers + 8 + 8 * place

    def log_length(self, place: int) -> int:
        """Where the length of the log behind it stands."""
        return self.numbers + 24 + 8 * place


SPEC, STATE, QUERIES, FAILED = (Part(2048 + 64 * n, (1 + 2 * n << 33, 2 + 2 * n << 33)) for n in range(4))
"""What its caller wants; what its processes are; its queries; the latest answer that no process will say again."""
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
        """An empty one."""
        fd = os.memfd_create("session", os.MFD_CLOEXEC)
        os.ftruncate(fd, _NUMBERS_BYTES)
        return cls(fd)

    def close(self) -> None:
        """Let go of it."""
        self._numbers.close()
        os.close(self.fd)

    def _get(self, place: int) -> int:
        return int(_NUMBER.unpack_from(self._numbers, place)[0])

    def _set(self, place: int, value: int) -> None:
        if self._numbers.closed:  # the session has ended meanwhile
            return
        _NUMBER.pack_into(self._numbers, place, value)

    # -- what its process has completed

    def note_cells(self, cells: int, counted: int, *, only_cells: bool, pristine: bool) -> None:
        """What `checkpoints.Checkpoints` says of the live process; the request ``counted`` is the latest in it."""
        place = 1 - self._get(_CELLS)
        _FOUR.pack_into(self._numbers, _CELLS_PLACES[place], cells, only_cells, pristine, counted)
        self._set(_CELLS, place)

    @property
    def cells(self) -> tuple[int, bool, bool, int]:
        """What was noted last: cells, whether there were only cells, whether it was fresh, the request counted last."""
        cells, only_cells, pristine, counted = _FOUR.unpack_from(self._numbers, _CELLS_PLACES[self._get(_CELLS)])
        return cells, bool(only_cells), bool(pristine), counted

    # -- whose death it may be

    def begin_taking_over(self, *, before_failed: bool) -> int:
        """A supervisor is about to take the session over; returns how many in a row have failed at that."""
        failures = self._get(_FAILURES) + 1 if before_failed and self._get(_TAKING) else 0
        self._set(_FAILURES, failures)
        self._set(_TAKING, 1)
        return failures

    def taken_over(self) -> None:
        """The session works again."""
        self._set(_TAKING, 0)

    # -- the request that runs

    def begin(self, serial: int, parts: Sequence[bytes], started: float, since: float) -> None:
        """A request is about to go out; ``started`` by the clock of the system, ``since`` by the monotonic one."""
        data = framing.pack(b"r", parts)
        self._set(_RUNNING, 0)  # until all of it is here: half of it must not be taken for the one before
        if not self._put(data, _REQUEST):
            return
        self._set(_REQUEST_BYTES, len(data))
        self._set(_PUBLISHED, 0)
        _TIME.pack_into(self._numbers, _STARTED, started)
        _TIME.pack_into(self._numbers, _SINCE, since)
        self._set(_RUNNING, serial)

    def note_published(self, messages: int) -> None:
        """So many messages of the kernel have been shown to those who watch."""
        self._set(_PUBLISHED, messages)

    def answered(self, serial: int) -> None:
        """The request was answered."""
        self._set(_ANSWERED, serial)

    @property
    def running(self) -> tuple[int, bool]:
        """The number of the request that was given out last (0: none), and whether it was answered."""
        running = self._get(_RUNNING)
        return running, running <= self._get(_ANSWERED)

    def note_run(self, name: str) -> None:
        """A cell that its caller calls by that name is about to begin."""
        count = self._get(_RUNS)
        at = _RUNS + 8 + count % _MOST_RUNS * _RUN_BYTES
        self._numbers[at : at + _RUN_BYTES] = _digest(name)
        self._set(_RUNS, count + 1)

    def knows_run(self, name: str) -> bool:
        """Whether it is one of the latest that have begun."""
        known = self._numbers[_RUNS + 8 : _RUNS + 8 + _MOST_RUNS * _RUN_BYTES]
        return _digest(name) in (known[at : at + _RUN_BYTES] for at in range(0, len(known), _RUN_BYTES))

    @property
    def published(self) -> int:
        """How many messages of it were shown."""
        return self._get(_PUBLISHED)

    @property
    def times(self) -> tuple[float, float]:
        """When it was given out, by both clocks."""
        started, since = (float(_TIME.unpack_from(self._numbers, place)[0]) for place in (_STARTED, _SINCE))
        return started, since

    def request(self) -> tuple[bytes, ...]:
        """The parts of the latest request."""
        parser = framing.Parser()
        parser.feed(os.pread(self.fd, self._get(_REQUEST_BYTES), _REQUEST))
        message = parser.next()
        return message.parts if message is not None else ()

    # -- everything else

    def write(self, part: Part, message: object) -> bool:
        """Note a message, in place of what was noted before; False if there is no memory for it."""
        data = _json(message)
        place = 1 - self._get(part.numbers)
        if not self._put(data, part.places[place]):
            return False
        self._set(part.length(place), len(data))
        self._set(part.log_length(place), 0)
        self._set(part.numbers, place)
        return True

    def add(self, part: Part, change: object) -> bool:
        """Note a change of what was written; False if all of it is to be written anew."""
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
        """Without memory for what is to be noted a session goes on; a later supervisor knows less of it."""
        try:
            return os.pwrite(self.fd, data, place) == len(data)
        except OSError as error:
            log.warning("a session cannot be noted for a later supervisor: %s", error)
            return False

    def read(self, part: Part, kind: type[T]) -> T:
        """What was noted last; a message without anything if nothing was."""
        place = self._get(part.numbers)
        length = self._get(part.length(place))
        return read_known(kind, json.loads(os.pread(self.fd, length, part.places[place]) or b"{}"))

    def changes(self, part: Part, kind: type[T]) -> list[T]:
        """The changes since then, in their order."""
        place = self._get(part.numbers)
        log = os.pread(self.fd, self._get(part.log_length(place)), part.places[place] + _LOG)
        return [read_known(kind, json.loads(line)) for line in log.split(b"\n") if line]


def _json(message: object) -> bytes:
    return json.dumps(plain(message), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
