"""The supervisor's end of a framed stream. It never blocks, neither for a slow reader nor for a flooding writer.

Streams of one event loop take turns: each delivers a few messages, and continues when the others have had their turn.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Sequence

from rlm_ipc import framing
from rlm_ipc.errors import ProtocolError

MESSAGES_A_TURN = 16
"""How many messages a stream delivers before the event loop serves something else."""

_local = threading.local()


def _space_of_this_thread() -> memoryview:
    """Return memory to read into. A parser consumes the data at once, so all streams of an event loop share it."""
    space: memoryview | None = getattr(_local, "space", None)
    if space is None:
        space = _local.space = memoryview(bytearray(framing.READ_SIZE))
    return space


class Overfull(ProtocolError):
    """This stream had the largest incomplete message when all of them together became too large."""


class Unfinished:
    """The incomplete messages of several streams: at most ``most`` bytes in all.

    Beyond that, the stream with the largest one is closed, with `Overfull` as its failure.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: dict[Stream, int] = {}
        self._total = 0

    def note(self, stream: Stream) -> None:
        """Update the count of what a stream holds."""
        held = stream.parser.waiting
        self._total += held - self._held.pop(stream, 0)
        if held:
            self._held[stream] = held
        if self._total > self.most:
            largest = max(self._held, key=self._held.__getitem__)
            largest.fail(
                Overfull(
                    f"incomplete messages fill the {self.most:,} bytes that the supervisor reserves for all "
                    f"sessions, and the largest is this one's ({self._held[largest]:,} bytes)"
                )
            )


