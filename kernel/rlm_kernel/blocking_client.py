"""A blocking client of the supervisor, for callers without an event loop of their own: provisioners and bridges."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlm_ipc import discovery, framing
from rlm_ipc import supervisor_core as core
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import SupervisorGone
from rlm_ipc.supervisor_protocol import Operation, Reply, Request
from rlm_ipc.version import VERSION
from rlm_kernel.failures import from_wire

_PAUSES = (0.0, 0.02, 0.1, 0.5, 2.0)
"""In seconds."""


class BlockingClient:
    """A connection to the supervisor whose calls block. Threads may share it.

    ``socket`` is connected and becomes the client's; ``parser`` holds data that arrived unrequested. With a ``path``
    the client reconnects when the supervisor has died.

    ``welcome`` says who serves. A supervisor that speaks another version refuses all calls but those of the core.
    """

    def __init__(self, sock: socket.socket, path: Path | None = None) -> None:
        self.socket, self._path = sock, path
        self.parser = framing.Parser(wire.MAX_CALL)
        self._lock = threading.Lock()
        self._pid: int | None = None
        self.welcome = self.call(protocol.HELLO, core.Hello(core.CORE, wire.SPEAKS, VERSION))
        self._pid = self.welcome.pid

    def call(self, operation: Operation[Request, Reply], request: Request) -> Reply:
        """Call and wait; raises the KernelError that the supervisor answers with, or `SupervisorGone`.

        What a session shows meanwhile is dropped: nobody is there yet to see it.
        """
        with self._lock:
            while True:  # the successor may die as well
                try:
                    answer = self._exchange(operation, request)
                    break
                except SupervisorGone:
                    if self._path is None or operation in protocol.ONCE:
                        raise
                    self._connect_again(self._path)
        if answer.failure is not None:
            raise from_wire(answer.failure)
        return wire.reply_in(operation, answer)

    def _exchange(self, operation: Operation[Any, Any], request: object) -> wire.Answer:
        try:
            self.socket.sendall(framing.pack(wire.CALL, (wire.call_part(1, operation, request),)))
            while (message := self.parser.next()) is None or message.tag != wire.RESULT:
                if message is None and not framing.receive(self.socket, self.parser):
                    raise SupervisorGone
        except OSError as error:
            raise SupervisorGone from error
        return wire.answer_in(message.parts[0])

    def _connect_again(self, path: Path) -> None:
        """Continue with the supervisor that has taken over; raises `SupervisorGone` if there is none."""
        self.socket.close()
        other = next(clients_after(self._pid, path), None)
        if other is None:
            raise SupervisorGone
        self.socket, self.parser, self.welcome, self._pid = other.socket, other.parser, other.welcome, other._pid

    def wait_gone(self) -> None:
        """Return when the supervisor has ended or hung up."""
        with suppress(OSError):
            while framing.receive(self.socket, self.parser):
                pass

    def close(self) -> None:
        """Hang up; kernels that this connection owns end."""
        self.socket.close()


def clients_after(before: int | None, path: Path) -> Iterator[BlockingClient]:
    """Connect to the server at ``path``, and again while it dies: the successor may die as well.

    Stop at the process ``before``: a supervisor that hangs up but lives has its reason.
    """
    for pause in _PAUSES:
        time.sleep(pause)
        if (sock := discovery.connect(path)) is None:
            return
        try:
            client = BlockingClient(sock)
        except SupervisorGone:
            continue
        if client.welcome.pid == before:
            client.close()
            return
        yield client
