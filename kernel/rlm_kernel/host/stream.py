"""The host's end of a framed stream: never blocks, neither for a peer that does not read nor for one that floods."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Sequence

from rlm_kernel import wire
from rlm_kernel.errors import ProtocolError

_local = threading.local()


def _space_of_this_thread() -> memoryview:
    """Memory to read into. A parser takes over at once what was read, so all streams of an event loop share it."""
    space: memoryview | None = getattr(_local, "space", None)
    if space is None:
        space = _local.space = memoryview(bytearray(wire.READ_SIZE))
    return space


class Stream:
    """A non-blocking framed stream on an event loop.

    ``on_message`` gets each message in order, ``on_close`` once, when the peer has gone, has sent what is no message,
    or `close` was called. Descriptors handed to `send` are closed when they have left; ``unsent`` bytes have not yet.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[wire.Message], None],
        on_close: Callable[[], None],
        max_payload: int = wire.MAX_PAYLOAD,
        max_descriptors: int = wire.MAX_DESCRIPTORS,
    ) -> None:
        self.socket = sock
        self.parser = wire.Parser(max_payload, max_descriptors, space=_space_of_this_thread())
        self.on_message, self.on_close = on_message, on_close
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.failure: ProtocolError | None = None
        self.unsent = 0
        self._out: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        sock.setblocking(False)
        self.loop.add_reader(sock.fileno(), self._readable)

    def send(self, tag: bytes, frames: Sequence[wire.Frame] = (), descriptors: Sequence[int] = ()) -> None:
        """Queue a message; it is written at once if the peer has room. Owns ``descriptors`` from here on."""
        if self.closed:
            _close_all(descriptors)
            return
        data = wire.pack(tag, frames, len(descriptors))
        self.unsent += len(data)
        idle = not self._out
        self._out.append((memoryview(data), tuple(descriptors)))
        if idle:
            self._writable()

    @property
    def unread(self) -> bool:
        """Whether the peer has yet to read what was sent to it (Linux tells)."""
        if self._out:
            return True
        if self.closed or sys.platform != "linux":
            return False
        held = fcntl.ioctl(self.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(held, sys.byteorder) > 0

    def drain(self) -> None:
        """Read what a dead peer had still written; others that hold its end may go on writing for ever."""
        written = array.array("i", [0])
        try:
            fcntl.ioctl(self.socket, termios.FIONREAD, written)
            while written[0] > 0 and (count := wire.receive(self.socket, self.parser)):
                written[0] -= count
        except OSError:
            pass
        self._deliver()

    def close(self) -> None:
        """Stop, drop what was not sent, and close the socket; calls ``on_close`` once."""
        if self.closed:
            return
        self.closed = True
        self.loop.remove_reader(self.socket.fileno())
        self.loop.remove_writer(self.socket.fileno())
        self.socket.close()
        self.parser.close()
        while self._out:
            _close_all(self._out.popleft()[1])
        self.on_close()

    def stop_reading(self) -> None:
        """Leave what arrives unread (until `drain`)."""
        if not self.closed:
            self.loop.remove_reader(self.socket.fileno())

    def _readable(self) -> None:
        try:
            alive = wire.receive(self.socket, self.parser) > 0
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            alive = False
        if not self._deliver() or not alive:
            self.close()

    def _deliver(self) -> bool:
        try:
            while not self.closed and (message := self.parser.next()) is not None:
                self.on_message(message)
        except ProtocolError as error:
            self.failure = error
            return False
        return True

    def _writable(self) -> None:
        try:
            while self._out:
                self._write_one()
        except (BlockingIOError, InterruptedError):
            self.loop.add_writer(self.socket.fileno(), self._writable)
            return
        except OSError:
            # The peer's end is reported by the reader (or by its pidfd), with what it still wrote.
            while self._out:
                _close_all(self._out.popleft()[1])
        self.loop.remove_writer(self.socket.fileno())

    def _write_one(self) -> None:
        data, descriptors = self._out[0]
        if descriptors:
            sent = socket.send_fds(self.socket, [data], list(descriptors))
            _close_all(descriptors)
        else:
            sent = self.socket.send(data)
        self.unsent -= sent
        if sent == len(data):
            self._out.popleft()
        else:
            self._out[0] = (data[sent:], ())


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)