class Stream:
    """A non-blocking framed stream on an event loop.

    ``on_message`` gets each message in order. ``on_close`` is called once: when the peer has gone or broken the
    protocol, or when `close` was called. Descriptors passed to `send` are closed once they are sent; ``unsent`` bytes
    are still queued. Incomplete messages count in ``unfinished``.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[framing.Message], None],
        on_close: Callable[[], None],
        max_payload: int = framing.MAX_PAYLOAD,
        max_descriptors: int = framing.MAX_DESCRIPTORS,
        unfinished: Unfinished | None = None,
    ) -> None:
        self.socket = sock
        self.parser = framing.Parser(max_payload, max_descriptors, space=_space_of_this_thread())
        self.on_message, self.on_close = on_message, on_close
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.failure: ProtocolError | None = None
        self.unsent = 0
        self.turns = 0
        """How often it has delivered messages: those of one turn come without anything else in between."""
        self._out: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._held: list[bytes] = []
        self._letting_go: asyncio.TimerHandle | None = None
        self._unfinished = unfinished
        self._reads = self._writes = self._at_end = False
        self._next_turn: asyncio.Handle | None = None
        sock.setblocking(False)
        self._read_on()

    def send(
        self,
        tag: bytes,
        parts: Sequence[framing.Frame] = (),
        descriptors: Sequence[int] = (),
        *,
        wait: float = 0.0,
    ) -> None:
        """Queue a message; it is written at once if the peer has room. Takes ownership of ``descriptors``.

        With ``wait``, it may be held back that many seconds to leave with the next message: each write wakes the peer.
        """
        if self.closed:
            framing.close_all(descriptors)
            return
        data = framing.pack(tag, parts, len(descriptors))
        if not (wait or descriptors or self._held or self._out):  # most messages
            data = self._rest_of(data)
            if not data:
                return
        self.unsent += len(data)
        self._held.append(data)
        if not wait:
            self._let_go(descriptors)
        elif self._letting_go is None:
            self._letting_go = self.loop.call_later(wait, self._let_go)

    def _rest_of(self, data: bytes) -> bytes:
        """Write what the peer has room for. Return the rest."""
        try:
            return data[self.socket.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            return b""  # the reader reports the peer's end

    def _let_go(self, descriptors: Sequence[int] = ()) -> None:
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None
        # Always written behind what is queued: parts of two messages must not mix.
        idle = not self._out
        self._out.append((memoryview(data), tuple(descriptors)))
        if idle:
            self._writable()

    @property
    def unread(self) -> bool:
        """Whether the peer has not yet read everything that was sent to it."""
        if self._out:
            return True
        if self.closed:
            return False
        held = fcntl.ioctl(self.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(held, sys.byteorder) > 0

    def finish(self) -> None:
        """Deliver what a dead peer had written, and close.

        Only what is in the socket now: another process may also hold the peer's end, and write forever.
        """
        if self.closed:
            return
        written = array.array("i", [0])
        try:
            fcntl.ioctl(self.socket, termios.FIONREAD, written)
            while written[0] > 0 and (count := framing.receive(self.socket, self.parser)):
                written[0] -= count
        except OSError:
            pass
        self._at_end = True
        self._stop_reading()
        self._take_turn()

    def fail(self, error: ProtocolError) -> None:
        """Close because of what the peer has sent."""
        self.failure = error
        self.close()

    def close(self) -> None:
        """Stop, drop unsent and incomplete messages, and close the socket; calls ``on_close`` once."""
        if self.closed:
            return
        self.closed = True
        if self._letting_go is not None:
            self._letting_go.cancel()
        self._stop_reading()
        self._stop_writing()
        self.socket.close()
        self.parser.close()
        if self._unfinished is not None:
            self._unfinished.note(self)
        while self._out:
            framing.close_all(self._out.popleft()[1])
        on_close, self.on_message, self.on_close = self.on_close, _unheard, _nothing  # its owner holds this stream
        on_close()

    def wait(self, seconds: float) -> None:
        """Stop reading from a living peer for a number of seconds."""
        if not self.closed and not self._at_end:
            self._stop_reading()
            self._next_turn = self.loop.call_later(seconds, self._take_turn)

    def _read_on(self) -> None:
        if not self._reads:
            self._reads = True
            self.loop.add_reader(self.socket.fileno(), self._readable)

    # Remove it from the loop's epoll, instead of just not reading: epoll keeps reporting data that waits in a socket.
    def _stop_reading(self) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        if self._reads:
            self._reads = False
            self.loop.remove_reader(self.socket.fileno())

    def _readable(self) -> None:
        try:
            self._at_end = framing.receive(self.socket, self.parser) == 0
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._at_end = True
        self._take_turn()

    def _take_turn(self) -> None:
        """Deliver a share of what has arrived. The rest is delivered before anything else is read."""
        self._next_turn = None
        self.turns += 1
        try:
            is_left = self._hand_over()
        except ProtocolError as error:
            self.fail(error)
            return
        except Exception:
            self._take_turn_soon()  # a fault in handling this message must not lose the next one
            raise
        if self._unfinished is not None:
            self._unfinished.note(self)
        if self.closed or self._next_turn is not None:
            return
        if is_left:
            self._take_turn_soon()
        elif self._at_end:
            self.close()
        else:
            self._read_on()

    def _take_turn_soon(self) -> None:
        if not self.closed:
            self._stop_reading()
            self._next_turn = self.loop.call_soon(self._take_turn)

    def _hand_over(self) -> bool:
        """Deliver as many messages as fit into a turn. Return True if there may be more."""
        for _ in range(MESSAGES_A_TURN):
            if self.closed or self._next_turn is not None:
                return False
            message = self.parser.next()
            if message is None:
                return False
            self.on_message(message)
        return True

    def _writable(self) -> None:
        try:
            while self._out:
                self._write_one()
        except (BlockingIOError, InterruptedError):
            if not self._writes:
                self._writes = True
                self.loop.add_writer(self.socket.fileno(), self._writable)
            return
        except OSError:
            # The reader (or the pidfd) reports the peer's end, with what it still wrote.
            while self._out:
                framing.close_all(self._out.popleft()[1])
        self._stop_writing()

    def _stop_writing(self) -> None:
        if self._writes:
            self._writes = False
            self.loop.remove_writer(self.socket.fileno())

    def _write_one(self) -> None:
        data, descriptors = self._out[0]
        if descriptors:
            sent = socket.send_fds(self.socket, [data], list(descriptors))
            framing.close_all(descriptors)
        else:
            sent = self.socket.send(data)
        self.unsent -= sent
        if sent == len(data):
            self._out.popleft()
        else:
            self._out[0] = (data[sent:], ())


def _unheard(message: framing.Message) -> None:
    message.close()


def _nothing() -> None:
    pass
