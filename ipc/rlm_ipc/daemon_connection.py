"""A client's connection to the daemon: the socket under a `Dialogue`, for code that may block."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Generic, Self, TypeVar

from rlm_ipc import discovery
from rlm_ipc.daemon_dialogue import (
    CLOSED_UNDER_A_CALL,
    ENDED_AT_HANDSHAKE,
    ENDED_UNDER_A_CALL,
    Dialogue,
    OnProgress,
    accepted,
    handshake,
    no_reply,
    reply_to,
)
from rlm_ipc.daemon_requests import Request, ServeMcp
from rlm_ipc.errors import DaemonNotStarted, DaemonUnavailable
from rlm_ipc.json_lines import CHUNK, daemon_command, daemon_log, socket_path
from rlm_ipc.messages import JsonObject

Reply = TypeVar("Reply")
REPLY_SECONDS = 30.0
_LOOK_SECONDS = 1.0
"""How late a signal is noticed at most that falls between Python's last look at signals and the system's wait."""


def the_socket() -> str:
    """Return where the daemon of this user listens."""
    return socket_path(discovery.runtime_folder())


def is_running() -> bool:
    """Say whether a daemon lives (also while it starts or ends)."""
    return discovery.is_claimed(the_socket())


def start_daemon(*options: str) -> socket.socket:
    """Return a connection to the daemon, which is started if there is none."""
    path = the_socket()
    command = daemon_command(sys.executable, path, *options)
    return discovery.connect_or_start(path, command, log=daemon_log(discovery.state_folder()))


def connect(*, start: bool) -> socket.socket:
    """Return a connection to the daemon; raises :class:`DaemonUnavailable` if none runs, may start or can start."""
    if start:
        try:
            return start_daemon()
        except discovery.DiscoveryError as error:  # who uses the Python client expects errors of one family
            raise DaemonNotStarted(str(error)) from error
    sock = discovery.connect(the_socket())
    if sock is None:
        raise DaemonUnavailable("no daemon is running; start it with: rlm-kernel daemon start")
    return sock


class DaemonConnection(Generic[Reply]):
    """A connection in the role of its request; a context manager.

    ``reply`` is the daemon's answer to the request, ``pid`` and ``version`` are the daemon's. ``environment`` are the
    variables that the daemon gets to see, in place of this process's own.

    Raises:
        DaemonRefused: the daemon does not take the request; the message says what to do.
        DaemonUnavailable: none runs and none was to be started, or could be started, or it ended at once.
        ProcessError: it does not answer within ``seconds``, or is none.
    """

    reply: Reply
    pid: int
    version: str
    _closed = False

    def __init__(
        self,
        request: Request[Reply],
        *,
        start: bool = False,
        seconds: float | None = REPLY_SECONDS,
        environment: Mapping[str, str] | None = None,
        client: str | None = None,
    ) -> None:
        said = handshake(request, environment, client)
        # In the role ``mcp`` nothing is done at the handshake: who was killed before it is asked is no loss.
        for pause in discovery.DYING_SERVER if start and isinstance(request, ServeMcp) else ():
            try:
                self._open(request, said, start, seconds)
            except DaemonNotStarted:
                raise
            except DaemonUnavailable:
                time.sleep(pause)
            else:
                return
        self._open(request, said, start, seconds)

    def _open(self, request: Request[Reply], said: bytes, start: bool, seconds: float | None) -> None:
        self._socket = connect(start=start)
        self._socket.settimeout(seconds)
        self._dialogue = Dialogue()
        try:
            self._socket.sendall(said)
            answer = accepted(self._line(), the_socket())
            self.reply, self.pid, self.version = reply_to(request, answer), answer.pid, answer.version
        except ConnectionError as error:  # it was killed: its socket takes connections for a moment yet
            self.close()
            raise DaemonUnavailable(ENDED_AT_HANDSHAKE) from error
        except TimeoutError as error:
            self.close()
            raise no_reply(seconds) from error
        except BaseException:
            self.close()
            raise

    def wait_for_end(self) -> None:
        """Block until the daemon ends the connection."""
        self._socket.settimeout(_LOOK_SECONDS)
        while True:
            try:
                if not self._line():
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def has_ended(self) -> bool:
        """Say whether the daemon has hung up, or has said that it will, since the last request."""
        self._socket.setblocking(False)
        try:
            while data := self._socket.recv(CHUNK):
                self._dialogue.feed(data)
        except BlockingIOError:
            return self._dialogue.is_over()
        except OSError:
            pass
        return True

    def request(self, method: str, params: JsonObject, on_progress: OnProgress | None = None) -> JsonObject:
        """Send an MCP request and return its result."""
        self._socket.settimeout(None)
        try:
            self._socket.sendall(self._dialogue.request(method, params, on_progress))
            while line := self._line():
                if (answer := self._dialogue.answer(line, on_progress)) is not None:
                    return answer
        except ConnectionError:
            pass
        except OSError:
            if not self._closed:
                raise
        raise DaemonUnavailable(CLOSED_UNDER_A_CALL if self._closed else ENDED_UNDER_A_CALL)

    def close(self) -> None:
        """Hang up. A request that is under way in another thread is cancelled before."""
        self._closed = True
        with suppress(OSError):
            if cancel := self._dialogue.cancel():
                self._socket.settimeout(0)  # a daemon that does not read is not waited for
                self._socket.send(cancel)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread that waits for an answer is woken by it
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> bytes:
        """Return the next line of the daemon; nothing at the end."""
        while (line := self._dialogue.line()) is None:
            data = self._socket.recv(CHUNK)
            if not data:
                return b""
            self._dialogue.feed(data)
        return line


def ask(request: Request[Reply], *, start: bool = False, seconds: float | None = REPLY_SECONDS) -> Reply:
    """Return the daemon's reply to a request that needs no connection afterwards; raises as `DaemonConnection`."""
    with DaemonConnection(request, start=start, seconds=seconds) as connection:
        return connection.reply
