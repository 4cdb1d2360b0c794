"""The stdio front, ``rlm-kernel mcp``: the program that an MCP client starts, a relay to the shared daemon.

It uses only the standard library and, except for the start of a daemon, one thread: a ``poll`` loop over the client's
two pipes and the daemon's socket. :mod:`rlm_mcp.front.proxy` decides which line goes where; this module does only
input and output. Nothing blocks on a client or daemon that does not read, and no backlog grows without limit: while
one side does not read, the other side is not read.
"""

from __future__ import annotations

import _thread
import os
import select
import stat
import sys
import time

from rlm_ipc import discovery, life_lock
from rlm_ipc.json_lines import (
    CHUNK,
    HANDSHAKE_ENVIRONMENT,
    LineSplitter,
    Oversized,
    daemon_command,
    daemon_log,
    handshake_line,
    socket_path,
)
from rlm_mcp.front.cached_answers import FIRST_ANSWERS, Answers
from rlm_mcp.front.proxy import STARTING, FrontProxy, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from typing import NoReturn

STDIN, STDOUT = 0, 1
BACKLOG = 16 * 1024 * 1024
"""If this many bytes wait for one side, the other side is not read."""
HELLO_TRIES = 5
LINGER_SECONDS = 5.0
"""How long a client that closed its side still gets pending answers."""
CLOSED = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Outlet:
    """Buffered writing to a descriptor that must not block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        # Only for pipes and sockets: the changed flags of a terminal would remain for the shell.
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(descriptor, False)

    def __len__(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        """Write as much as possible now, and keep the rest for :meth:`flush`."""
        self._buffer += data
        self.flush()

    def flush(self) -> None:
        """Write more of the kept bytes. Raises :class:`OSError` if the other side is gone."""
        try:
            while self._buffer:
                del self._buffer[: os.write(self._descriptor, memoryview(self._buffer)[:CHUNK])]
        except BlockingIOError:
            pass


class Places:
    """Return where this client's daemon listens, and how to start it.

    Raises :class:`~rlm_ipc.discovery.DiscoveryError` if the user's folders cannot be used.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.runtime, self.state = discovery.runtime_folder(), discovery.state_folder()
        self.socket = socket_path(self.runtime)
        self.command = daemon_command(sys.executable, self.socket, *arguments)
        self.log = daemon_log(self.state)


