"""Streamable HTTP: who gets in, who does not, and that it leads to the same daemon as everything else."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from waiting import SECONDS, until, wait_until

from rlm_ipc import discovery
from rlm_mcp.errors import SetupFault
from rlm_mcp.web import listener
from rlm_mcp.web.mcp_endpoint import read_token


@pytest.fixture(scope="module")
def endpoint(shared_daemon: Any) -> Iterator[dict[str, Any]]:
    """Give an open endpoint: its URL and the file of its token."""
    sock, reply = shared_daemon.handshake("http", port=0)
    with sock:
        assert reply["ok"], reply
        yield reply["reply"]


@pytest.fixture
def token(endpoint: dict[str, Any]) -> str:
    """Give the token that opens it."""
    return Path(endpoint["token_file"]).read_text().strip()


def _post(endpoint: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any], http.client.HTTPMessage]:
    """Send a ping of the 2026 era; returns status, body and headers of the answer."""
    place = urlsplit(endpoint["url"])
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=SECONDS)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    body = json.dumps(message).encode()
    connection.putrequest("POST", place.path, skip_host="Host" in headers)
    for name, value in {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
        "Content-Length": str(len(body)),
        **headers,
    }.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    data = next((line[5:] for line in text.splitlines() if line.startswith("data:")), text)
    return answer.status, json.loads(data), answer.headers


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_token_opens_the_attachment_in_both_eras(
    endpoint: dict[str, Any], token: str, shared_daemon: Any, era: Any
) -> None:
    """The official client reaches the same daemon as the fronts do, for the session that it names."""
    headers = {"Authorization": f"Bearer {token}", "Rlm-Session": "shared"}
    with anyio.fail_after(60):
        async with (
            create_mcp_http_client(headers=headers) as web,
            Client(streamable_http_client(endpoint["url"], http_client=web), mode=era) as client,
        ):
            result = await client.call_tool("who", {})
    who = json.loads(result.content[0].text)  # type: ignore[union-attr]
    assert who["daemon"] == shared_daemon.pid()
    assert who["env"] == {"PARENT_SESSION_ID": "shared"}
    assert (who["cwd"], who["pid"]) == ("", -1)


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", "Basic wrong", "Bearer \xe4"])
def test_without_the_token_nobody_gets_in(endpoint: dict[str, Any], given: str | None) -> None:
    """401, the scheme to use, and the file that holds the token, but not the token."""
    headers = {} if given is None else {"Authorization": given}
    status, body, answer = _post(endpoint, **headers)
    assert (status, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert endpoint["token_file"] in body["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "10.0.0.1", ""])
def test_a_name_that_was_rebound_to_this_machine_is_refused(endpoint: dict[str, Any], token: str, host: str) -> None:
    """DNS rebinding: the browser sends the page's own host name, even with a stolen token."""
    status, _, _ = _post(endpoint, Host=host, Authorization=f"Bearer {token}")
    assert status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1.evil.example", "null"])
def test_pages_of_other_sites_are_refused(endpoint: dict[str, Any], token: str, origin: str) -> None:
    """A page in the user's browser must not call the user's kernels."""
    status, _, _ = _post(endpoint, Origin=origin, Authorization=f"Bearer {token}")
    assert status == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8137"])
def test_every_name_of_this_machine_is_taken(endpoint: dict[str, Any], token: str, host: str) -> None:
    """Localhost and the loopback addresses, with or without a port."""
    status, body, _ = _post(endpoint, Host=host, Authorization=f"Bearer {token}")
    assert status == 200
    assert body["result"]["tools"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"host": "0.0.0.0"}, "SSH tunnel"),
        ({"host": "192.168.1.1"}, "SSH tunnel"),
        ({"host": {}}, "ServeHttp.host: dict in place of str"),
        ({"port": 99999}, "not a port"),
        ({"port": "80; rm"}, "ServeHttp.port: str in place of int"),
    ],
)
def test_an_attachment_opens_on_loopback_only(shared_daemon: Any, wanted: dict[str, Any], words: str) -> None:
    """Other addresses and nonsense are refused with what to do instead."""
    sock, reply = shared_daemon.handshake("http", **wanted)
    with sock:
        assert not reply["ok"]
        assert words in reply["error"]


