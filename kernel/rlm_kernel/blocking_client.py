"""A blocking client of the supervisor, for callers without an event loop of their own: provisioners and bridges."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TypeVar

from rlm_ipc import framing
from rlm_ipc import supervisor_core as core
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import SupervisorGone
from rlm_ipc.supervisor_protocol import Operation
from rlm_ipc.version import VERSION
from rlm_kernel.failures import from_wire

__all__ = ["BlockingClient"]

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class BlockingClient:
    """A connection to the supervisor whose calls block. Threads may share it.

    ``socket`` is connected and becomes the client's; ``parser`` holds what has come and was not asked for.

    ``welcome`` tells who serves. A supervisor that speaks another version refuses all calls but those of the core.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.parser = framing.Parser(wire.MAX_CALL)
        self._lock = threading.Lock()
        self.welcome = self.call(protocol.HELLO, core.Hello(core.CORE, wire.SPEAKS, VERSION))

    def call(self, operation: Operation[_Request, _Reply], request: _Request) -> _Reply:
        """Call and wait; raises the KernelError that the supervisor answers with, or `SupervisorGone`.

        What a session shows meanwhile is dropped: nobody is there yet to see it.
        """
        with self._lock:
            try:
                self.socket.sendall(framing.pack(wire.CALL, (wire.call_part(1, operation, request),)))
                while (message := self.parser.next()) is None or message.tag != wire.RESULT:
                    if message is None and not framing.receive(self.socket, self.parser):
                        raise SupervisorGone
            except OSError as error:
                raise SupervisorGone from error
        answer = wire.answer_in(message.parts[0])
        if answer.failure is not None:
            raise from_wire(answer.failure)
        return wire.reply_in(operation, answer)

    def wait_gone(self) -> None:
        """Return when the supervisor has ended or hung up."""
        with suppress(OSError):
            while framing.receive(self.socket, self.parser):
                pass

    def close(self) -> None:
        """Hang up; kernels that this connection owns end."""
        self.socket.close()
