"""A process that searches with patterns which may backtrack: started, asked and killed by `workers`.

It says `READY` when it has started.  Each message after that, either way, is a length of 4 bytes
(big-endian) and so much JSON.  A request is the path of the store, the facts of a text, and the arguments
of `scan`; the answer is a result or an error.  The process ends when its input does.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from rlm_contexts import errors
from rlm_contexts.search.scan import LineMatch, ScanResult, scan
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText

READY = b"."
"""What comes before the first answer."""
LENGTH = struct.Struct(">I")
"""The prefix of every message."""


def pack(message: dict[str, Any]) -> bytes:
    """A message as it is sent."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do one search; every error of this package becomes an answer."""
    try:
        text = ContextStore(Path(request["store"])).open(StoredText.from_dict(request["text"]))
        return {"result": asdict(scan(text, **request["arguments"]))}
    except errors.ScanTimeout as late:
        return {"late": [late.seconds, [asdict(match) for match in late.matches], late.next_line]}
    except errors.InvalidRegex as bad:
        return {"regex": [bad.pattern, bad.reason, bad.position]}
    except errors.ContextError as problem:
        return {"error": [type(problem).__name__, str(problem)]}


def outcome(message: dict[str, Any]) -> ScanResult:
    """The result in an answer.  Raises: the error in it."""
    match message:
        case {"result": fields}:
            return ScanResult(
                **{**fields, "matches": _matches(fields["matches"]), "part_counts": tuple(fields["part_counts"])}
            )
        case {"late": [seconds, matches, next_line]}:
            raise errors.ScanTimeout(seconds, _matches(matches), next_line)
        case {"regex": [pattern, reason, position]}:
            raise errors.InvalidRegex(pattern, reason, position)
        case {"error": [name, text]}:
            raise _error_named(name)(text)
    raise errors.SearchDied("the search process gave a malformed answer; search again")


def _matches(rows: list[dict[str, Any]]) -> tuple[LineMatch, ...]:
    return tuple(LineMatch(**{**row, "context": tuple(row["context"])}) for row in rows)


def _error_named(name: str) -> type[errors.ContextError]:
    plain = (errors.BadRange, errors.NotSearchable, errors.UnknownText, errors.CorruptText, errors.StoreError)
    return next((kind for kind in plain if kind.__name__ == name), errors.SearchDied)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    sink.write(READY)
    sink.flush()
    while len(prefix := source.read(LENGTH.size)) == LENGTH.size:
        body = source.read(*LENGTH.unpack(prefix))
        sink.write(pack(answer(json.loads(body))))
        sink.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
