"""Calls that are answered without the SDK: the same bytes as with it, for the same connections."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from waiting import until

from rlm_ipc.daemon_dialogue import ENVELOPE
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.daemon.client_lines import ClientLines, serve_client
from rlm_mcp.daemon.direct_calls import DirectCalls, Permit
from rlm_mcp.daemon.line_reader import LineReader
from rlm_mcp.daemon.mcp_server import build_server
from rlm_mcp.daemon.mcp_stream import serve_lines
from rlm_mcp.daemon.tool_calls import own_permit
from rlm_mcp.service.service import Service

pytestmark = pytest.mark.anyio

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ENVELOPES = {"2026": MODERN, "ours": ENVELOPE}
"""What a call of these says of its client, in place of a handshake."""
ERAS = {"2024": "2024-11-05", "2025": "2025-11-25", "2026": "", "ours": ""}
VARYING = re.compile(rb'\\"(execution_time_seconds|run|memory_mb|seconds)\\":("[^"]*"|[0-9.]+|\\"r[0-9]+\\")')


class CountingReader(LineReader):
    """The daemon's end of a connection; ``fed`` counts the bytes that have arrived."""

    fed = 0

    def feed_data(self, data: bytes) -> None:
        self.fed += len(data)
        super().feed_data(data)


class Wire:
    """The client's end of a connection, which speaks one era. ``direct`` counts the lines that needed no SDK."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, era: str, server: CountingReader
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.era = era
        self.direct = 0
        self.by_the_sdk = False

    def put(self, line: dict[str, Any] | bytes) -> None:
        self.writer.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    async def deliver(self, piece: bytes) -> None:
        """Send some bytes, and wait until the daemon has got them."""
        wanted = self.server.fed + len(piece)
        self.writer.write(piece)
        await until(lambda: self.server.fed, lambda fed: fed == wanted)

    def call(self, number: int | str, params: dict[str, Any], **meta: Any) -> None:
        told = {**ENVELOPES.get(self.era, {}), **meta}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
        self.put({**message, "params": {**params, "_meta": told} if told else params})

    async def line(self) -> bytes:
        async with asyncio.timeout(60):
            return VARYING.sub(rb"\1", await self.reader.readline())

    async def begin(self) -> None:
        """Open the era, and make a first call."""
        if self.era not in ENVELOPES:
            about = {"protocolVersion": ERAS[self.era], "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            self.put({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": about})
            await self.line()
            self.put({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.call("first", {"name": "list_vars", "arguments": {}})
        assert b'"first"' in await self.line()


@asynccontextmanager
async def wire(service: Service, era: str, session: str = "s", permit: Permit | None = None) -> AsyncIterator[Wire]:
    ours, theirs = socket.socketpair()
    reader, loop = CountingReader(), asyncio.get_running_loop()
    transport, protocol = await loop.create_unix_connection(lambda: asyncio.StreamReaderProtocol(reader), sock=theirs)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    server = build_server(service)
    own = Wire(*await asyncio.open_unix_connection(sock=ours, limit=1 << 24), era, reader)
    take = DirectCalls.take

    def counted(self: DirectCalls, line: bytes) -> bool:
        taken = take(self, line)
        own.direct += taken
        return taken

    DirectCalls.take = counted  # type: ignore[method-assign]  # it does what it did
    async with server.lifespan(server) as state:
        info = ClientInfo(cwd="/tmp", env={"PARENT_SESSION_ID": session})

        async def by_the_sdk(lines: ClientLines) -> None:
            own.by_the_sdk = True
            await serve_lines(server, state, lines)

        task = asyncio.create_task(serve_client(by_the_sdk, permit, reader, writer, info))
        try:
            await own.begin()
            yield own
        finally:
            DirectCalls.take = take  # type: ignore[method-assign]
            own.writer.close()
            await task
            writer.close()


CALLS: dict[str, dict[str, Any]] = {
    "an answer": {"name": "list_vars", "arguments": {}},
    "no arguments": {"name": "status_of_nothing"},
    "a missing argument": {"name": "peek", "arguments": {}},
    "arguments of wrong types": {"name": "peek", "arguments": {"name": [1], "offset": "x", "zzz": None}},
    "an unknown name": {"name": "peek", "arguments": {"name": "nothing"}},
    "any text": {"name": "peek", "arguments": {"name": 'nul \0 \x7f \x1b \U0001f600 \u2028 \x85 \\ " / é'}},
    "numbers": {"name": "peek", "arguments": {"name": "a", "offset": 10**30, "limit": 1e300}},
    "a text that is loaded": {"name": "load_context", "arguments": {"name": "log", "content": "é\n\u2028\n" * 9}},
    "lines": {"name": "peek", "arguments": {"name": "log", "limit": 3}},
    "an unknown tool": {"name": "no_such\ntool", "arguments": {"a": {"b": [1.5, True, None]}}},
}


@pytest.mark.parametrize("era", ERAS)
async def test_both_ways_answer_with_the_same_bytes(quiet: Service, era: str) -> None:
    """K-27: what a client gets does not depend on the way of its call, in each version of the protocol."""
    async with wire(quiet, era) as client:
        for number, params in enumerate(CALLS.values()):
            client.call(number, params, progressToken="p", session="s")
            directly, taken = await client.line(), client.direct
            client.call(number, {**params, "other": 1}, progressToken="p", session="s")
            assert (directly, client.direct) == (await client.line(), taken)
        assert client.direct == len(CALLS)


async def test_calls_are_answered_however_their_lines_arrive(quiet: Service) -> None:
    """K-27: a line that arrives alone takes a shorter way than two in one read, and one in pieces."""
    async with wire(quiet, "ours", permit=own_permit(quiet)) as client:
        asked = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "list_vars", "_meta": ENVELOPE}}
        lines = [json.dumps({**asked, "id": number}).encode() + b"\n" for number in range(6)]
        for piece in (lines[0], lines[1] + lines[2], lines[3][:9], lines[3][9:-1], b"\n", b"\n" + lines[4], lines[5]):
            await client.deliver(piece)
        assert [json.loads(await client.line())["id"] for _ in lines] == list(range(6))
        assert not client.by_the_sdk
        await client.deliver(b"x")
        await client.deliver(lines[0])
        assert "error" in json.loads(await client.line())


@pytest.mark.parametrize("era", ERAS)
async def test_cells_pictures_and_progress_are_the_same_on_both_ways(live: Service, era: str) -> None:
    """A cell that raises, one that shows a picture, and one that is waited for: the same lines."""
    held = {"name": "eval_code", "arguments": {"code": "import time\ntime.sleep(0.3)\n1"}}
    async with wire(live, era, f"way-{era}") as client:
        for params in (held, {"name": "eval_code", "arguments": {"code": "1/0"}}):
            ways = []
            for extra in ({}, {"other": 1}):
                client.call(7, {**params, **extra}, progressToken=5)
                lines = [await client.line()]
                while b'"id"' not in lines[-1]:
                    lines.append(await client.line())
                # What a notification tells of time and of the state varies, and how many there are.
                told = (re.sub(rb"r[0-9]+ is [a-z]+", b"r is", re.sub(rb"[0-9.]+,", b"", line)) for line in lines)
                ways.append(set(told))
            assert ways[0] == ways[1]
        assert client.direct == 2


def _usual(**more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_vars", **more}}


UNUSUAL = {
    "an id that is a fraction": b'{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"list_vars"}}',
    "an id that is null": b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"list_vars"}}',
    "another member": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_vars"},"x":1}',
    "no version": b'{"id":1,"method":"tools/call","params":{"name":"list_vars"}}',
    "no parameters": b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    "a list as arguments": json.dumps(_usual(arguments=[])).encode(),
    "a number as name": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    "an odd token": json.dumps(_usual(_meta={"progressToken": True})).encode(),
    "an envelope": json.dumps(_usual(_meta=MODERN)).encode(),
    "half of a pair": rb'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud83d"}}',
    "cut off": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_vars"}',
}


@pytest.mark.parametrize("name", UNUSUAL)
async def test_whatever_is_unusual_is_left_to_the_sdk(quiet: Service, name: str) -> None:
    """Each of its checks still holds after a usual call was answered without it."""
    async with wire(quiet, "2025") as client:
        client.put(UNUSUAL[name])
        client.call(2, {"name": "list_vars", "arguments": {}})
        assert 2 in [json.loads(await client.line()).get("id") for _ in range(2)]
        assert client.direct <= 1


async def test_an_envelope_that_the_sdk_has_not_seen_is_checked_by_it(quiet: Service) -> None:
    """A client that says of itself another version is refused, as at its first call."""
    async with wire(quiet, "2026") as client:
        other = {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}
        client.call(1, {"name": "list_vars", "arguments": {}}, **other)
        assert b'"error"' in await client.line()
        assert client.direct == 0


async def test_a_call_that_is_cancelled_is_interrupted_and_not_answered(live: Service) -> None:
    """The notification reaches a call on either way, whether it writes the number as one or as a text."""
    async with wire(live, "2025", "cancelled") as client:
        for number, named in ((1, 1), (2, "2")):
            client.call(number, {"name": "eval_code", "arguments": {"code": "while True: pass"}}, progressToken=number)
            assert b"notifications/progress" in await client.line()
            client.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": named}})
            client.call(number + 10, {"name": "eval_code", "arguments": {"code": "'free'"}})
            line = await client.line()
            while b'"id"' not in line:
                line = await client.line()
            assert json.loads(line)["id"] == number + 10
            assert b"free" in line
        assert client.direct == 6


async def test_calls_of_our_own_clients_need_no_sdk(quiet: Service) -> None:
    """From the first one on, with the bytes that the SDK answers; another line brings it in for the rest."""
    async with wire(quiet, "ours", permit=own_permit(quiet)) as ours, wire(quiet, "ours") as theirs:
        for number, params in enumerate(CALLS.values()):
            ways = []
            for client, extra in ((ours, {}), (theirs, {"other": 1})):
                client.call(number, {**params, **extra}, progressToken="p", session="s")
                ways.append(await client.line())
            assert ways[0] == ways[1]
        assert (ours.by_the_sdk, ours.direct) == (False, 1 + len(CALLS))
        ours.put({"jsonrpc": "2.0", "id": 99, "method": "tools/list", "params": {"_meta": ENVELOPE}})
        assert b'"inputSchema"' in await ours.line()
        assert ours.by_the_sdk
        for number in (100, 101):
            ours.call(number, {"name": "list_vars", "arguments": {}})
            assert json.loads(await ours.line())["id"] == number
        assert ours.direct == 1 + len(CALLS) + 1


@pytest.mark.parametrize("first", ["2024", "2025", "2026"])
async def test_the_permit_of_our_clients_is_for_them_alone(quiet: Service, first: str) -> None:
    """Whoever says anything else of itself, or opens another era, is the SDK's from its first line on."""
    async with wire(quiet, first, permit=own_permit(quiet)) as client:
        assert (client.by_the_sdk, client.direct) == (True, 0)
        client.call(1, {"name": "list_vars", "arguments": {}}, **ENVELOPE)
        await client.line()
        assert client.direct == 0


