"""Framing of the private streams: kernel process ↔ supervisor, and supervisor ↔ daemon.

A message is a one-byte tag, some byte parts and some open file descriptors (SCM_RIGHTS)::

    tag:1  descriptors:1  parts:2  payload:8  (big-endian)   length:8 for each part   payload

`Parser` is the protocol without I/O: bytes in, messages out, and a `ProtocolError` for anything that a correct peer
never sends. Both ends of every stream are processes of one user, but what comes from a kernel is hostile: sizes are
checked before memory is allocated. `SupervisorLink` is the blocking end (kernel process); the supervisor's end is
`framed_stream.Stream`.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlm_ipc import signals
from rlm_ipc.errors import ProtocolError
from rlm_ipc.late_dataclasses import dataclass

HEADER = struct.Struct("!cBHQ")
_HEADER_OF_ONE = struct.Struct("!cBHQQ")
MAX_FRAMES = 4096
MAX_PAYLOAD = 1 << 31
MAX_DESCRIPTORS = 16
READ_SIZE = 1 << 18
_CREDENTIALS = struct.Struct("=3i")
"""Linux's struct ucred: process, user, group."""
_ANCILLARY = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize) + socket.CMSG_SPACE(_CREDENTIALS.size)

Frame = bytes | bytearray | memoryview
_BYTES = (bytes, bytearray)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its tag, its byte parts, and the descriptors, which now belong to the receiver."""

    tag: bytes
    parts: tuple[bytes, ...]
    descriptors: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the descriptors of a message that nobody wants."""
        close_all(self.descriptors)


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that were handed over."""
    for descriptor in descriptors:
        os.close(descriptor)


def pack(tag: bytes, parts: Sequence[Frame] = (), descriptors: int = 0) -> bytes:
    """Return the bytes of a message; its descriptors travel with the first of them."""
    if len(parts) == 1 and type(part := parts[0]) is bytes:  # most messages
        return _HEADER_OF_ONE.pack(tag, descriptors, 1, len(part), len(part)) + part
    views = [part if isinstance(part, _BYTES) else memoryview(part).cast("B") for part in parts]
    lengths = tuple(map(len, views))
    head = HEADER.pack(tag, descriptors, len(views), sum(lengths))
    return b"".join((head, struct.pack(f"!{len(views)}Q", *lengths), *views))


_as_json = json.JSONEncoder(separators=(",", ":")).encode


def json_part(content: Mapping[str, Any]) -> bytes:
    """Return a JSON object as a part; a lone surrogate is written as ``?``."""
    return _as_json(content).encode("utf-8", "replace")


class Parser:
    """Incremental parser of one stream's bytes.

    `feed` takes what arrived, `next` returns what is complete. It holds at most ``max_payload`` bytes and
    ``max_descriptors`` per message; a peer that announces more is refused at the header.
    """

    def __init__(
        self,
        max_payload: int = MAX_PAYLOAD,
        max_descriptors: int = MAX_DESCRIPTORS,
        *,
        space: memoryview | None = None,
    ) -> None:
        # Reused for all reads: new memory for each read would cost page faults.
        self.space = memoryview(bytearray(READ_SIZE)) if space is None else space
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()
        self.max_payload = max_payload
        self.sender: int | None = None
        """The process that wrote the last data, as reported by the system where `tell_senders` asked for it."""
        self._max_descriptors = max_descriptors

    def feed(self, data: Frame, descriptors: Iterable[int] = ()) -> None:
        """Take bytes and descriptors in the order in which they arrived."""
        self._buffer += data
        self._descriptors.extend(descriptors)

    @property
    def empty(self) -> bool:
        """True if no part of a further message is waiting."""
        return not self._buffer

    @property
    def waiting(self) -> int:
        """Bytes of a further message that is not complete."""
        return len(self._buffer)

    def next(self) -> Message | None:
        """Return the next complete message, or None until more bytes are fed; raises ProtocolError."""
        if not self._buffer:
            return None
        # The first byte of a write carries its descriptors, so they arrive before their message is complete:
        # descriptors of two messages are normal. A peer that keeps attaching them would use up the reader's.
        if len(self._descriptors) > 2 * self._max_descriptors:
            raise ProtocolError("more descriptors than the messages beside them announce")
        if len(self._buffer) < HEADER.size:
            return None
        tag, nfds, nframes, payload = HEADER.unpack_from(self._buffer)
        if nframes > MAX_FRAMES or payload > self.max_payload or nfds > self._max_descriptors:
            what = f"{payload} bytes in {nframes} parts with {nfds} descriptors"
            raise ProtocolError(f"a message of {what} is over the limit of this stream")
        start = HEADER.size + 8 * nframes
        if len(self._buffer) < start + payload:
            return None
        return self._take(tag, nfds, nframes, start, payload)

    def _take(self, tag: bytes, nfds: int, nframes: int, start: int, payload: int) -> Message:
        lengths = struct.unpack_from(f"!{nframes}Q", self._buffer, HEADER.size)
        if sum(lengths) != payload or len(self._descriptors) < nfds:
            raise ProtocolError("a message has parts or descriptors that do not match its header")
        parts = []
        # Slicing the bytearray itself would copy each part twice. The view is released before the buffer shrinks, which
        # a bytearray refuses while a view of it exists.
        with memoryview(self._buffer) as view:
            for length in lengths:
                parts.append(bytes(view[start : start + length]))
                start += length
        del self._buffer[:start]
        return Message(tag, tuple(parts), tuple([self._descriptors.popleft() for _ in range(nfds)]))

    def close(self) -> None:
        """Release the bytes and close the descriptors of messages that never completed."""
        self._buffer = bytearray()
        while self._descriptors:
            os.close(self._descriptors.popleft())


def receive(sock: socket.socket, parser: Parser) -> int:
    """Read once from ``sock`` into ``parser``; return 0 at end of file. May raise BlockingIOError or OSError."""
    # Set at once, not by a later fcntl(2): a program that another thread starts in between would inherit them.
    count, ancillary, _, _ = sock.recvmsg_into([parser.space], _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    parser.feed(parser.space[:count], _descriptors(ancillary) if ancillary else ())
    if ancillary and (sender := _sender(ancillary)) is not None:
        parser.sender = sender
    return count


def tell_senders(sock: socket.socket, on: bool) -> None:
    """Have the system attach the writer's pid, as seen by this process, to everything that arrives (Linux)."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, on)


