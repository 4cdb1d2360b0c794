"""The protocol of the supervisor: each message is read back as it was written, and what is none is refused."""

import json
from typing import Any

import pytest
from protocol_samples import sample

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import ProtocolError
from rlm_ipc.messages import read

CALLS = list(protocol.OPERATIONS.values())


@pytest.mark.parametrize("operation", CALLS, ids=lambda row: row.name)
def test_a_request_and_its_reply_are_read_as_they_were_written(operation: protocol.Operation[Any, Any]) -> None:
    """Every row of the table, with every field set."""
    request, reply = sample(operation.request), sample(operation.reply)
    number, name, content = wire.call_in(wire.call_part(5, operation, request))
    assert (number, name, read(operation.request, content)) == (5, operation.name, request)
    answer = wire.answer_in(wire.reply_part(5, reply))
    assert (answer.id, answer.failure, read(operation.reply, answer.reply)) == (5, None, reply)


@pytest.mark.parametrize("kind", protocol.EVENTS.values(), ids=list(protocol.EVENTS))
def test_an_event_is_read_as_it_was_written(kind: type[protocol.Event]) -> None:
    """With the kernel that it is about."""
    event = sample(kind)
    assert wire.event_in(wire.event_part("k1", event)) == ("k1", event)


def test_a_name_means_one_call_and_one_event() -> None:
    """Two rows of one name would hide each other."""
    rows = [value for value in vars(protocol).values() if isinstance(value, protocol.Operation)]
    assert len({row.name for row in rows}) == len(rows) == len(protocol.OPERATIONS)
    assert len(set(protocol.EVENTS.values())) == len(protocol.EVENTS)


@pytest.mark.parametrize(
    "part",
    [b"", b"[", b"5", b"[" * 100_000, b"{}", b'{"id": "1", "op": "info", "request": {}}', b'{"id": 1, "op": "info"}'],
)
def test_what_is_no_call_is_refused(part: bytes) -> None:
    """It never becomes another error than that of the protocol."""
    with pytest.raises(ProtocolError):
        wire.call_in(part)


@pytest.mark.parametrize(
    ("name", "body"), [("recovery", {}), ("waiting", {}), ("waiting", {"ids": "q_000"}), ("ended", {"why": "x"})]
)
def test_what_is_no_event_is_refused(name: str, body: object) -> None:
    """A supervisor of another version may report anything."""
    with pytest.raises(ProtocolError):
        wire.event_in(json.dumps({"kernel_id": "k", "event": name, "body": body}).encode())


def test_a_failure_tells_whose_call_it_was_if_that_could_be_read() -> None:
    """None is the answer to bytes that are no call."""
    for number in (3, None):
        answer = wire.answer_in(wire.failure_part(number, {"error": "KernelError", "message": "no"}))
        assert (answer.id, answer.failure) == (number, {"error": "KernelError", "message": "no"})
