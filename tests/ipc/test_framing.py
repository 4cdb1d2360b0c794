"""The framing between kernels, supervisor and daemon: no I/O but a socketpair."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import SECONDS

from rlm_ipc import framing
from rlm_ipc.errors import ProtocolError

MESSAGES = st.lists(
    st.tuples(st.binary(min_size=1, max_size=1), st.lists(st.binary(max_size=50), max_size=5)), max_size=6
)


@given(MESSAGES, st.integers(1, 40))
def test_messages_arrive_whole_however_the_bytes_are_cut(messages: list[Any], piece: int) -> None:
    """The parser does not depend on where a read ends."""
    data = b"".join(framing.pack(tag, parts) for tag, parts in messages)
    parser, got = framing.Parser(), []
    for start in range(0, len(data), piece):
        parser.feed(data[start : start + piece])
        while (message := parser.next()) is not None:
            got.append((message.tag, list(message.parts)))
    assert got == [(tag, list(parts)) for tag, parts in messages]
    assert parser.empty


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_messages_or_a_protocol_error(data: bytes) -> None:
    """A hostile peer can neither crash the parser nor make it take memory without bound."""
    parser = framing.Parser(max_payload=100)
    parser.feed(data)
    try:
        while parser.next() is not None:
            pass
    except ProtocolError:
        pass


def test_a_message_over_the_limit_is_refused_at_its_header() -> None:
    """What a peer announces is refused before its payload is read."""
    parser = framing.Parser(max_payload=10)
    parser.feed(framing.pack(b"x", [b"12345678901"])[: framing.HEADER.size])
    with pytest.raises(ProtocolError, match="over the limit"):
        parser.next()


def test_frames_that_do_not_add_up_are_refused() -> None:
    """The payload's length and the lengths of the parts must agree."""
    parser = framing.Parser()
    parser.feed(framing.HEADER.pack(b"x", 0, 1, 5) + (4).to_bytes(8, "big") + b"12345")
    with pytest.raises(ProtocolError, match="do not match its header"):
        parser.next()


@contextmanager
def linked() -> Iterator[tuple[framing.SupervisorLink, socket.socket]]:
    """Give the link of a process, and the other end of its line; no supervisor follows."""
    ours, line = framing.pair()
    no_more, lifeline = framing.lifelines()
    no_more.close()
    with ours, line, lifeline:
        yield framing.SupervisorLink(line, lifeline, 1), ours


def test_descriptors_travel_with_their_message(tmp_path: Path) -> None:
    """SCM_RIGHTS: each message gets the descriptors that were sent with it, in order."""
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        path.write_text(path.name)
    fds = [os.open(path, os.O_RDONLY) for path in paths]
    with linked() as (sender, other):
        sender.send(b"x", (b"first",), fds[:1])
        sender.send(b"y", (b"none",))
        sender.send(b"z", (b"second",), fds[1:])
        receiver = framing.SupervisorLink(other, sender.lifeline, 1)
        got = [message for _ in range(3) if (message := receiver.receive())]
    texts = [[os.read(fd, 10) for fd in message.descriptors] for message in got]
    for message in got:
        message.close()
    for fd in fds:
        os.close(fd)
    assert texts == [[b"one"], [], [b"two"]]


def test_held_messages_leave_in_one_write() -> None:
    """A reply and the status around it reach the supervisor together."""
    with linked() as (link, other):
        link.hold(True)
        link.send(b"1")
        link.send(b"2")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        link.hold(False)
        assert other.recv(1000) == framing.pack(b"1") + framing.pack(b"2")


def test_what_a_muted_link_sends_is_dropped() -> None:
    """What was held before it was muted leaves first, and nothing of what it made meanwhile leaves later."""
    with linked() as (link, other):
        link.hold(True)
        link.send(b"1")
        with link.muted():
            link.send(b"2")
            link.hold(True)
            link.send(b"3", (b"held",))
        link.send(b"4")
        other.setblocking(False)
        assert other.recv(1000) == framing.pack(b"1") + framing.pack(b"4")


@pytest.mark.parametrize(("size", "count"), [(10, 3000), (3_000_000, 5)])
def test_what_several_threads_send_arrives_once_and_whole(size: int, count: int) -> None:
    """Threads of a cell print: lines came twice, and pieces of two long ones, one in the other, ended the kernel."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with linked() as (link, other):
            tags = [b"a", b"b", b"c", b"d"]
            threads = [threading.Thread(target=_send, args=(link, tag, size, count), daemon=True) for tag in tags]
            for thread in threads:
                thread.start()
            receiver = framing.SupervisorLink(other, link.lifeline, 1)
            got = [message for _ in range(count * len(tags)) if (message := receiver.receive())]
            for thread in threads:
                thread.join()
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)
    finally:
        sys.setswitchinterval(before)
    assert sorted(message.tag for message in got) == sorted(tags * count)
    assert all(message.parts == (message.tag * size,) for message in got)


def _send(link: framing.SupervisorLink, tag: bytes, size: int, count: int) -> None:
    for _ in range(count):
        link.send(tag, (tag * size,))


def test_two_threads_that_miss_the_supervisor_go_on_with_one_and_the_same() -> None:
    """One of them gets its line; the other one must not wait for a further supervisor."""
    ours, line = framing.pair()
    next_ours, next_line = framing.pair()
    supervisors, lifeline = framing.lifelines()
    with ours, line, next_ours, next_line, supervisors, lifeline:
        link = framing.SupervisorLink(line, lifeline, 1)
        ours.close()
        reading = threading.Thread(target=link.receive, daemon=True)
        writing = threading.Thread(target=link.send, args=(b"x",), daemon=True)
        reading.start()
        writing.start()
        framing.give_line(supervisors, next_line, 2)
        writing.join(SECONDS)
        next_ours.sendall(framing.pack(b"y"))
        reading.join(SECONDS)
        assert not writing.is_alive()
        assert not reading.is_alive()


def test_a_closed_peer_ends_the_stream() -> None:
    """End of file is None, not an exception."""
    with linked() as (link, other):
        other.close()
        assert link.receive() is None


def test_who_greets_leaves_no_descriptor_here() -> None:
    """A hostile copy sends some beside the byte by which its supervisor learns who it is."""
    ours, theirs = framing.lifelines()
    with ours, theirs, open(os.devnull, "rb") as file:
        framing.tell_senders(ours, True)
        for beside in (1, framing.MAX_DESCRIPTORS):
            socket.send_fds(theirs, [b"h"], [file.fileno()] * beside)
            before = os.listdir("/proc/self/fd")
            assert framing.sender_of(ours) == os.getpid()
            assert os.listdir("/proc/self/fd") == before
