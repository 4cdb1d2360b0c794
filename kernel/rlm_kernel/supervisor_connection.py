"""The control socket of the supervisor in asyncio: connect to it or start it, call, and receive events."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, cast

from rlm_ipc import discovery, framing, worker_protocol
from rlm_ipc import supervisor_core as core
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import KernelError, ProcessError, ProtocolError, SupervisorGone
from rlm_ipc.framed_stream import Stream
from rlm_ipc.supervisor_protocol import Event, Operation, Reply, Request
from rlm_ipc.version import VERSION
from rlm_kernel.failures import from_wire
from rlm_kernel.supervisor_start import connect_socket, program

EventCallback = Callable[[str, Event], None]
Blobs = tuple[bytes, ...]
_REPLACED = (
    "the supervisor ended during this call, and another one has taken over; variables are kept, but  "
    "whether the call was carried out is not known: look, then call again if it was not"
)
_PAUSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""In seconds: the successor may die as well."""


class SharedReply(Generic[Reply]):
    """A reply that any number of tasks may wait for. Cancelling one of them leaves it to the others."""

    def __init__(self) -> None:
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._done = False
        self._waiting: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        """Whether `wait` will not wait."""
        return self._done

    def set_result(self, reply: tuple[Reply, Blobs]) -> None:
        """Take the reply to the call; its blobs are of no use to several tasks."""
        self._reply = reply[0]
        self._wake()

    def set_exception(self, error: BaseException) -> None:
        """Take the error of the call."""
        self._error = error
        self._wake()

    async def wait(self) -> Reply:
        """Return the reply, or raise the error, when it is there."""
        if not self._done:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        if self._error is not None:
            raise self._error
        return cast("Reply", self._reply)

    def _wake(self) -> None:
        self._done = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(slots=True)
class _Call:
    """An unanswered call. Its descriptors are copies, for a call that has to be repeated."""

    operation: Operation[Any, Any]
    part: bytes
    descriptors: tuple[int, ...]
    future: asyncio.Future[tuple[Any, Blobs]] | SharedReply[Any]
    sent: bool = False

    def close(self) -> None:
        framing.close_all(self.descriptors)


