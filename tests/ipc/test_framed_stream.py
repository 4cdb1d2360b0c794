"""The supervisor's end of a stream: what may wait leaves together with what comes next."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from waiting import SECONDS

from rlm_ipc import framing
from rlm_ipc.framed_stream import Stream

pytestmark = pytest.mark.anyio

LONG = 3600.0
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = framing.pair()
    with ours, theirs:
        yield ours, theirs


def arrived(theirs: socket.socket) -> list[bytes]:
    """The first parts of the messages that one read brings now."""
    parser = framing.Parser()
    theirs.setblocking(False)
    with suppress(BlockingIOError):
        framing.receive(theirs, parser)
    found = []
    while (message := parser.next()) is not None:
        found.append(message.parts[0])
    return found


async def test_messages_that_may_wait_leave_in_order_with_the_next_one(pair: Pair) -> None:
    """One write for all of them: each would wake the peer."""
    ours, theirs = pair
    stream = Stream(ours, lambda _: None, lambda: None)
    for part in (b"1", b"2"):
        stream.send(b"r", (part,), wait=LONG)
        assert (arrived(theirs), stream.unsent > 0) == ([], True)
    stream.send(b"r", (b"3",))
    assert (arrived(theirs), stream.unsent) == ([b"1", b"2", b"3"], 0)
    stream.send(b"r", (b"4",), wait=LONG)
    assert arrived(theirs) == []
    stream.close()


async def test_a_message_that_may_wait_leaves_by_itself_when_its_time_is_over(pair: Pair) -> None:
    """Nothing else need be sent."""
    ours, theirs = pair
    stream = Stream(ours, lambda _: None, lambda: None)
    theirs.setblocking(False)
    stream.send(b"r", (b"1",), wait=0.001)
    async with asyncio.timeout(SECONDS):
        data = await asyncio.get_running_loop().sock_recv(theirs, 1000)
    assert data == framing.pack(b"r", (b"1",))
    stream.close()
