"""The connection to a supervisor, while one takes the place of another: each call reaches the successor once.

The other end are listeners of the test, which answer in the order that a case is about.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlm_ipc import discovery, framing
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc import supervisor_wire as wire
from rlm_ipc.errors import ProcessError
from rlm_ipc.framed_stream import Stream
from rlm_ipc.supervisor_core import CORE, Welcome
from rlm_ipc.supervisor_protocol import Done, OfKernel
from rlm_ipc.version import VERSION
from rlm_ipc.worker_protocol import SPEAKS
from rlm_kernel.supervisor_connection import SupervisorConnection

pytestmark = pytest.mark.anyio

WELCOME = Welcome(CORE, wire.SPEAKS, VERSION, 0, wire.SPEAKS.most, SPEAKS)


class Listener:
    """One supervisor after the other, each a connection that is asked for a greeting first."""

    def __init__(self, path: Path) -> None:
        self._socket = discovery.listen(path)
        self._pids = 0
        self._stream: Stream | None = None
        self._heard: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self._greeting = 0

    async def accept(self) -> None:
        """Be the next supervisor: its client waits for the greeting when this returns."""
        self._socket.setblocking(False)
        sock, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        self._heard, self._pids = asyncio.Queue(), self._pids + 1
        self._stream = Stream(sock, self._hear, lambda: None, wire.MAX_CALL)
        self._greeting = await self.hear("hello")

    def _hear(self, message: framing.Message) -> None:
        number, name, _ = wire.call_in(message.parts[0])
        self._heard.put_nowait((number, name))

    def greet(self) -> None:
        """Greet, which tells the client that this is another supervisor."""
        self.answer(self._greeting, replace(WELCOME, pid=self._pids))

    async def hear(self, name: str) -> int:
        """Wait for the next call, which is to be that one; returns its number."""
        number, heard = await self._heard.get()
        assert heard == name
        return number

    async def done(self, name: str) -> None:
        """Answer the next call, which is to be that one."""
        self.answer(await self.hear(name), Done())

    def answer(self, number: int, reply: object) -> None:
        """Answer a call."""
        assert self._stream is not None
        self._stream.send(wire.RESULT, (wire.reply_part(number, reply),))

    def die(self) -> None:
        """Hang up."""
        assert self._stream is not None
        self._stream.close()

    def close(self) -> None:
        """End."""
        self._socket.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    """Listen where the supervisor does."""
    listener = Listener(discovery.runtime_dir() / "supervisor.sock")
    yield listener
    listener.close()


@pytest.fixture
async def client(listener: Listener) -> AsyncIterator[SupervisorConnection]:
    """Connect to the first supervisor."""
    connecting = asyncio.create_task(SupervisorConnection.connect(start=False))
    await listener.accept()
    listener.greet()
    client = await connecting
    yield client
    client.close()


RESTART = protocol.RESTART, OfKernel("k")


async def test_a_call_during_the_greeting_of_a_successor_is_made_once(client, listener) -> None:
    """Twice, a kernel would be started a second time, and a cell run again."""
    listener.die()
    await listener.accept()
    call = client.start_call(*RESTART)
    listener.greet()
    await listener.done("restart")
    await call
    client.start_call(protocol.INFO, OfKernel("k")).cancel()
    await listener.hear("info")


async def test_a_call_that_waited_at_the_death_is_made_again(client, listener) -> None:
    """Once, and before what is asked meanwhile."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    later = client.start_call(protocol.INFO, OfKernel("k"))
    listener.greet()
    number = await listener.hear("restart")
    await listener.hear("info")
    listener.answer(number, Done())
    await waiting
    later.cancel()


async def test_a_call_reaches_the_third_when_the_second_dies_with_its_greeting(client, listener) -> None:
    """The second may have got it, and what it was asked is asked again."""
    waiting = client.start_call(*RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    listener.greet()
    listener.die()
    await listener.accept()
    listener.greet()
    await listener.done("restart")
    await waiting


async def test_a_signal_is_sent_once_or_told_of(client, listener) -> None:
    """One that the dead supervisor had may have been sent; one that nobody had yet is sent by the successor."""
    had = client.start_call(protocol.SIGNAL, protocol.Signal("k", 10))
    await listener.hear("signal")
    listener.die()
    await listener.accept()
    had_not = client.start_call(protocol.SIGNAL, protocol.Signal("k", 12))
    listener.greet()
    await listener.done("signal")
    await had_not
    with pytest.raises(ProcessError, match="another one has taken over"):
        await had
