"""The control socket of the supervisor in asyncio: connect to it or start it, call, and hear of events."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from rlm_ipc import discovery, framing
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.environment import SUPERVISOR, chosen
from rlm_ipc.errors import ProtocolError, SupervisorGone
from rlm_ipc.framed_stream import Stream
from rlm_ipc.messages import read
from rlm_ipc.supervisor_protocol import Event, Operation
from rlm_kernel.failures import from_wire

EventCallback = Callable[[str, Event], None]
Blobs = tuple[bytes, ...]
_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class SupervisorConnection:
    """A connection to the supervisor, made by `connect`.

    Every call raises `SupervisorGone` once the supervisor has ended. ``last_call`` is the number of the latest one.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._ids = itertools.count(1)
        self.last_call = 0
        self._calls: dict[int, tuple[Operation[Any, Any], asyncio.Future[tuple[Any, Blobs]]]] = {}
        self._listeners: list[EventCallback] = []
        self._gone = asyncio.get_running_loop().create_future()
        self._stream = Stream(sock, self._message, self._closed, wire.MAX_CALL)
        self.pid: int | None = None

    @classmethod
    async def connect(cls, *, start: bool = True, runtime: Path | None = None) -> Self:
        """Connect to the supervisor of this user, started if nobody serves.

        Raises `SupervisorGone` when nobody serves and ``start`` is false.
        """
        path = (runtime or discovery.runtime_dir()) / "supervisor.sock"
        for pause in (*discovery.DYING_SERVER, None):
            sock = await asyncio.to_thread(connect_socket, path, start)
            if sock is None:
                break
            client = cls(sock)
            try:
                welcome = await client.call(protocol.HANDSHAKE, protocol.Handshake(wire.PROTOCOL, events=True))
            except SupervisorGone:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                client.pid = welcome.pid
                return client
        raise SupervisorGone("no supervisor is running")

    @property
    def alive(self) -> bool:
        """False once the supervisor has gone."""
        return not self._stream.closed

    async def wait_gone(self) -> None:
        """Return when the supervisor has ended or hung up."""
        await asyncio.shield(self._gone)

    def on_event(self, callback: EventCallback) -> None:
        """Call ``callback(kernel_id, event)`` for every event (`rlm_ipc.supervisor_protocol.EVENTS`)."""
        self._listeners.append(callback)

    def close(self) -> None:
        """Hang up; kernels go on."""
        self._stream.close()

    # -- calls

    def start_call(
        self, operation: Operation[_Request, _Reply], request: _Request, descriptors: Sequence[int] = ()
    ) -> asyncio.Future[tuple[_Reply, Blobs]]:
        """Send a call; the future gets its reply and blobs."""
        future: asyncio.Future[tuple[_Reply, Blobs]] = asyncio.get_running_loop().create_future()
        if self._stream.closed:
            future.set_exception(SupervisorGone())
            framing.Message(b"", (), tuple(descriptors)).close()
            return future
        number = self.last_call = next(self._ids)
        self._calls[number] = operation, future
        self._stream.send(wire.CALL, (wire.call_part(number, operation, request),), descriptors)
        return future

    async def call(
        self, operation: Operation[_Request, _Reply], request: _Request, descriptors: Sequence[int] = ()
    ) -> _Reply:
        """Call and wait; raises the KernelError that the supervisor answers with."""
        reply, _ = await self.start_call(operation, request, descriptors)
        return reply

    def _message(self, message: framing.Message) -> None:
        if message.tag == wire.EVENT:
            kernel_id, event = wire.event_in(message.parts[0])
            for listener in self._listeners:
                listener(kernel_id, event)
            return
        answer = wire.answer_in(message.parts[0])
        operation, future = self._calls.pop(answer.id or 0, (None, None))
        if operation is None or future is None or future.done():
            return
        if answer.failure is not None:
            future.set_exception(from_wire(answer.failure))
            return
        try:
            future.set_result((read(operation.reply, answer.reply), message.parts[1:]))
        except ProtocolError as error:
            future.set_exception(error)

    def _closed(self) -> None:
        failure = self._stream.failure
        calls, self._calls = self._calls, {}
        for _, future in calls.values():
            if not future.done():
                future.set_exception(ProtocolError(str(failure)) if failure else SupervisorGone())
        if not self._gone.done():
            self._gone.set_result(None)


def connect_socket(path: Path, start: bool) -> socket.socket | None:
    """A connected socket to the supervisor at ``path``; None if nobody serves and none is to be started."""
    if not start:
        return discovery.connect(path)
    log = discovery.state_dir() / "supervisor.log"
    argv = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "rlm_kernel.supervisor"]
    argv += ["--socket", str(path), "--log", str(log)]
    return discovery.connect_or_start(path, argv, log=log, env=chosen(SUPERVISOR))
