"""What arrives on the private streams and on the MCP transport may be anything: it costs that stream, nothing else."""

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_worker import kept_by_a_test, played_worker
from waiting import SECONDS

from rlm_ipc import framing, supervisor_protocol, supervisor_wire, worker_protocol, worker_requests
from rlm_ipc.errors import KernelError, ProtocolError
from rlm_ipc.json_lines import LineSplitter, Oversized
from rlm_kernel.supervisor.processes.worker_link import WorkerLink, heard
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.client_info import parse_handshake
from rlm_mcp.daemon.mcp_lines import parse_message
from rlm_mcp.errors import HandshakeRefused, MessageRefused
from rlm_mcp.front.cached_answers import Answers
from rlm_mcp.front.proxy import STARTING, UP, FrontProxy

pytestmark = pytest.mark.anyio

FUZZ = settings.get_profile("fuzz")
WITH_PROCESSES = settings.get_profile("fuzz with processes")

TAGS = st.sampled_from(
    [
        value
        for protocol in (worker_protocol, worker_requests, supervisor_protocol, supervisor_wire)
        for name, value in vars(protocol).items()
        if name.isupper() and isinstance(value, bytes)
    ]
)
HEARD = [
    kind
    for module in (worker_protocol, worker_requests)
    for kind in vars(module).values()
    if isinstance(getattr(kind, "TAG", None), bytes)
]
"""The messages of a kernel that have fields."""


class Listener:
    """Reads whatever a peer says as each of them, and takes note of its end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def heard(self, link: WorkerLink, message: framing.Message) -> None:
        """Read it."""
        for kind in HEARD:
            heard(kind, message)

    def died(self, link: WorkerLink) -> None:
        """Take note."""
        self.ended.set()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KNOWN = "id op pid state error queries dropped defined prompt model kernel_id parts status content msg_type".split()
CONTENT = st.dictionaries(st.sampled_from(KNOWN), JSON, max_size=5).map(lambda value: json.dumps(value).encode())
DEEP = st.integers(1, 60_000).map(lambda depth: b"[" * depth)
FRAMES = st.lists(CONTENT | DEEP | st.binary(max_size=40) | JSON.map(lambda v: json.dumps(v).encode()), max_size=6)
MESSAGES = st.builds(framing.pack, TAGS, FRAMES)
HEADERS = st.builds(framing.HEADER.pack, TAGS, st.integers(0, 255), st.integers(0, 65535), st.integers(0, 2**64 - 1))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Messages, some bytes of which are not as they were."""
    data = bytearray(b"".join(draw(st.lists(MESSAGES | HEADERS | st.binary(max_size=30), max_size=4))))
    for place, value in draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4)):
        if data:
            data[place % len(data)] = value
    return bytes(data)


STREAMS = damaged() | st.lists(MESSAGES, max_size=4).map(b"".join)


def _chunks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


@settings(FUZZ)
@given(data=STREAMS, sizes=st.lists(st.integers(1, 50), max_size=8))
def test_bytes_become_messages_or_a_protocol_error(data: bytes, sizes: list[int]) -> None:
    """Whatever the bytes and however they are cut; what is held never exceeds what arrived or the limit."""
    most = 4096
    parser, parts = framing.Parser(max_payload=most), 0
    with contextlib.suppress(ProtocolError):
        for chunk in _chunks(data, sizes):
            parser.feed(chunk)
            while (message := parser.next()) is not None:
                assert sum(map(len, message.parts)) <= most
                parts += len(message.parts)
    assert parts <= len(data)


@settings(FUZZ)
@given(tag=TAGS, parts=st.lists(st.binary(max_size=50), max_size=20), sizes=st.lists(st.integers(1, 50), max_size=8))
def test_what_was_packed_arrives_however_it_is_cut(tag: bytes, parts: list[bytes], sizes: list[int]) -> None:
    """The other direction: nothing correct is refused."""
    parser, found = framing.Parser(), []
    for chunk in _chunks(framing.pack(tag, parts), sizes):
        parser.feed(chunk)
        while (message := parser.next()) is not None:
            found.append(message)
    assert [(one.tag, list(one.parts)) for one in found] == [(tag, parts)]
    assert parser.empty


def _flood(parser: framing.Parser, data: bytes, pairs: list[tuple[int, int]]) -> None:
    for pair in pairs:
        parser.feed(data, pair)
        while parser.next() is not None:
            pass


def test_descriptors_that_no_message_announces_are_refused() -> None:
    """A peer that goes on attaching descriptors would use up those of the supervisor."""
    parser = framing.Parser()
    silent = framing.pack(worker_protocol.STDOUT, (b"x",))
    pairs = [os.pipe() for _ in range(30)]
    try:
        with pytest.raises(ProtocolError, match="descriptors"):
            _flood(parser, silent, pairs)
    finally:
        parser.close()
        for pair in pairs:
            for fd in pair:
                with contextlib.suppress(OSError):
                    os.close(fd)


