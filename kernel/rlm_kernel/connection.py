"""A client's connection to the daemon: the socket, the hello line, then a control role's reply or MCP requests.

MCP is spoken in its stateless form, which needs no handshake: a few lines of the standard library do for what takes
the SDK a second to import.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from rlm_kernel import rendezvous
from rlm_kernel.errors import DaemonRefused, DaemonUnavailable, ProcessError, ProtocolError, ToolFailed
from rlm_kernel.link import (
    CHUNK,
    GOODBYE,
    MODERN_VERSION_KEY,
    LineSplitter,
    Oversized,
    daemon_command,
    daemon_log,
    hello_line,
    socket_path,
)
from rlm_kernel.version import VERSION

__all__ = ["Control", "OnProgress", "connect", "is_running", "start_daemon", "the_socket"]

OnProgress = Callable[[float, float | None, str], None]
"""Hears how much of a call is done, how much there is if that is known, and what is happening."""
REPLY_SECONDS = 30.0
_ENVELOPE = {
    MODERN_VERSION_KEY: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "rlm-kernel", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""What a request of the stateless protocol says about its client."""


def the_socket() -> str:
    """Return where the daemon of this user listens."""
    return socket_path(rendezvous.runtime_folder())


def is_running() -> bool:
    """Say whether a daemon lives (also while it starts or ends)."""
    return rendezvous.is_claimed(the_socket())


def start_daemon(*options: str) -> socket.socket:
    """Return a connection to the daemon, which is started if there is none."""
    path = the_socket()
    command = daemon_command(sys.executable, path, *options)
    return rendezvous.connect_or_start(path, command, log=daemon_log(rendezvous.state_folder()))


def connect(*, start: bool) -> socket.socket:
    """Return a connection to the daemon; raises :class:`DaemonUnavailable` if none runs or may start."""
    if start:
        return start_daemon()
    sock = rendezvous.connect(the_socket())
    if sock is None:
        raise DaemonUnavailable("no daemon is running; start it with: rlm-kernel daemon start")
    return sock


class Control:
    """A connection in one of the daemon's roles; a context manager. ``reply`` is its answer to the hello line.

    What has no room in that line, which is short, goes into the ``body`` behind it, as JSON.
    """

    def __init__(
        self,
        role: str,
        *,
        start: bool = False,
        seconds: float | None = REPLY_SECONDS,
        body: object = None,
        **more: object,
    ) -> None:
        self._socket = connect(start=start)
        self._socket.settimeout(seconds)
        self._splitter = LineSplitter()
        self._lines: deque[bytes | Oversized] = deque()
        self._requests = 0
        try:
            behind = b"" if body is None else json.dumps(body).encode()
            self._socket.sendall(hello_line(role, **more, **({"bytes": len(behind)} if behind else {})) + behind)
            self.reply = _reply(self._line())
        except ConnectionError as error:  # it was killed: its socket takes connections for a moment yet
            self.close()
            raise DaemonUnavailable("the daemon ended before it answered; try again") from error
        except TimeoutError as error:
            self.close()
            said = f"the daemon has not answered for {seconds:g} s; see whether it is overloaded, or end its process"
            raise ProcessError(said) from error
        except BaseException:
            self.close()
            raise

    def wait_for_end(self) -> None:
        """Block until the daemon ends the connection."""
        self._socket.settimeout(None)
        try:
            while self._line():
                pass
        except OSError:
            pass

    def has_ended(self) -> bool:
        """Say whether the daemon has hung up, or has said that it will, since the last request."""
        self._socket.setblocking(False)
        try:
            while data := self._socket.recv(CHUNK):
                self._lines.extend(self._splitter.feed(data))
        except BlockingIOError:
            return GOODBYE.strip() in self._lines
        except OSError:
            pass
        return True

    def request(self, method: str, params: dict[str, Any], on_progress: OnProgress | None = None) -> dict[str, Any]:
        """Send an MCP request and return its result; of notifications it passes on those of progress."""
        self._socket.settimeout(None)
        self._requests += 1
        meta = _ENVELOPE if on_progress is None else {**_ENVELOPE, "progressToken": self._requests}
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": {**params, "_meta": meta}}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            while line := self._line():
                answer = json.loads(line)
                if answer.get("id") == self._requests:
                    return _result(answer)
                if on_progress is not None and answer.get("method") == "notifications/progress":
                    told = answer["params"]
                    on_progress(told["progress"], told.get("total"), told.get("message") or "")
        except ConnectionError:
            pass
        raise DaemonUnavailable("the daemon ended before it answered; look at what was done, then try again")

    def close(self) -> None:
        """Hang up. A request that is under way is cancelled by it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread that waits for an answer is woken by it
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> bytes:
        """Return the next line of the daemon; nothing at the end."""
        while not self._lines:
            data = self._socket.recv(CHUNK)
            if not data:
                return b""
            self._lines.extend(self._splitter.feed(data))
        line = self._lines.popleft()
        if isinstance(line, Oversized):
            raise ProtocolError(f"the daemon sent a line of {line.size:,} bytes; ask for less at once")
        return line


def _reply(line: bytes) -> dict[str, Any]:
    """Return the daemon's answer to a hello; raises when it refused or is gone."""
    if not line:
        raise DaemonUnavailable("the daemon ended before it answered; try again")
    try:
        reply = json.loads(line)
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise ProcessError(f"what listens at {the_socket()} is no daemon of ours; end that process, or remove the file")
    if not reply.get("ok"):
        said, fault = str(reply.get("error", "the daemon refused the connection")), reply.get("fault")
        if fault is None:  # without a word the daemon is at fault
            raise ProcessError(said)
        raise DaemonRefused(said, usage=fault == "usage")
    return reply


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ToolFailed(str(answer["error"].get("message")), answer)
    result: dict[str, Any] = answer["result"]
    return result
