"""A process that searches with patterns which may backtrack: started, asked and killed by `workers`.

It says `READY` when it has started.  Each message after that, either way, is a length of 4 bytes
(big-endian) and so much JSON: a `SearchJob`, or a `SearchReply`.  The process ends when its input does.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rlm_contexts import errors
from rlm_contexts.search.scan import LineMatch, ScanResult, scan
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText
from rlm_ipc.errors import ProtocolError
from rlm_ipc.messages import Json, plain, read

READY = b"."
"""What comes before the first answer."""
LENGTH = struct.Struct(">I")
"""The prefix of every message."""
_NONSENSE = "the search process gave an malformed answer; search again"


@dataclass(frozen=True, slots=True)
class SearchJob:
    """A text of the store at a path, and the other arguments of `scan`."""

    store: str
    text: StoredText
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class TooLate:
    """What `errors.ScanTimeout` tells."""

    seconds: float
    matches: tuple[LineMatch, ...]
    next_line: int | None


@dataclass(frozen=True, slots=True)
class WrongPattern:
    """What `errors.InvalidRegex` tells."""

    pattern: str
    reason: str
    position: int | None


@dataclass(frozen=True, slots=True)
class OtherError:
    """An error of another class of `errors`."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class SearchReply:
    """What came of a job: one of these."""

    result: ScanResult | None = None
    late: TooLate | None = None
    wrong: WrongPattern | None = None
    error: OtherError | None = None


def pack(message: SearchJob | SearchReply) -> bytes:
    """A message as it is sent."""
    body = json.dumps(plain(message)).encode()
    return LENGTH.pack(len(body)) + body


def answer(job: SearchJob) -> SearchReply:
    """Do one search; every error of this package becomes an answer."""
    try:
        text = ContextStore(Path(job.store)).open(job.text)
        return SearchReply(result=scan(text, **job.arguments))
    except errors.ScanTimeout as late:
        return SearchReply(late=TooLate(late.seconds, late.matches, late.next_line))
    except errors.InvalidRegex as bad:
        return SearchReply(wrong=WrongPattern(bad.pattern, bad.reason, bad.position))
    except errors.ContextError as problem:
        return SearchReply(error=OtherError(type(problem).__name__, str(problem)))


def outcome(body: bytes) -> ScanResult:
    """The result in an answer.  Raises: the error in it."""
    try:
        reply = read(SearchReply, json.loads(body))
    except (ValueError, ProtocolError) as problem:
        raise errors.SearchDied(_NONSENSE) from problem
    if (late := reply.late) is not None:
        raise errors.ScanTimeout(late.seconds, late.matches, late.next_line)
    if (wrong := reply.wrong) is not None:
        raise errors.InvalidRegex(wrong.pattern, wrong.reason, wrong.position)
    if reply.error is not None:
        raise _error_named(reply.error.name)(reply.error.message)
    if reply.result is None:
        raise errors.SearchDied(_NONSENSE)
    return reply.result


def _error_named(name: str) -> type[errors.ContextError]:
    plain = (errors.BadRange, errors.NotSearchable, errors.UnknownText, errors.CorruptText, errors.StoreError)
    return next((kind for kind in plain if kind.__name__ == name), errors.SearchDied)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    sink.write(READY)
    sink.flush()
    while len(prefix := source.read(LENGTH.size)) == LENGTH.size:
        body = source.read(*LENGTH.unpack(prefix))
        sink.write(pack(answer(read(SearchJob, json.loads(body)))))
        sink.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
