"""The supervisor's own Jupyter messages, held against jupyter_client's."""

import json
from typing import Any

import pytest
from jupyter_client.session import Session

from rlm_ipc.jupyter_wire import DELIMITER, Signer, object_in

KEY = b"the key of a session"


@pytest.fixture
def signer() -> Signer:
    return Signer(KEY)


def theirs(key: bytes = KEY) -> Session:
    """What a Jupyter client makes and reads messages with."""
    return Session(key=key, check_pid=False)


@pytest.mark.parametrize("key", [KEY, b""])
def test_a_client_reads_what_the_supervisor_makes(key: bytes) -> None:
    """Messaging protocol 5.4, the wire protocol: header, parent, metadata and content under one signature."""
    parent = theirs(key).msg("execute_request")
    parts = Signer(key).parts("execute_reply", json.dumps(parent["header"], default=str).encode(), {"text": "é\ud800"})
    identities, rest = theirs(key).feed_identities([b"client", *parts])
    message = theirs(key).deserialize(rest)
    assert identities == [b"client"]
    assert message["msg_type"] == "execute_reply"
    assert message["parent_header"]["msg_id"] == parent["header"]["msg_id"]
    assert message["content"] == {"text": "é\ud800"}
    assert message["header"]["version"].startswith("5.")


def test_the_supervisor_reads_what_a_client_makes(signer: Any) -> None:
    """The routing prefix, the kind and the content; and the header as it came."""
    message = theirs().msg("shutdown_request", {"restart": True})
    received = signer.read(theirs().serialize(message, [b"a", b"b"]))
    assert received is not None
    assert (received.identities, received.kind, received.content) == (
        [b"a", b"b"],
        "shutdown_request",
        {"restart": True},
    )
    assert json.loads(received.header)["msg_id"] == message["msg_id"]


def test_a_message_that_comes_twice_is_refused(signer: Any) -> None:
    """Whoever has recorded a message cannot use it again."""
    parts = theirs().serialize(theirs().msg("interrupt_request", {}))
    assert signer.read(parts) is not None
    assert signer.read(parts) is None


def signed(*parts: bytes) -> list[bytes]:
    """A message of somebody with the key."""
    return [DELIMITER, Signer(KEY).sign(parts), *parts]


FRAMES = theirs().serialize(theirs().msg("interrupt_request", {}))
SPOILT = {
    "a wrong signature": [*FRAMES[:1], b"0" * 64, *FRAMES[2:]],
    "another content": [*FRAMES[:5], b'{"restart": true}'],
    "cut short": FRAMES[:4],
    "nothing at all": [],
    "no delimiter": FRAMES[1:],
    "another key": theirs(b"another key").serialize(theirs().msg("interrupt_request", {})),
    "nested without end": signed(*[b"[" * 100_000] * 4),
    "no kind": signed(*[b"{}"] * 4),
    "a signature that is no text": [DELIMITER, b"\xff\xfe", *FRAMES[2:]],
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_forged_or_malformed_is_not_read(signer: Any, how: Any) -> None:
    """Rubbish, whether it is signed or not."""
    assert signer.read(FRAMES) is not None
    assert signer.read(SPOILT[how]) is None


@pytest.mark.parametrize(
    ("part", "object_"),
    [(b'{"a": 1}', {"a": 1}), (b"[1]", {}), (b"{", {}), (b"\xff", {}), (b"[" * 100_000, {})],
    ids=["an object", "a list", "no JSON", "no text", "too deep"],
)
def test_a_part_that_is_no_object_reads_as_an_empty_one(part: bytes, object_: Any) -> None:
    """Parts of hostile clients are looked at before anybody has checked them: the look never raises."""
    assert object_in([b"route", DELIMITER, b"", b"{}", part], 3) == object_


def test_a_part_that_is_missing_reads_as_an_empty_object() -> None:
    """The same holds for a message that ends too early, and for one with no delimiter at all."""
    assert object_in([DELIMITER, b""], 5) == object_in([b"{}"], 2) == {}