async def test_a_cancelled_call_of_our_own_client_needs_no_sdk(live: Service) -> None:
    """Ctrl-C in a command that waits for a cell must not cost the SDK."""
    async with wire(live, "ours", "cancelled-ours", own_permit(live)) as client:
        client.call(1, {"name": "eval_code", "arguments": {"code": "while True: pass"}}, progressToken=1)
        assert b"notifications/progress" in await client.line()
        client.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        client.call(2, {"name": "eval_code", "arguments": {"code": "'free'"}})
        line = await client.line()
        while b'"id"' not in line:
            line = await client.line()
        assert b"free" in line
        assert not client.by_the_sdk


async def test_calls_behind_one_that_the_sdk_has_do_not_overtake_it(quiet: Service) -> None:
    """A client that sends calls ahead of answers has them begun in the order in which it sent them."""
    async with wire(quiet, "2025") as client:
        client.call(1, {"name": "load_context", "arguments": {"name": "early", "content": "x"}, "other": 1})
        client.call(2, {"name": "list_vars", "arguments": {}})
        assert {json.loads(await client.line())["id"] for _ in range(2)} == {1, 2}
        assert client.direct == 0
        client.call(3, {"name": "list_vars", "arguments": {}})
        await client.line()
        assert client.direct == 1


async def _came_of_the_cell(client: Wire) -> bytes:
    """What `wait` answers when the session's cell has ended."""
    line = b"running"
    while b"running" in line:
        client.call(1, {"name": "wait", "arguments": {}})
        line = await client.line()
    return line