def test_a_taken_port_is_named(shared_daemon: Any) -> None:
    """The refusal names address and port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sock, reply = shared_daemon.handshake("http", port=port)
        with sock:
            assert f"127.0.0.1:{port}" in reply["error"]


def test_the_attachment_closes_with_whoever_opened_it(shared_daemon: Any) -> None:
    """When `rlm-kernel serve` ends, however it does, nothing listens any more."""
    sock, reply = shared_daemon.handshake("http", port=0)
    place = urlsplit(reply["reply"]["url"])
    assert place.port is not None
    sock.close()

    def closed() -> bool:
        try:
            socket.create_connection((place.hostname or "", place.port or 0), 5).close()
        except OSError:
            return True
        return False

    wait_until(closed)
    status, reply = shared_daemon.handshake("status")
    with status:
        assert place.geturl() not in reply["reply"]["http"]


def test_the_token_is_made_once_and_for_the_user_alone(isolation: Any) -> None:
    """Mode 0600, at least 256 bits, the same one the next time."""
    file, token = read_token()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(token) >= 43
    assert read_token() == (file, token)


@pytest.mark.parametrize("spoil", ["readable", "empty", "link"])
def test_a_token_file_that_cannot_be_trusted_is_refused(isolation: Any, spoil: str) -> None:
    """A token that others can read or plant protects nothing."""
    file, token = read_token()
    if spoil == "readable":
        file.chmod(0o644)
    elif spoil == "empty":
        file.write_text("")
    else:
        file.unlink()
        file.symlink_to(discovery.runtime_dir() / "elsewhere")
        (discovery.runtime_dir() / "elsewhere").write_text(token)
    with pytest.raises(SetupFault, match="remove the file"):
        read_token()


def _closed(connection: socket.socket) -> bool:
    """Say whether the other end has hung up."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.anyio
async def test_connections_of_strangers_do_not_use_up_the_daemon(
    endpoint: dict[str, Any], shared_daemon: Any, token: str
) -> None:
    """Any user of the machine can open them without a token: a bounded number stays open, and the daemon serves."""
    place, most = urlsplit(endpoint["url"]), listener.MOST_CONNECTIONS
    with contextlib.ExitStack() as opened:
        strangers = [
            opened.enter_context(socket.create_connection((place.hostname, place.port), timeout=SECONDS))
            for _ in range(most + 40)
        ]
        for stranger in strangers:
            stranger.setblocking(False)
        await until(lambda: sum(map(_closed, strangers)) >= 40)
        sock, reply = shared_daemon.handshake("status")
        with sock:
            assert reply["ok"], reply

    async def served() -> bool:
        with contextlib.suppress(ConnectionError):
            return (await asyncio.to_thread(_post, endpoint, Authorization=f"Bearer {token}"))[0] == 200
        return False

    await until(served)


async def _handshake(_scope: Any, receive: Any, send: Any) -> None:
    """Answer every request; an ASGI application."""
    if (await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
        return
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.anyio
async def test_who_connects_and_asks_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those that are open at most would be taken for ever; half a request is none."""
    monkeypatch.setattr(listener, "SECONDS_TO_ASK", 0.3)
    async with listener.listening(_handshake, None, 0) as base:
        for said in (b"", b"GET / HTTP/1.1\r\nHost: "):
            async with await anyio.connect_tcp("127.0.0.1", urlsplit(base).port or 0) as stranger:
                if said:
                    await stranger.send(said)
                with anyio.fail_after(30), contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                    await stranger.receive()
                    pytest.fail("it was answered")