class SupervisorConnection:
    """A connection to the supervisor, created by `connect`.

    A supervisor that dies is replaced by another one, which has the same kernels. Then the connection is made again,
    and waiting calls are repeated (see `protocol.ONCE` for those that are not). Every call raises `SupervisorGone` once
    there is no successor.
    """

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self._ids = itertools.count(1)
        self._path = path
        self._calls: dict[int, _Call] = {}
        self._listeners: list[EventCallback] = []
        self._on_replaced: list[Callable[[], object]] = []
        self._gone = asyncio.get_running_loop().create_future()
        self._stream = Stream(sock, self._message, self._closed, wire.MAX_CALL)
        self._again: asyncio.Task[None] | None = None
        """Looks for another supervisor.

        Calls are kept until that one has greeted, and then it gets each of them once.
        """
        self._replied_in = 0
        """The stream's turn with the latest reply: the task that waits for that one resumes after the turn."""
        self._hung_up = False
        self.pid: int | None = None
        self.version = ""
        """The version of the supervisor."""

    @classmethod
    async def connect(cls, *, start: bool = True, runtime: Path | None = None) -> Self:
        """Connect to this user's supervisor, starting it if nobody serves.

        Raises `SupervisorGone` when nobody serves and ``start`` is false.
        """
        path = (runtime or discovery.runtime_dir()) / "supervisor.sock"
        for pause in (*discovery.DYING_SERVER, None):
            sock = await asyncio.to_thread(connect_socket, path, start)
            if sock is None:
                break
            client = cls(sock, path)
            try:
                if await client._greet():
                    return client
                await client._hand_over(path)
            except SupervisorGone:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise SupervisorGone("no supervisor is running")

    @property
    def alive(self) -> bool:
        """False once the supervisor has gone without a successor."""
        return not self._gone.done()

    async def wait_gone(self) -> None:
        """Return when the supervisor has ended or hung up."""
        await asyncio.shield(self._gone)

    def on_event(self, callback: EventCallback) -> None:
        """Call ``callback(kernel_id, event)`` for every event (`rlm_ipc.supervisor_protocol.EVENTS`).

        An event that follows a reply is delivered after the task that waits for that reply has resumed.
        """
        self._listeners.append(callback)

    def on_replaced(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` when another supervisor has taken over: events may have been missed."""
        self._on_replaced.append(callback)

    def close(self) -> None:
        """Hang up; kernels keep running."""
        self._hung_up = True
        if self._again is not None:
            self._again.cancel()
            self._end()
        self._stream.close()

    async def _greet(self) -> bool:
        """Learn who serves. Return False if its version has only the core in common with ours."""
        hello = core.Hello(core.CORE, wire.SPEAKS, VERSION, events=True)
        welcome = await self.call(protocol.HELLO, hello)
        self.pid, self.version = welcome.pid, welcome.version
        return welcome.spoken > 0

    async def _hand_over(self, path: Path) -> None:
        """Replace a supervisor that speaks another version by one of ours; waits for its end."""
        self._hung_up = True
        await self.call(protocol.HAND_OVER, core.HandOver(tuple(program(path)), worker_protocol.SPEAKS))
        await self.wait_gone()

    async def hand_over(self) -> None:
        """Replace the present supervisor by one of this version; the connection is made again to that one."""
        before = self.pid
        await self.call(protocol.HAND_OVER, core.HandOver(tuple(program(self._path)), worker_protocol.SPEAKS))
        while self.alive and self.pid == before:
            await asyncio.sleep(_PAUSES[1])

    # -- calls

    def start_call(
        self, operation: Operation[Request, Reply], request: Request, descriptors: Sequence[int] = ()
    ) -> asyncio.Future[tuple[Reply, Blobs]]:
        """Send a call; the future gets its reply and blobs."""
        future: asyncio.Future[tuple[Reply, Blobs]] = asyncio.get_running_loop().create_future()
        self._send_call(operation, request, descriptors, future)
        return future

    def start_shared_call(self, operation: Operation[Request, Reply], request: Request) -> SharedReply[Reply]:
        """Send a call whose reply several tasks may wait for, or none."""
        reply: SharedReply[Reply] = SharedReply()
        self._send_call(operation, request, (), reply)
        return reply

    def _send_call(
        self,
        operation: Operation[Request, Reply],
        request: Request,
        descriptors: Sequence[int],
        future: asyncio.Future[tuple[Reply, Blobs]] | SharedReply[Reply],
    ) -> None:
        if self._gone.done():
            framing.close_all(descriptors)
            future.set_exception(SupervisorGone())
            return
        number = next(self._ids)
        call = _Call(operation, wire.call_part(number, operation, request), tuple(descriptors), future)
        self._calls[number] = call
        if self._again is None or operation is protocol.HELLO:
            self._transmit(call)

    def _transmit(self, call: _Call) -> None:
        if not self._stream.closed:
            call.sent = True
            self._stream.send(wire.CALL, (call.part,), tuple(map(os.dup, call.descriptors)))

    async def call(
        self, operation: Operation[Request, Reply], request: Request, descriptors: Sequence[int] = ()
    ) -> Reply:
        """Call and wait; raises the KernelError that the supervisor answers with."""
        reply, _ = await self.start_call(operation, request, descriptors)
        return reply

    def _message(self, message: framing.Message) -> None:
        if message.tag == wire.EVENT:
            kernel_id, event = wire.event_in(message.parts[0])
            if self._replied_in == self._stream.turns:  # the waiting task first: its answer must not undo a later event
                asyncio.get_running_loop().call_soon(self._tell, kernel_id, event)
            else:
                self._tell(kernel_id, event)
            return
        answer = wire.answer_in(message.parts[0])
        call = self._calls.pop(answer.id or 0, None)
        if call is None:
            return
        call.close()
        operation, future = call.operation, call.future
        if future.done():
            return
        self._replied_in = self._stream.turns
        if answer.failure is not None:
            future.set_exception(from_wire(answer.failure))
            return
        try:
            future.set_result((wire.reply_in(operation, answer), message.parts[1:]))
        except ProtocolError as error:
            future.set_exception(error)

    def _tell(self, kernel_id: str, event: Event) -> None:
        for listener in self._listeners:
            listener(kernel_id, event)

    def _closed(self) -> None:
        if self._hung_up or self.pid is None or self._stream.failure is not None:
            self._end()
        elif self._again is None:
            self._again = asyncio.get_running_loop().create_task(self._connect_again(self._path, self.pid))
        else:
            self._fail(lambda call: call.operation is protocol.HELLO, SupervisorGone())

    def _end(self) -> None:
        failure = self._stream.failure
        if not self._gone.done():
            self._gone.set_result(None)
        self._fail(lambda _: True, ProtocolError(str(failure)) if failure else SupervisorGone())

    def _fail(self, which: Callable[[_Call], bool], error: KernelError) -> None:
        for number, call in list(self._calls.items()):
            if which(call):
                del self._calls[number]
                call.close()
                if not call.future.done():
                    call.future.set_exception(error)

    # -- another supervisor

    async def _connect_again(self, path: Path, before: int) -> None:
        try:
            for pause in _PAUSES:
                sock = await asyncio.to_thread(connect_socket, path, False)
                if sock is None:
                    break
                self._stream = Stream(sock, self._message, self._closed, wire.MAX_CALL)
                try:
                    understood = await self._greet()
                except SupervisorGone:
                    await asyncio.sleep(pause)
                    continue
                if understood and self.pid != before:  # one that hangs up but lives has its reason
                    self._again = None
                    self._go_on()
                    return
                break
        except (OSError, KernelError, discovery.DiscoveryError):
            pass
        self._again = None
        self._hung_up = True
        self._end()
        self._stream.close()

    def _go_on(self) -> None:
        self._fail(lambda call: call.sent and call.operation in protocol.ONCE, ProcessError(_REPLACED))
        for call in self._calls.values():
            self._transmit(call)
        for callback in self._on_replaced:
            callback()