@pytest.mark.parametrize("more", [{}, {"other": 1}], ids=["here", "by the SDK"])
async def test_a_cell_goes_on_when_its_client_hangs_up(live: Service, more: dict[str, int]) -> None:
    """A front that dies costs its client the answer, which whoever asks for it then gets."""
    session = f"left{len(more)}"
    async with wire(live, "2025", session) as client:
        code = "import time\nprint('before')\ntime.sleep(3)\nprint('after')\n'kept'"
        client.call(1, {"name": "eval_code", "arguments": {"code": code}, **more}, progressToken=1)
        assert b"notifications/progress" in await client.line()
    async with wire(live, "2025", session) as client:
        line = await _came_of_the_cell(client)
        assert rb"\"result\":\"" + b"'kept'" in line, line
        assert rb"\"stdout\":\"before\\nafter\\n\"" in line, line


@pytest.mark.parametrize("more", [{}, {"other": 1}], ids=["here", "by the SDK"])
async def test_a_client_that_cancels_before_it_hangs_up_interrupts_its_cell(
    live: Service, more: dict[str, int]
) -> None:
    """As a program of ours does at Ctrl-C: both arrive at once, and the notification counts."""
    session = f"cancelled{len(more)}"
    async with wire(live, "2025", session) as client:
        client.call(1, {"name": "eval_code", "arguments": {"code": "while True: pass"}, **more}, progressToken=1)
        assert b"notifications/progress" in await client.line()
        client.put({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    async with wire(live, "2025", session) as client:
        assert b"nterrupted" in await _came_of_the_cell(client)  # as it ran, or before it began