class StdioFront:
    """One client, from its first line to its last. ``arguments`` are passed to a daemon that it starts."""

    def __init__(self, arguments: Sequence[str], answers: Answers) -> None:
        self._space = memoryview(bytearray(CHUNK))  # new memory for each read would cost page faults
        self._arguments = arguments
        self._answers = answers
        self._places: Places | None = None
        self._lock = ""
        self._stdout = Outlet(STDOUT)
        self._relay = FrontProxy(
            answers, to_client=self._stdout.write, to_daemon=self._to_daemon, start=self._find_daemon
        )
        self._client_lines = LineSplitter()
        self._daemon: socket.socket | None = None
        self._daemon_lines = LineSplitter()
        self._to_socket: Outlet | None = None
        self._greeted = False
        self._handshake_tries = 0
        self._client_gone_at: float | None = None
        # The starting thread hands its result over through this pipe, so that poll() sees it.
        self._started: socket.socket | str | None = None
        self._wake_reader, self._wake_writer = os.pipe()

    def run(self) -> None:
        """Serve until the client disconnects."""
        self._relay.need_daemon()
        while not self._finished():
            for descriptor, event in self._poll():
                self._on_event(descriptor, event)

    def _finished(self) -> bool:
        if self._client_gone_at is None:
            return False
        if not (self._relay.busy or self._relay.waiting or self._stdout):
            return True
        if self._relay.state == STARTING:  # the start has its own time limit
            self._client_gone_at = time.monotonic()
        return time.monotonic() - self._client_gone_at > LINGER_SECONDS

    def _poll(self) -> list[tuple[int, int]]:
        poller = select.poll()
        backlog = len(self._to_socket) if self._to_socket else sum(map(len, self._relay.waiting))
        if self._client_gone_at is None and backlog < BACKLOG:
            poller.register(STDIN, select.POLLIN)
        poller.register(STDOUT, select.POLLOUT if self._stdout else 0)
        poller.register(self._wake_reader, select.POLLIN)
        if self._daemon is not None:
            reading = select.POLLIN if len(self._stdout) < BACKLOG else 0
            poller.register(self._daemon, reading | (select.POLLOUT if self._to_socket else 0))
        return poller.poll(None if self._client_gone_at is None else 100)

    def _on_event(self, descriptor: int, event: int) -> None:
        if descriptor == STDIN:
            self._read_client()
        elif descriptor == STDOUT:
            if event & CLOSED:
                raise BrokenPipeError
            self._stdout.flush()
        elif descriptor == self._wake_reader:
            os.read(self._wake_reader, 1)
            self._daemon_found()
        elif self._daemon is not None and descriptor == self._daemon.fileno():
            self._on_daemon(event)

    def _read(self, descriptor: int) -> bytes:
        return bytes(self._space[: os.readv(descriptor, [self._space])])

    # --- the client -------------------------------------------------------------------------------

    def _read_client(self) -> None:
        data = self._read(STDIN)
        if not data:
            self._client_gone_at = time.monotonic()
            return
        for line in self._client_lines.feed(data):
            self._notice_end_of_daemon()
            self._relay.client_line(line)

    # --- the daemon -------------------------------------------------------------------------------

    def _find_daemon(self) -> None:
        """Connect at once if a daemon listens, else start one in a thread and continue."""
        try:
            places = self._usable_places()
            self._started = discovery.connect(places.socket)
        except discovery.DiscoveryError as error:
            self._started = str(error)
        if self._started is not None:
            os.write(self._wake_writer, b"1")
        else:
            _thread.start_new_thread(self._start_daemon, (places,))

    def _usable_places(self) -> Places:
        """Look for the folders until they can be used: a user may fix them while the client runs."""
        if self._places is None:
            self._places = Places(self._arguments)
            self._answers.path = f"{self._places.state}/front-answers.json"
            self._lock = life_lock.hold(self._places.runtime)
        return self._places

    def let_go(self) -> None:
        """Remove the file that marks this front as alive."""
        if self._places is not None:
            life_lock.let_go(self._places.runtime, self._lock)

    def _start_daemon(self, places: Places) -> None:
        try:
            self._started = discovery.connect_or_start(
                places.socket, places.command, log=places.log, env=_daemon_environment()
            )
        except Exception as error:  # whatever it is, the client must be told
            self._started = str(error) or repr(error)
        os.write(self._wake_writer, b"1")

    def _daemon_found(self) -> None:
        """Take the result of the start attempt, and send the handshake."""
        found, self._started = self._started, None
        if found is None or isinstance(found, str):
            self._relay.start_failed(found or "the daemon did not start")
            return
        self._daemon, self._daemon_lines, self._greeted = found, LineSplitter(), False
        self._to_socket = Outlet(found.fileno())
        self._to_daemon(handshake_line(lock=self._lock))

    def _to_daemon(self, line: bytes) -> None:
        if self._to_socket is not None:
            try:
                self._to_socket.write(line)
            except OSError:
                pass  # poll() reports the loss

    def _notice_end_of_daemon(self) -> None:
        """Notice that a daemon has ended before a line is sent to it: the line would count as lost with it."""
        while self._daemon is not None:
            poller = select.poll()
            poller.register(self._daemon, 0)
            if not poller.poll(0):
                return
            self._on_daemon(select.POLLIN)

    def _on_daemon(self, event: int) -> None:
        try:
            if event & select.POLLOUT and self._to_socket is not None:
                self._to_socket.flush()
            data = self._read(self._daemon.fileno()) if event & ~select.POLLOUT and self._daemon else None
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data == b"":
            self._daemon_ended()
        elif data is not None:
            for line in self._daemon_lines.feed(data):
                self._daemon_line(line)

    def _daemon_line(self, line: bytes | Oversized) -> None:
        if self._greeted:
            self._relay.daemon_line(line)
            return
        reply = parse(line) if isinstance(line, bytes) else {}
        if reply.get("ok"):
            self._greeted, self._handshake_tries = True, 0
            self._relay.daemon_started()
        else:
            self._hang_up()
            self._relay.start_failed(reply.get("error", "the daemon refused the connection"))

    def _daemon_ended(self) -> None:
        greeted = self._greeted
        self._hang_up()
        if greeted:
            self._relay.daemon_lost()
        elif (tries := self._handshake_tries) < HELLO_TRIES:  # it was shutting down: another one will be started
            self._handshake_tries = tries + 1
            self._find_daemon()
        else:
            self._handshake_tries = 0
            log = self._places.log if self._places else "its log"
            self._relay.start_failed(f"every daemon ends before it answers; see {log}")

    def _hang_up(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
        self._daemon = self._to_socket = None
        self._greeted = False


def _daemon_environment() -> dict[str, str]:
    """Return the environment of a daemon: ours without the variables that concern only this client."""
    return {name: value for name, value in os.environ.items() if name not in HANDSHAKE_ENVIRONMENT}


def main(arguments: Sequence[str] = ()) -> NoReturn:
    """Run the front; ``arguments`` are passed on to the daemon if one must be started.

    Clients do not show a server's standard error. So a front whose folders cannot be used serves anyway, and answers
    each call with the reason.
    """
    first = "" if arguments else FIRST_ANSWERS  # a server other than ours would answer differently
    front = StdioFront(arguments, Answers("", first))
    try:
        front.run()
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the client is gone, so there is no one to tell
    finally:
        front.let_go()
    # A thread may still wait for a daemon to start, which continues without us.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