def sender_of(sock: socket.socket) -> int | None:
    """Take a packet whose sender the system reports (`tell_senders`). Return the pid."""
    try:
        # There is no room for descriptors: the system closes those that a hostile process sends.
        _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_DONTWAIT)
    except OSError:
        return None
    return _sender(ancillary)


def _sender(ancillary: Iterable[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack(data)[0])
    return None


def _descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected stream sockets with room for a large cell's output."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # A worker writes while its cell runs: with the system's 200 KB, large outputs would make it wait for the
    # supervisor.
    for sock in (a, b):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return a, b


class SupervisorLink:
    """The blocking end of a stream, for the kernel process: one thread receives, and all may send.

    Messages leave one after the other: the system accepts a long one in pieces, and mixed pieces of two are not
    messages. SIGINT is held back while a message is written: a KeyboardInterrupt in the middle of ``sendall`` would cut
    a part in two and lose the stream. `hold` gathers messages so that a reply and the status around it leave in one
    write.

    The stream ends with its supervisor. Over its ``lifeline`` the process continues with the next one (`attach`): it
    repeats what it has said since its latest request began. ``report`` creates the message that precedes that.
    """

    def __init__(self, sock: socket.socket, lifeline: socket.socket, generation: int) -> None:
        self.socket, self.lifeline, self._generation = sock, lifeline, generation
        self.parser = Parser()
        self.request = 0
        """The number of the latest request."""
        self.unsaid = 0
        """Bytes said since then that were too many to keep."""
        self.report: Callable[[], bytes] = bytes
        self.passing: frozenset[bytes] = frozenset()
        """The tags of messages that no later supervisor needs to hear again."""
        self._said: list[bytes] = []
        self._said_bytes = 0
        self._gathered: deque[bytes] = deque()
        self._writing = threading.RLock()
        """Its holder writes; a finaliser may print while its own thread writes."""
        self._holds = self._muted = False

    def move(self, sock: socket.socket, lifeline: socket.socket, generation: int) -> None:
        """Continue over another socket, in a copy of the process: what was gathered and read is the original's."""
        os.close(self.socket.detach())
        os.close(self.lifeline.detach())
        self.socket, self.lifeline, self._generation = sock, lifeline, generation
        self._writing = threading.RLock()  # a thread that does not exist here may have held the old one
        # The memory to read into is kept, so that a session that has used up its own memory can still be copied.
        self.parser = Parser(space=self.parser.space)
        self._gathered.clear()
        self._holds = False

    def begin(self, request: int) -> None:
        """Start a request: nobody will ask again for what was said before."""
        self.request, self.unsaid = request, 0
        self._said.clear()
        self._said_bytes = 0

    def hold(self, on: bool) -> None:
        """Start gathering outgoing messages, or send the gathered ones and stop."""
        self._holds = on
        if not on and self._gathered:
            self._flush()

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Create messages and drop them: nobody hears what is sent in the meantime."""
        self.hold(False)
        self._muted = True
        try:
            yield
        finally:
            self.hold(False)
            self._muted = False

    def send(
        self, tag: bytes, parts: Sequence[Frame] = (), descriptors: Sequence[int] = (), *, later: bool = False
    ) -> None:
        """Send a message, with copies of ``descriptors``; blocks until the supervisor has room.

        With ``later`` it leaves with the next one: for messages that another one follows at once.
        """
        self._gathered.append(pack(tag, parts, len(descriptors)))
        if descriptors or not (later or self._holds):
            self._flush(descriptors)

    def _flush(self, descriptors: Sequence[int] = ()) -> None:
        try:
            # A pending interrupt is raised by this very call, with SIGINT already held back.
            signals.set_mask(signal.SIG_BLOCK, _INTERRUPT)
            with self._writing:
                self._write(self._taken(), descriptors)
        finally:
            signals.set_mask(signal.SIG_UNBLOCK, _INTERRUPT)

    def _taken(self) -> bytes:
        """Return the gathered messages; another thread may add to them meanwhile."""
        taken = []
        while self._gathered:
            taken.append(self._gathered.popleft())
        return b"".join(taken)

    def _write(self, data: bytes, descriptors: Sequence[int]) -> None:
        if self._muted or not data:  # another thread has sent it along with its own
            return
        self._keep(data)
        generation = self._generation
        try:
            sent = socket.send_fds(self.socket, [data], descriptors) if descriptors else 0
            self.socket.sendall(memoryview(data)[sent:])
        except ConnectionError:
            if not self._attach_after(generation):
                os._exit(0)

    def _keep(self, data: bytes) -> None:
        if data[:1] in self.passing:
            return
        # Messages other than text are few, and the end of a cell is one of them.
        most = MOST_SAID if data[:1] in TEXT_TAGS else 4 * MOST_SAID
        if self._said_bytes + len(data) > most:
            self.unsaid += len(data)
        else:
            self._said.append(data)
            self._said_bytes += len(data)

    def _attach_after(self, generation: int) -> bool:
        """Wait for the supervisor after this one, unless another thread already has its line."""
        with self._writing:
            return self._generation != generation or self.attach()

    def attach(self) -> bool:
        """Wait for the next supervisor; False if there will be none."""
        while True:
            try:
                data, ancillary, _, _ = self.lifeline.recvmsg(64, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
            except ConnectionError:
                return False
            if not data:
                return False
            descriptors, generation = _descriptors(ancillary), int(data)
            if generation < self._generation or not descriptors:
                close_all(descriptors)
                continue
            # Reuse the old socket's number: while code of the session runs, the audit hook refuses a new socket object.
            if descriptors[0] != self.socket.fileno():
                os.dup2(descriptors[0], self.socket.fileno(), inheritable=False)
                os.close(descriptors[0])
            self.parser.close()
            self._generation = generation
            try:
                self.say_again()
            except ConnectionError:
                continue
            return True

    def say_again(self) -> None:
        """Report, and repeat what was said since the latest request began."""
        self.socket.sendall(b"".join((self.report(), *self._said)))

    def receive(self) -> Message | None:
        """Wait for the next message; None when the supervisor has gone for good."""
        while (message := self.parser.next()) is None:
            if not self.read():
                return None
        return message

    def read(self) -> bool:
        """Wait for bytes, from the next supervisor if this one has gone. Return False when there will be none."""
        generation = self._generation
        try:
            arrived = receive(self.socket, self.parser)
        except ConnectionError:
            arrived = 0
        return bool(arrived) or self._attach_after(generation)


def first_line(lifeline: socket.socket) -> tuple[int, int]:
    """Return the line to the first supervisor, as a descriptor, and its generation.

    A process that nobody wants ends.
    """
    data, ancillary, _, _ = lifeline.recvmsg(64, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    descriptors = _descriptors(ancillary)
    if not data or not descriptors:
        os._exit(0)
    return descriptors[0], int(data)


def lifelines() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a lifeline, which carries packets: each a generation with a line."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def give_line(lifeline: socket.socket, line: socket.socket, generation: int) -> None:
    """Give the process at the other end of a lifeline its line to the supervisor of that generation."""
    socket.send_fds(lifeline, [b"%d" % generation], [line.fileno()], socket.MSG_DONTWAIT)


_INTERRUPT = {signal.SIGINT}
MOST_SAID = 8 << 20
"""Maximum bytes of text that a process keeps in order to repeat them."""
TEXT_TAGS = (b"o", b"e")
"""Text that code writes; see `worker_protocol`."""
