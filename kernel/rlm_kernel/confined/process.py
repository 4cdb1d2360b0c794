"""Start a confined process for one job, and take what it says.

The process (`__main__`) imports the library that the job needs, confines itself, and only then looks at what it was
given. It says JSON lines on its standard output; whatever it says is hostile: bounded in size and time, and checked
by who asked. It lives for one job, so nothing of one session's data is there when another's comes.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO, Any

from rlm_kernel.contexts.errors import (
    ContextError,
    HelperDied,
    HelperTimeout,
    MissingExtra,
    QueryRefused,
    SourceError,
    TextTooLarge,
)
from rlm_kernel.contexts.progress import Meter, watched
from rlm_kernel.environment import HELPER, TRUST, chosen

__all__ = ["Job", "Limits", "messages"]

_LONGEST_MESSAGE = 16 << 20
_PIECE = 1 << 16
_LOOK_SECONDS = 0.2
"""How often the limits are looked at while nothing is said."""
_FAULTS: dict[str, type[ContextError]] = {"query": QueryRefused, "missing": MissingExtra}
"""What a job may say went wrong, besides a source with its advice; anything else it says is its own failure."""
_LONGEST_FAULT = 2000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may use: seconds, bytes of memory, and bytes of answer."""

    seconds: float
    memory: int
    answer: int


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to do.

    Attributes:
        module: the module of this package that does it.
        request: what it is given, as JSON values.
        files: what it may read, by path.
        fd: an open file that it inherits; its number is in the request as ``fd``.
        network: whether it may use the network.
        file_bytes: how large a file it may write.
        variables: what it has of the environment besides what every job has.
    """

    module: str
    request: dict[str, Any]
    files: Sequence[Path] = ()
    fd: int | None = None
    network: bool = False
    file_bytes: int = 64 << 20
    variables: Sequence[str] = ()


def messages(job: Job, limits: Limits) -> Generator[dict[str, Any], None, None]:
    """Do a job, yielding what it says as it says it.

    Closing the generator ends the process, and so does the `stop` of the load that is watched.

    Raises:
        SourceError, QueryRefused, MissingExtra: the job says so.
        HelperTimeout, TextTooLarge: a limit was reached.
        HelperDied: the process ended without having finished, or said what makes no sense.
    """
    with tempfile.TemporaryDirectory(prefix="rlm-job-") as scratch, _started(job, limits, scratch) as process:
        assert process.stdout is not None
        for line in _lines(process.stdout, limits, (watched.get() or Meter()).stop):
            said = _parsed(line)
            if "fault" in said:
                raise _fault(said)
            if said.get("done") is True:
                return
            yield said
        raise HelperDied(_end_of(process))


@contextmanager
def _started(job: Job, limits: Limits, scratch: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = chosen(HELPER, TRUST if job.network else (), job.variables)
    request = {
        **job.request,
        "scratch": scratch,
        "files": [str(path) for path in job.files],
        "memory": limits.memory,
        "network": job.network,
        "file_bytes": job.file_bytes,
        **({} if job.fd is None else {"fd": job.fd}),
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rlm_kernel.confined", job.module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=scratch, env={**environment, "HOME": scratch, "TMPDIR": scratch},
        pass_fds=() if job.fd is None else (job.fd,),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with closing(process.stdin):
            process.stdin.write(json.dumps(request).encode() + b"\n")
        yield process
    except BrokenPipeError as problem:
        raise HelperDied(_end_of(process)) from problem
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def _lines(pipe: IO[bytes], limits: Limits, stop: Event) -> Iterator[bytes]:
    """The lines of a pipe within the limits; ends when the pipe does, or when it is to stop."""
    until = time.monotonic() + limits.seconds
    pending, taken = bytearray(), 0
    while True:
        if stop.is_set() or time.monotonic() > until:
            raise HelperTimeout(limits.seconds)
        if not select.select([pipe], [], [], _LOOK_SECONDS)[0]:
            continue
        piece = os.read(pipe.fileno(), _PIECE)
        if not piece:
            return
        taken += len(piece)
        pending += piece
        if taken > limits.answer:
            raise TextTooLarge(limits.answer)
        if b"\n" in piece:
            *whole, rest = pending.split(b"\n")
            yield from map(bytes, whole)
            pending = rest
        elif len(pending) > _LONGEST_MESSAGE:
            raise HelperDied("said more in one message than it may")


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise HelperDied("gave an answer that makes no sense") from problem
    if not isinstance(said, dict):
        raise HelperDied("gave an answer that makes no sense")
    return said


def _fault(said: dict[str, Any]) -> ContextError:
    message, fault = str(said.get("message"))[:_LONGEST_FAULT], str(said["fault"])
    if fault == "source":
        return SourceError(message, str(said.get("advice"))[:_LONGEST_FAULT])
    return _FAULTS.get(fault, HelperDied)(message)


def _end_of(process: subprocess.Popen[bytes]) -> str:
    try:
        status = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "ended early"
    return f"was killed by signal {-status}" if status < 0 else f"ended early with exit code {status}"
