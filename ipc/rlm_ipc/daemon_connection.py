"""A client's connection to the daemon: the socket under a `Dialogue`, for code that may block."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, Self

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
from rlm_ipc.daemon_requests import Reply, Request, ServeMcp
from rlm_ipc.errors import DaemonNotStarted, DaemonUnavailable
from rlm_ipc.json_lines import CHUNK, daemon_command, daemon_log, socket_path
from rlm_ipc.messages import JsonObject

REPLY_SECONDS = 30.0
_LOOK_SECONDS = 1.0
"""The longest delay until a signal is noticed that arrives between Python's last check for signals and the system's
wait.
"""


def the_socket() -> str:
    """Return where the daemon of this user listens."""
    return socket_path(discovery.runtime_folder())


def is_running() -> bool:
    """Return whether a daemon is alive, even while it is starting or ending."""
    return discovery.is_claimed(the_socket())


def start_daemon(*options: str) -> socket.socket:
    """Return a connection to the daemon, starting one if there is none."""
    path = the_socket()
    command = daemon_command(sys.executable, path, *options)
    return discovery.connect_or_start(path, command, log=daemon_log(discovery.state_folder()))


def connect(*, start: bool) -> socket.socket:
    """Return a connection to the daemon.

    Raises:
        DaemonUnavailable: none is running, and none may or can be started.
    """
    if start:
        try:
            return start_daemon()
        except discovery.DiscoveryError as error:  # users of the Python client expect one family of errors
            raise DaemonNotStarted(str(error)) from error
    sock = discovery.connect(the_socket())
    if sock is None:
        raise DaemonUnavailable("no daemon is running; start it with: rlm-kernel daemon start")
    return sock


class DaemonConnection(Generic[Reply]):
    """A connection in the role of its request; a context manager.

    ``reply`` is the daemon's answer to the request, ``pid`` and ``version`` are the daemon's. ``environment`` holds the
    variables that the daemon sees, in place of this process's own.

    Raises:
        DaemonRefused: the daemon refuses the request; the message says what to do.
        DaemonUnavailable: none is running and none may or can be started, or it ended at once.
        ProcessError: it does not answer within ``seconds``, or is not a daemon.
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
        said = partial(handshake, request, environment, client)
        # In the role ``mcp`` the handshake does nothing yet, so nothing is lost if the daemon is killed before the
        # first request.
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

    def _open(self, request: Request[Reply], said: Callable[[], bytes], start: bool, seconds: float | None) -> None:
        self._socket = connect(start=start)
        self._socket.settimeout(seconds)
        self._dialogue = Dialogue()
        try:
            self._socket.sendall(said())
            answer = accepted(self._line(), the_socket())
            self.reply, self.pid, self.version = reply_to(request, answer), answer.pid, answer.version
        except ConnectionError as error:  # it was killed: its socket still accepts connections for a moment
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
        """Return whether the daemon has hung up, or announced that it will, since the last request."""
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
        """Hang up. A request in progress in another thread is cancelled first."""
        self._closed = True
        with suppress(OSError):
            if cancel := self._dialogue.cancel():
                self._socket.settimeout(0)  # do not wait for a daemon that does not read
                self._socket.send(cancel)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # this wakes a thread that waits for an answer
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> bytes:
        """Return the daemon's next line; empty at the end."""
        while (line := self._dialogue.line()) is None:
            data = self._socket.recv(CHUNK)
            if not data:
                return b""
            self._dialogue.feed(data)
        return line


def ask(request: Request[Reply], *, start: bool = False, seconds: float | None = REPLY_SECONDS) -> Reply:
    """Return the daemon's reply to a request that needs no further connection; raises as `DaemonConnection`."""
    with DaemonConnection(request, start=start, seconds=seconds) as connection:
        return connection.reply
