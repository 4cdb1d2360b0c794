"""Start a helper process, give it jobs, and read its replies.

The process (`__main__`) imports the library that the job needs, confines itself, and only then looks at its input. It
writes JSON lines on its standard output. Its replies are hostile: bounded in size and time, and read strictly, as the
types of `protocol`. Most processes live for one job, so that nothing of one session's data is there when another's
comes. A `Helper` can be kept for jobs that take less time than the start of a process.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import IO, Any, Generic, TypeVar

from rlm_contexts.errors import (
    ContextError,
    HelperDied,
    HelperTimeout,
    MissingExtra,
    QueryRefused,
    SourceError,
    TextTooLarge,
)
from rlm_contexts.helpers.protocol import JOBS, Fault, FaultKind, JobLine, JobRequest, JobSpec, job_of
from rlm_contexts.progress import Meter, watched
from rlm_ipc.environment import HELPER, TRUST, chosen
from rlm_ipc.errors import ProtocolError
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, plain, read

Reply = TypeVar("Reply")

_LONGEST_MESSAGE = 16 << 20
_PIECE = 1 << 16
_LOOK_SECONDS = 0.2
"""How often the limits are checked while there is no output."""
_NONSENSE = "gave a malformed answer"
_LONGEST_FAULT = 2000


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What a job may use: seconds, bytes of memory, and bytes of answer."""

    seconds: float
    memory: int
    answer: int


@dataclass(frozen=True, slots=True)
class Job(Generic[Reply]):
    """One thing to do.

    Attributes:
        request: the request; its type says which job it is.
        files: what it may read, by path.
        fd: an open file that it inherits.
        network: whether it may use the network.
        file_bytes: the maximum size of a file that it writes.
    """

    request: JobRequest[Reply]
    files: Sequence[Path] = ()
    fd: int | None = None
    network: bool = False
    file_bytes: int = 64 << 20


def messages(job: Job[Reply], limits: JobLimits) -> Generator[Reply, None, None]:
    """Do a job, yielding its replies as they arrive.

    Closing the generator ends the process, and so does the `stop` of the watched load.

    Raises:
        SourceError, QueryRefused, MissingExtra: the job reports it.
        HelperTimeout, TextTooLarge: a limit was reached.
        HelperDied: the process ended before it had finished, or its output made no sense.
    """
    with closing(Helper(job, limits.memory)) as helper:
        yield from helper.ask(job.request, limits)


def one_message(job: Job[Reply], limits: JobLimits) -> Reply:
    """Do a job that has one reply, and return that.  Raises: what `messages` does."""
    with closing(messages(job, limits)) as said:
        return only(said)


def only(said: Iterable[Reply]) -> Reply:
    """Return the one reply of a finished job.  Raises: HelperDied when there were more, or none."""
    replies = list(said)
    if len(replies) != 1:
        raise HelperDied(_NONSENSE)
    return replies[0]


class Helper:
    """A helper process, which does one job after another of the same kind.

    It ends with the thread that started it: a process that is kept must be started by a thread that lasts.
    """

    def __init__(self, job: Job[Any], memory: int) -> None:
        """Start the process, which may use what ``job`` says and that much memory, whatever it is asked later."""
        self._scratch = tempfile.TemporaryDirectory(prefix="rlm-job-")
        folder = self._scratch.name
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rlm_contexts.helpers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=folder, env={**chosen(HELPER, TRUST if job.network else ()), "HOME": folder, "TMPDIR": folder},
            pass_fds=() if job.fd is None else (job.fd,),
        )  # fmt: skip
        self._spec: JobSpec | None = JobSpec(
            job=job_of(job.request),
            scratch=folder,
            files=tuple(map(str, job.files)),
            memory=memory,
            file_bytes=job.file_bytes,
            network=job.network,
            fd=job.fd,
        )

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was asked yet, so that it may still have to start."""
        return self._spec is not None

    def ask(self, request: JobRequest[Reply], limits: JobLimits) -> Generator[Reply, None, None]:
        """Have it do something, and yield its replies. After an error it is of no more use.

        Raises: what `messages` does.
        """
        assert self._process.stdout is not None
        self._write(*filter(None, (self._spec, request)))
        self._spec = None
        kind = JOBS[job_of(request)].reply
        for line in _lines(self._process.stdout, limits, (watched.get() or Meter()).stop):
            message = _parsed(JobLine, _json(line))
            if message.fault is not None:
                raise _error_of(message.fault)
            if message.is_done:
                return
            yield _parsed(kind, message.reply)
        raise HelperDied(_end_of(self._process))

    @property
    def signal(self) -> int:
        """The number of the signal that ended the process; 0 while it lives, and if it ended by itself."""
        status = self._process.poll()
        return -status if status is not None and status < 0 else 0

    def kill(self) -> None:
        """End the process, whatever it is doing. A thread that waits for it notices the end; close it afterwards."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process, and forget its data."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what it could not accept
                pipe.close()
        self._scratch.cleanup()

    def _write(self, *said: object) -> None:
        assert self._process.stdin is not None
        try:
            for message in said:
                self._process.stdin.write(json.dumps(plain(message)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as problem:
            raise HelperDied(_end_of(self._process)) from problem


def _lines(pipe: IO[bytes], limits: JobLimits, stop: Event) -> Iterator[bytes]:
    """Yield the lines of a pipe within the limits; ends when the pipe does, or when it is told to stop."""
    until = time.monotonic() + limits.seconds
    pending, total = bytearray(), 0
    while True:
        if stop.is_set() or time.monotonic() > until:
            raise HelperTimeout(limits.seconds)
        if not select.select([pipe], [], [], _LOOK_SECONDS)[0]:
            continue
        piece = os.read(pipe.fileno(), _PIECE)
        if not piece:
            return
        total += len(piece)
        pending += piece
        if total > limits.answer:
            raise TextTooLarge(limits.answer)
        if b"\n" in piece:
            *whole, rest = pending.split(b"\n")
            yield from map(bytes, whole)
            pending = rest
        elif len(pending) > _LONGEST_MESSAGE:
            raise HelperDied("sent a message over its limit")


def _json(line: bytes) -> Json:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise HelperDied(_NONSENSE) from problem


def _parsed(kind: type[Reply], said: Json) -> Reply:
    try:
        return read(kind, said)
    except ProtocolError as problem:
        raise HelperDied(_NONSENSE) from problem


def _error_of(fault: Fault) -> ContextError:
    message = fault.message[:_LONGEST_FAULT]
    match fault.kind:
        case FaultKind.SOURCE:
            return SourceError(message, fault.advice[:_LONGEST_FAULT])
        case FaultKind.QUERY:
            return QueryRefused(message)
        case FaultKind.MISSING:
            return MissingExtra(message)
        case FaultKind.DIED:
            return HelperDied(message)


def _end_of(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "ended early"
    return f"was killed by signal {-status}" if status < 0 else f"ended early with exit code {status}"
