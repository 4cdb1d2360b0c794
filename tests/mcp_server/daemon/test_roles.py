"""The daemon's roles: it serves those of the table, and tells whoever asks badly what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from rlm_ipc.daemon_protocol import ROLES
from rlm_ipc.daemon_requests import ServeHttp, ServeMcp, ServeWeb, ShowStatus, StopDaemon
from rlm_mcp.daemon.requests import answer

OF_THE_DAEMON = {ServeMcp, ServeHttp, ServeWeb, ShowStatus, StopDaemon}
"""Requests that the daemon answers itself, and not the service."""


@pytest.mark.anyio
@pytest.mark.parametrize("kind", sorted(set(ROLES.values()) - OF_THE_DAEMON, key=str))
async def test_every_role_of_the_table_is_answered(kind: Any) -> None:
    """A role that is added to the table only fails here. What each is answered with, mypy compares with its type."""
    with pytest.raises(AttributeError):  # of the service, which is not there
        await answer(None, None, object.__new__(kind))  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_request_that_nobody_answers_is_named() -> None:
    """The daemon reports it as its own fault."""
    with pytest.raises(NotImplementedError, match="http"):
        await answer(None, None, ServeHttp())  # type: ignore[arg-type]


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
