"""Daemons that start, die, stop and come back, as the client of a front sees it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import PROGRAM_SECONDS, wait_until

from rlm_ipc import discovery


def test_a_cold_start_serves_the_handshake_and_the_tools(open_front: Callable[..., Any], daemons: Any) -> None:
    """K-27: a client that starts the front over stdio gets an initialized server with tools."""
    front = open_front()
    assert front.initialize()["serverInfo"]["name"] == "toy"
    tools = front.answer(front.send("tools/list"))["result"]["tools"]
    assert "echo" in [tool["name"] for tool in tools]


def test_the_daemon_does_not_inherit_one_clients_session(
    open_front: Callable[..., Any], daemons: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-12: the client that starts the daemon does not leave its session id to all the others."""
    monkeypatch.setenv("PARENT_SESSION_ID", "ses_first")
    front = open_front()
    front.initialize()
    front.text(front.call("who"))
    environment = Path(f"/proc/{daemons.pid()}/environ").read_bytes()
    assert b"PARENT_SESSION_ID" not in environment


def test_a_killed_daemon_costs_the_running_call_and_nothing_else(open_front: Callable[..., Any], daemons: Any) -> None:
    """A call that was running is answered with what was lost; the next works without a new handshake."""
    front = open_front()
    front.initialize()
    lost = front.call("hang")
    wait_until(lambda: Path(os.environ["TOY_HANGING"]).exists())
    before = daemons.pid()
    daemons.kill()
    told = json.loads(front.text(lost))
    assert told["error"] == "call_lost"
    assert "tools/call hang was lost" in told["message"]
    assert "list_vars" in told["hint"]
    after = json.loads(front.text(front.call("who")))["daemon"]
    assert after != before


def test_a_front_survives_daemon_after_daemon(open_front: Callable[..., Any], daemons: Any) -> None:
    """Five kills in a row: the same connection of the client goes on."""
    front = open_front()
    front.initialize()
    for number in range(5):
        assert front.text(front.call("echo", text=str(number))) == str(number)
        daemons.kill()
    assert front.text(front.call("echo", text="still here")) == "still here"


def test_a_stopped_daemon_comes_back_only_when_it_is_needed(open_front: Callable[..., Any], daemons: Any) -> None:
    """SIGTERM ends the daemon in order: fronts start no other until their client asks for something."""
    front = open_front()
    front.initialize()
    front.text(front.call("who"))
    daemons.kill(signal.SIGTERM)
    assert not discovery.is_claimed(daemons.path)
    assert front.text(front.call("echo", text="again")) == "again"
    assert daemons.pid() is not None


def test_a_running_call_hears_of_an_orderly_stop(open_front: Callable[..., Any], daemons: Any) -> None:
    """A call that runs when the daemon is told to stop is answered, too."""
    front = open_front()
    front.initialize()
    lost = front.call("hang")
    wait_until(lambda: Path(os.environ["TOY_HANGING"]).exists())
    daemons.kill(signal.SIGTERM)
    assert "was lost" in json.loads(front.text(lost))["message"]


def test_tools_are_shown_while_the_daemon_is_still_starting(
    open_front: Callable[..., Any], daemons: Any, isolation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold start after the first one answers initialize and tools/list before the daemon is up."""
    first = open_front()
    first.initialize()
    first.answer(first.send("tools/list"))
    first.close()
    daemons.kill()
    gate = isolation.root / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv("TOY_GATE", str(gate))
    monkeypatch.setenv("TOY_TOOLS", "brand_new")
    front = open_front()
    assert front.initialize()["serverInfo"]["name"] == "toy"
    shown = front.answer(front.send("tools/list"))["result"]["tools"]
    assert "brand_new" not in [tool["name"] for tool in shown]
    call = front.call("echo", text="waited for")
    gate.write_text("")
    messages = [front.receive(), front.receive()]
    assert {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} in messages
    assert call in [message.get("id") for message in messages]
    real = front.answer(front.send("tools/list"))["result"]["tools"]
    assert "brand_new" in [tool["name"] for tool in real]


def test_a_daemon_that_cannot_start_is_explained_to_every_call(open_front: Callable[..., Any], daemons: Any) -> None:
    """The client gets the reason as an answer instead of a server that silently disappears."""
    front = open_front("--server", "rlm_toy:missing")
    for _ in range(2):
        message = front.answer(front.send("ping"))
        assert "rlm_toy:missing" in message["error"]["message"]
        assert "rlm-kernel doctor" in message["error"]["message"]


def test_a_daemon_that_dies_while_starting_shows_its_last_words(open_front: Callable[..., Any], daemons: Any) -> None:
    """What the daemon wrote before it died is part of the answer."""
    front = open_front("--server", "rlm_toy:broken")
    assert "the toy is broken" in front.answer(front.send("ping"))["error"]["message"]


def test_a_stranger_at_the_socket_is_no_daemon(open_front: Callable[..., Any], daemons: Any) -> None:
    """Something else that answers at our path costs an error, not the front."""
    with discovery.listen(daemons.path) as listener:
        front = open_front()
        call = front.send("ping")
        connection, _ = listener.accept()
        with connection:
            connection.recv(10_000)
            connection.sendall(b"220 mail.example ESMTP\n")
            assert "refused" in front.answer(call)["error"]["message"]
    assert front.answer(front.send("ping"))["result"] == {}


def test_a_client_that_pipes_its_requests_gets_all_answers(daemons: Any) -> None:
    """Input that ends at once, as from `printf … | rlm-kernel mcp`: the answers still come."""
    handshake = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": handshake},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "x"}},
        },
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rlm_mcp.front", "--server", daemons.server],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
