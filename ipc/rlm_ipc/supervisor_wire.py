"""How the messages of `supervisor_protocol` travel.

A call is ``CALL [json{id, op, request}]`` with its descriptors, its answer ``RESULT [json{id, reply} or json{id,
failure}, blobs…]``, and an event ``EVENT [json{kernel_id, event, body}]``.
"""

from __future__ import annotations

from typing import Any

from rlm_ipc import framing
from rlm_ipc.errors import ProtocolError
from rlm_ipc.json_parts import json_in
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, JsonObject, plain, read, read_known, sparse
from rlm_ipc.supervisor_core import Core, Range
from rlm_ipc.supervisor_protocol import EVENTS, Event, Operation, Reply, Request

CALL, RESULT, EVENT = b"Q", b"R", b"E"
"""The one-byte tags of the messages."""
GOODBYE = b"g"
"""Sent to the bridge of an attachment: the front end has shut its kernel down."""
PROTOCOL = 12
SPEAKS = Range(PROTOCOL, PROTOCOL)
"""The versions of the calls that this version speaks."""
MAX_CALL = 512 << 20
"""Bytes of the largest message."""

_EVENT_NAMES = {kind: name for name, kind in EVENTS.items()}


@dataclass(frozen=True, slots=True)
class _CallEnvelope:
    id: int
    op: str
    request: Json


@dataclass(frozen=True, slots=True)
class _EventEnvelope:
    kernel_id: str
    event: str
    body: Json


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call before its type is known: a ``reply``, or a ``failure`` (`rlm_ipc.errors.to_wire`).

    ``id`` is None when the call could not be read.
    """

    id: int | None
    reply: Json = None
    failure: dict[str, Json] | None = None


def call_part(number: int, operation: Operation[Request, Any], request: Request) -> bytes:
    """Write a call."""
    return framing.json_part({"id": number, "op": operation.name, "request": _written(request)})


def call_in(part: bytes) -> tuple[int, str, Json]:
    """Read a call's number, the name of its operation, and its request as JSON; raises `ProtocolError`."""
    envelope = read(_CallEnvelope, _json(part))
    return envelope.id, envelope.op, envelope.request


def request_in(operation: Operation[Request, Any], request: Json) -> Request:
    """Read the request of a call; raises `ProtocolError`."""
    return (read_known if operation.of_core else read)(operation.request, request)


def reply_in(operation: Operation[Any, Reply], answer: Answer) -> Reply:
    """Read the reply to a successful call; raises `ProtocolError`."""
    return (read_known if operation.of_core else read)(operation.reply, answer.reply)


def reply_part(number: int, reply: object) -> bytes:
    """Write the reply to a call."""
    return framing.json_part({"id": number, "reply": _written(reply)})


def failure_part(number: int | None, failure: dict[str, object]) -> bytes:
    """Write that a call has failed; ``failure`` as `rlm_ipc.errors.to_wire` creates it."""
    return framing.json_part({"id": number, "failure": failure})


def answer_in(part: bytes) -> Answer:
    """Read the answer to a call; raises `ProtocolError`."""
    return read(Answer, _json(part))


def event_part(kernel_id: str, event: Event) -> bytes:
    """Write an event."""
    return framing.json_part({"kernel_id": kernel_id, "event": _EVENT_NAMES[type(event)], "body": sparse(event)})


def event_in(part: bytes) -> tuple[str, Event]:
    """Read an event and the id of its kernel; raises `ProtocolError`."""
    envelope = read(_EventEnvelope, _json(part))
    kind = EVENTS.get(envelope.event)
    if kind is None:
        raise ProtocolError(
            f"the supervisor reports {envelope.event!r}, which is not a known event; its version differs from this one"
        )
    event: Event = read(kind, envelope.body)
    return envelope.kernel_id, event


def _written(message: object) -> JsonObject:
    # Another version, to which only the core is common, may have other default values.
    return plain(message) if isinstance(message, Core) else sparse(message)


def _json(part: bytes) -> Json:
    try:
        return json_in(part)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not valid JSON: {error}") from error
