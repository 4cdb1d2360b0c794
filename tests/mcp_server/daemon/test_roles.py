"""The daemon's roles: it serves those of the table, and tells whoever asks badly what is wrong."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from rlm_ipc.daemon_protocol import ROLES, RestoreSession, ServeHttp, ServeMcp, ServeWeb, StopDaemon
from rlm_mcp.daemon.__main__ import Daemon

BY_THEMSELVES = {ServeMcp, ServeHttp, ServeWeb, StopDaemon, RestoreSession}
"""Requests whose role needs to know who asks."""


def test_every_role_of_the_table_is_answered_with_its_reply() -> None:
    """A handler takes the request and gives the reply that the table names."""
    daemon = Daemon(server=None, state=None, path=None)  # type: ignore[arg-type]  # nothing of it is called
    assert {role.request for role in ROLES.values()} - BY_THEMSELVES == set(daemon._answers)
    replies = {role.request: role.reply for role in ROLES.values()}
    for request, answer in daemon._answers.items():
        hints = typing.get_type_hints(answer)
        reply = hints.pop("return")
        assert (list(hints.values()), reply) == ([request], replies[request])


@pytest.mark.parametrize(
    ("role", "fields", "words"),
    [
        ("journal", {}, "not a ListJournal: ListJournal lacks the field 'session'"),
        ("journal", {"session": 7}, "ListJournal.session: int in place of str"),
        ("journal", {"session": "s", "last": "all"}, "ListJournal.last: str in place of int"),
        ("save", {"session": "s", "embed": 1}, "SaveSession.embed: int in place of bool"),
        ("status", {"verbose": True}, "ShowStatus has no field 'verbose'"),
        ("add_attachment", {"session": "s", "mode": "owner"}, "'owner' is not a valid AttachmentKind"),
        ("turn", {"session": "s", "said": 1}, "KeepTurn lacks the field 'ended_at'"),
        ("nothing", {}, "there is no role 'nothing'; roles are mcp, status"),
    ],
)
def test_a_request_that_is_none_is_refused_with_the_field(
    shared_daemon: Any, role: str, fields: dict[str, Any], words: str
) -> None:
    """Whoever writes a client of their own sees what to correct; nothing is made of it by guessing."""
    sock, reply = shared_daemon.handshake(role, **fields)
    with sock:
        assert (reply["ok"], reply["fault"]) == (False, "request")
        assert words in reply["error"]


def test_a_role_that_fails_is_told_as_the_daemons_fault(shared_daemon: Any) -> None:
    """The toy behind this daemon keeps no journal at all: an error of ours is no silent end of the connection."""
    sock, reply = shared_daemon.handshake("journal", session="s")
    with sock:
        assert (reply["ok"], reply["fault"]) == (False, "daemon")
        assert "the daemon failed (AttributeError" in reply["error"]