@settings(WITH_PROCESSES)
@given(data=STREAMS)
async def test_a_peer_that_talks_rubbish_costs_its_own_stream_only(data: bytes) -> None:
    """K-22: the supervisor's side of a kernel's stream delivers or closes; no exception reaches the event loop."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    with kept_by_a_test() as kept, played_worker(kept) as (peer, line):
        owner = Listener()
        peer.report_to(owner)
        with contextlib.suppress(ConnectionError):  # it may hang up on the first of it
            await asyncio.to_thread(line.sendall, data)  # more than a socket holds waits for who reads it
        line.close()
        async with asyncio.timeout(SECONDS):
            await owner.ended.wait()
    assert complaints == []


@settings(FUZZ)
@given(lines=st.lists(st.binary(max_size=60), max_size=6), sizes=st.lists(st.integers(1, 30), max_size=8))
def test_bytes_become_lines_of_bounded_length(lines: list[bytes], sizes: list[int]) -> None:
    """The splitter of daemon and front gives every line, or a mark for one that is too long."""
    data, splitter, found = b"\n".join(lines) + b"\n", LineSplitter(32), []
    for chunk in _chunks(data, sizes):
        found += splitter.feed(chunk)
    assert len(found) == data.count(b"\n")
    assert all(isinstance(line, Oversized) or len(line) <= 33 for line in found)


ENVELOPE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": st.integers() | st.text(max_size=5) | JSON,
        "method": st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "notifications/cancelled"]) | JSON,
        "params": st.dictionaries(st.sampled_from(["name", "arguments", "_meta", "protocolVersion"]), JSON) | JSON,
        "result": JSON,
        "error": JSON,
    },
).map(lambda value: json.dumps(value).encode())


@st.composite
def damaged_lines(draw: st.DrawFn) -> bytes:
    """A JSON-RPC message in which some bytes are others."""
    data = bytearray(draw(ENVELOPE | DEEP))
    for place, value in draw(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3)):
        data[place % len(data)] = value
    return bytes(data).replace(b"\n", b" ")


LINES = ENVELOPE | damaged_lines() | st.binary(max_size=40).map(lambda data: data.replace(b"\n", b""))


@settings(FUZZ)
@given(line=LINES)
def test_a_line_is_a_message_or_is_refused(line: bytes) -> None:
    """The daemon's reader of JSON-RPC, and of the handshake before it."""
    with contextlib.suppress(MessageRefused):
        parse_message(line)
    with contextlib.suppress(HandshakeRefused):
        parse_handshake(line)


@settings(FUZZ)
@given(turns=st.lists(st.tuples(st.sampled_from(["client", "daemon", "lost", "up", "failed"]), LINES), max_size=8))
def test_the_front_survives_whatever_client_and_daemon_say(turns: list[tuple[str, bytes]], tmp_path: Path) -> None:
    """The decisions of the front, with both sides hostile and the daemon coming and going."""
    to_client: list[bytes] = []
    answers = Answers(str(tmp_path / "answers"))
    relay = FrontProxy(answers, to_client=to_client.append, to_daemon=[].append, start=lambda: None)
    for who, line in turns:
        if who == "client":
            relay.client_line(line)
        elif who == "daemon" and relay.state == UP:
            relay.daemon_line(line)
        elif who == "lost" and relay.state == UP:
            relay.daemon_lost()
        elif who == "up" and relay.state == STARTING:
            relay.daemon_started()
        elif who == "failed" and relay.state == STARTING:
            relay.start_failed("it does not start")


HOSTILE = """
import os, stat
rubbish = {rubbish!r}
for number in range(3, 40):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, rubbish)
    except OSError:
        pass
6 * 7
"""


@settings(WITH_PROCESSES)
@given(rubbish=STREAMS)
async def test_a_kernel_that_writes_rubbish_to_its_supervisor_harms_no_other(
    supervisor: SupervisorClient, rubbish: bytes, bystander: str, hostile: str
) -> None:
    """K-22: with the language wall down, a cell writes to the stream below it; other sessions notice nothing."""
    async with asyncio.timeout(60):
        with contextlib.suppress(KernelError):
            await supervisor.execute(hostile, HOSTILE.format(rubbish=rubbish)).result()
        assert (await supervisor.execute(bystander, "kept").result()).result == "'kept'"
        with contextlib.suppress(KernelError):
            await supervisor.interrupt(hostile)


def test_the_header_that_these_tests_damage_is_the_real_one() -> None:
    """Were the layout to change, the strategies above would hit nothing."""
    assert (
        framing.pack(worker_protocol.SHELL, (b"ab",))
        == struct.pack("!cBHQQ", worker_protocol.SHELL, 0, 1, 2, 2) + b"ab"
    )
