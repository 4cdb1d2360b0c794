"""The web page of a real daemon with real kernels, spoken to by a plain HTTP client."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeWeb, WebServed

PATIENCE = 60.0


class Page:
    """An open page: where it is, what opens it, and what can be asked of it."""

    def __init__(self, reply: WebServed) -> None:
        place = urlsplit(reply.url)
        self.host, self.port = str(place.hostname), int(place.port or 0)
        self.token = reply.token
        self.authority = f"{self.host}:{self.port}"

    def ask(self, method: str, path: str, body: object = None, **headers: str | None) -> http.client.HTTPResponse:
        """Send a request with the token, and JSON if there is a body; a header that is None is left out."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given: dict[str, str | None] = {"Authorization": f"Bearer {self.token}", "Connection": "close"}
        if data is not None:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        connection.connect()
        # Head and body leave together: a server that refuses the head hangs up, and its answer would be lost.
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(data)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        return connection.getresponse()

    def told(self, method: str, path: str, body: object = None, **headers: str | None) -> tuple[int, Any]:
        """Send a request; returns status and JSON of the answer."""
        with self.ask(method, path, body, **headers) as answer:
            return answer.status, json.loads(answer.read())

    def act(self, session: str, deed: str, **given: Any) -> tuple[int, Any]:
        """Have something done to a session."""
        return self.told("POST", f"/api/sessions/{session}/{deed}", given)

    def look(self, session: str = "", until: Callable[[dict[str, Any]], object] = bool) -> dict[str, Any]:
        """Watch until what is known of the page's parts fulfils the condition; returns them."""
        parts: dict[str, Any] = {}
        for line in self.lines(f"?session={session}" if session else ""):
            parts |= json.loads(line)
            if until(parts):
                return parts
        raise AssertionError(f"the page was told no more, and before that {parts}")

    def rows(self, part: str, name: str, query: str = "") -> Iterator[dict[str, Any]]:
        """Watch the rows of a part, by their ids: one state after each piece of news of them."""
        known: dict[str, Any] = {}
        for line in self.lines(query):
            news = json.loads(line).get(part)
            if news is None:
                continue
            if news["whole"]:
                known.clear()
            known |= {row["id"]: row for row in news[name]}
            for gone in news["gone"]:
                del known[gone]
            yield known

    def lines(self, query: str = "") -> Iterator[bytes]:
        """Watch: the raw lines as they come."""
        with self.ask("GET", f"/api/live{query}") as answer:
            assert answer.status == 200
            while line := answer.readline():
                yield line


@pytest.fixture(scope="module")
def control(daemon: Path) -> Iterator[WebServed]:
    """Open the page of a daemon of this module; gives what the daemon says of it."""
    with DaemonConnection(ServeWeb(port=0)) as control:
        yield control.reply


@pytest.fixture
def page(control: WebServed) -> Page:
    """Give the open page."""
    return Page(control)


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run code in a session as an agent does."""

    def run(session: str, code: str) -> Any:
        return call_tool("eval_code", {"code": code}, session=session)

    return run


@pytest.fixture
def begin() -> Iterator[Callable[[str, str], None]]:
    """Start code in a session and leave it running."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(session: str, code: str) -> None:
        program = Path(sys.executable).with_name("rlm-kernel")
        command = [program, "run", "--session", session, code]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    yield begin
    for process in started:
        process.wait(PATIENCE)
