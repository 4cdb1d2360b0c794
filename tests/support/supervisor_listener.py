"""A supervisor that answers in the order that a test is about: a listener where the real one listens."""

import asyncio
from dataclasses import replace
from pathlib import Path

from rlm_ipc import discovery, framing
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import KernelError, to_wire
from rlm_ipc.framed_stream import Stream
from rlm_ipc.supervisor_core import CORE, Welcome
from rlm_ipc.supervisor_protocol import Done, Event
from rlm_ipc.version import VERSION
from rlm_ipc.worker_protocol import SPEAKS

WELCOME = Welcome(CORE, wire.SPEAKS, VERSION, 0, wire.SPEAKS.most, SPEAKS)


class SupervisorListener:
    """One supervisor after the other, each a connection that is asked for a greeting first."""

    def __init__(self, path: Path) -> None:
        self._socket = discovery.listen(path)
        self._pids = 0
        self._stream: Stream | None = None
        self._heard: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self._greeting = 0
        self._gone = asyncio.Event()

    async def accept(self) -> None:
        """Be the next supervisor: its client waits for the greeting when this returns."""
        self._socket.setblocking(False)
        sock, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        self._heard, self._pids = asyncio.Queue(), self._pids + 1
        self._gone = asyncio.Event()
        self._stream = Stream(sock, self._hear, self._gone.set, wire.MAX_CALL)
        self._greeting = await self.hear("hello")

    def _hear(self, message: framing.Message) -> None:
        number, name, _ = wire.call_in(message.parts[0])
        self._heard.put_nowait((number, name))

    def greet(self, *, again: bool = False, spoken: int = wire.SPEAKS.most) -> None:
        """Greet, which tells the client that this is another supervisor, or the one that it had, ``again``."""
        self._pids -= again
        self.answer(self._greeting, replace(WELCOME, pid=self._pids, spoken=spoken))

    async def hear(self, name: str) -> int:
        """Wait for the next call, which is to be that one; returns its number."""
        number, heard = await self._heard.get()
        assert heard == name
        return number

    async def done(self, name: str) -> None:
        """Answer the next call, which is to be that one."""
        self.answer(await self.hear(name), Done())

    def answer(self, number: int, reply: object, *blobs: bytes) -> None:
        """Answer a call."""
        assert self._stream is not None
        self._stream.send(wire.RESULT, (wire.reply_part(number, reply), *blobs))

    def fail(self, number: int, error: KernelError) -> None:
        """Answer a call by that error."""
        assert self._stream is not None
        self._stream.send(wire.RESULT, (wire.failure_part(number, to_wire(error)),))

    def answer_and_tell(self, number: int, reply: object, kernel_id: str, event: Event) -> None:
        """Answer a call and tell what happened since, in one piece: the client reads both at once."""
        assert self._stream is not None
        self._stream.send(wire.RESULT, (wire.reply_part(number, reply),), wait=60.0)
        self._stream.send(wire.EVENT, (wire.event_part(kernel_id, event),))

    def tell_and_answer(self, kernel_id: str, event: Event, number: int, reply: object) -> None:
        """Tell what happened, and then answer a call, in one piece."""
        assert self._stream is not None
        self._stream.send(wire.EVENT, (wire.event_part(kernel_id, event),), wait=60.0)
        self._stream.send(wire.RESULT, (wire.reply_part(number, reply),))

    def babble(self) -> None:
        """Say what no supervisor says."""
        assert self._stream is not None
        self._stream.socket.send(b"\xff" * 64)

    async def hung_up(self) -> bool:
        """Wait until the client of the supervisor that was played last has hung up."""
        return await self._gone.wait()

    def die(self) -> None:
        """Hang up."""
        assert self._stream is not None
        self._stream.close()

    def close(self) -> None:
        """End."""
        self._socket.close()
