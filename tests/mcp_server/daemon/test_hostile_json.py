"""JSON that costs more than its size tells: one client's message gets an error, and nobody else notices."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inventory import daemon as serving

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection, connect
from rlm_ipc.errors import DaemonRefused
from rlm_ipc.json_lines import MAX_LINE, MODERN_VERSION_KEY, handshake_line
from rlm_ipc.session_requests import ListJournal

pytestmark = pytest.mark.usefixtures("daemon")

MIB = 1 << 20
META = {MODERN_VERSION_KEY: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Line:
    """A client's connection, on which anything can be said."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._file = sock.makefile("rb")

    def say(self, *pieces: bytes) -> dict[str, Any]:
        """Send a line in pieces; return the answer."""
        for piece in (*pieces, b"\n"):
            self._socket.sendall(piece)
        return dict(json.loads(self._file.readline()))

    def call(self, arguments: bytes, tool: str = "load_context") -> dict[str, Any]:
        """Call a tool with arguments as bytes of JSON; return the whole answer."""
        meta = json.dumps(META).encode()
        head = b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"%s","_meta":%s,"arguments":'
        return self.say(head % (tool.encode(), meta), arguments, b"}}")


@contextmanager
def line() -> Iterator[Line]:
    """Connect as a client does."""
    with connect(start=True) as sock:
        sock.settimeout(90)
        made = Line(sock)
        assert made.say(handshake_line().rstrip())["ok"]
        yield made


def peak() -> int:
    """Bytes that the daemon has held at one time since this was last asked."""
    process = serving()
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def many_keys() -> bytes:
    """An object of two million keys."""
    return b"{" + b",".join(b'"k%d":1' % number for number in range(2_000_000)) + b"}"


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a number of a megabyte": lambda: b'{"name":"x","content":"c","metadata":' + b'{"n":' + b"9" * MIB + b"}}",
    "a number where a text is wanted": lambda: b'{"name":' + b"7" * MIB + b"}",
    "nested": lambda: b'{"name":"x","metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "nested lists": lambda: b'{"name":"x","metadata":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "many keys": lambda: b'{"name":"x","content":"c","metadata":' + many_keys() + b"}",
    "many lists": lambda: b'{"name":"x","metadata":{"a":[' + b"[]," * 8_000_000 + b"[]]}}",
    "many lists in a text": lambda: b'{"name":"x","content":"c","metadata":"[' + b"[]," * 8_000_000 + b'[]]"}',
    "nested in a text": lambda: b'{"name":"x","content":"c","metadata":"' + b"[" * 100_000 + b'"}',
    "not a number": lambda: b'{"name":"x","content":"c","metadata":{"n":NaN}}',
    "without end": lambda: b'{"name":"x","content":"c","metadata":{"n":-Infinity,"m":1e999}}',
    "the same key again": lambda: b'{"name":"x","name":"' + b"y" * 300 + b'","content":"c"}',
}
"""Made when they are sent: most processes that read this file send none of them."""


@pytest.mark.parametrize("name", HOSTILE)
def test_json_that_costs_more_than_it_tells_gets_an_error(module_isolation: Any, name: str) -> None:
    """The connection goes on, other clients and sessions too, and the daemon has not held many times the message."""
    assert call_tool("eval_code", {"code": "kept = 1"}, session="other")["success"]
    peak()
    before = peak()
    hostile = HOSTILE[name]()
    with line() as client:
        answer = client.call(hostile)
        said = answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]
        assert answer["id"] == 3
        assert "error" in answer or json.loads(said).get("error"), said
        assert len(said) < 2000
        assert client.call(b'{"code":"kept"}', "eval_code")["id"] == 3
    assert peak() - before < 8 * len(hostile) + 64 * MIB
    assert call_tool("eval_code", {"code": "kept"}, session="other")["result"] == "1"


def test_a_number_of_a_gigabyte_is_read_past(module_isolation: Any) -> None:
    """What is longer than a line may be is never held."""
    peak()
    before = peak()
    with line() as client:
        answer = client.say(b'{"jsonrpc":"2.0","id":3,"method":"ping","params":{"n":', *[b"9" * MIB] * 1024, b"}}")
        assert "the limit is" in answer["error"]["message"]
        assert client.call(b'{"code":"1"}', "eval_code")["id"] == 3
    assert peak() - before < 3 * MAX_LINE


@pytest.mark.parametrize("body", [b"9" * MIB, b"[" * 100_000, b"[" + b"[]," * 2_000_000 + b"[]]", b'{"session": NaN}'])
def test_a_body_that_costs_more_than_it_tells_is_none(module_isolation: Any, body: bytes) -> None:
    """The daemon's own commands send bodies too."""
    with connect(start=True) as sock:
        sock.settimeout(90)
        sock.sendall(handshake_line("turn", bytes=len(body)) + body)
        answer = json.loads(sock.makefile("rb").readline())
    assert not answer["ok"]
    with pytest.raises(DaemonRefused), DaemonConnection(ListJournal(session="nobody")):
        pass
