"""The table of the daemon's roles: every request and reply survives the wire, and nothing else is taken for one."""

from __future__ import annotations

import json
import re

import pytest
from protocol_samples import sample

from rlm_ipc import (
    attachment_requests,
    chain_requests,
    daemon_requests,
    lock_requests,
    session_requests,
    work_requests,
)
from rlm_ipc.attachment_requests import AddAttachment
from rlm_ipc.daemon_dialogue import accepted, handshake, reply_to
from rlm_ipc.daemon_protocol import ROLES, Accepted, Fault, Refused, role_of
from rlm_ipc.daemon_requests import Request, ShowStatus
from rlm_ipc.daemon_rows import SaidMessage
from rlm_ipc.errors import DaemonRefused, DaemonUnavailable, ProcessError, ProtocolError
from rlm_ipc.json_lines import GOODBYE
from rlm_ipc.messages import plain, read, reply_type
from rlm_ipc.session_requests import KeepTurn, ListJournal


@pytest.mark.parametrize("name", ROLES)
def test_every_request_and_reply_survives_the_wire(name: str) -> None:
    """What one side writes the other reads as the same; a field with a type that the codec does not know fails here."""
    request = ROLES[name]
    for kind in (request, reply_type(request)):
        message = sample(kind)
        assert read(kind, json.loads(json.dumps(plain(message)))) == message
    assert role_of(sample(request)) == name


def test_every_message_of_the_protocol_has_a_role() -> None:
    """A request that the table lacks could be written and never be answered."""
    requests = {
        kind
        for module in (
            attachment_requests,
            chain_requests,
            daemon_requests,
            lock_requests,
            session_requests,
            work_requests,
        )
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request
    }
    assert requests == set(ROLES.values())


def test_a_long_request_goes_behind_its_line() -> None:
    """The daemon reads no long line; a turn of a model may hold megabytes."""
    turn = KeepTurn("s", "m", (SaidMessage("user", "x" * 300_000),), "", None, 0, 0, 0.0, 0.0)
    line, _, body = handshake(turn).partition(b"\n")
    said = json.loads(line)
    assert (said["role"], said["bytes"]) == ("turn", len(body))
    assert read(KeepTurn, json.loads(body)) == turn
    line, _, body = handshake(ListJournal("s", 3), {"PARENT_SESSION_ID": "p"}).partition(b"\n")
    said = json.loads(line)
    assert (said["request"], said["env"], body) == ({"session": "s", "last": 3}, {"PARENT_SESSION_ID": "p"}, b"")


def line_of(reply: object) -> bytes:
    """Return a reply as the daemon writes it."""
    return json.dumps(plain(reply)).encode()


def test_a_reply_is_read_as_what_its_request_names() -> None:
    """A reply of another shape is a broken promise of the protocol, and says where."""
    answer = accepted(line_of(Accepted(1, True, "1.0", 7, {"clients": 1})), "here")
    assert (answer.version, answer.pid) == ("1.0", 7)
    with pytest.raises(ProtocolError, match="DaemonStatus lacks the field 'http'"):
        reply_to(ShowStatus(), answer)


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (line_of(Refused(1, False, "port?", Fault.USAGE)), DaemonRefused, "port?"),
        (line_of(Refused(1, False, "no such session", Fault.REQUEST)), DaemonRefused, "no such session"),
        (line_of(Refused(1, False, "the disk is full")), ProcessError, "the disk is full"),
        (b"", DaemonUnavailable, "ended before it answered"),
        (GOODBYE, DaemonUnavailable, "ended before it answered"),
        (b"HTTP/1.1 400 Bad Request", ProcessError, "what listens at here is not an rlm-kernel daemon"),
        (b'{"ok": true}', ProcessError, "Accepted lacks the field 'pid'"),
    ],
)
def test_a_refusal_is_the_error_of_whose_fault_it_is(line: bytes, error: type[Exception], words: str) -> None:
    """A script can tell its own mistake (exit code 2 or 1) from a daemon that is gone."""
    with pytest.raises(error, match=re.escape(words)) as caught:
        accepted(line, "here")
    assert getattr(caught.value, "usage", None) in (None, b"usage" in line)


def test_a_mode_that_is_none_is_no_attachment() -> None:
    """An enum refuses what it does not have, with the name of the field."""
    with pytest.raises(ProtocolError, match=r"AddAttachment\.mode: 'owner' is not a valid AttachmentKind"):
        read(AddAttachment, {"session": "s", "mode": "owner"})
