"""The transport: what arrives on a connection, and what each kind of garbage is answered with."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.server.lowlevel import Server

from rlm_ipc.json_lines import HANDSHAKE_ENVIRONMENT, INVALID_REQUEST, PARSE_ERROR, handshake_line
from rlm_mcp.client_info import ClientInfo, current_handshake, parse_handshake
from rlm_mcp.daemon.client_lines import serve_client
from rlm_mcp.daemon.mcp_lines import parse_message, render_message
from rlm_mcp.daemon.mcp_stream import serve_lines
from rlm_mcp.errors import HandshakeRefused, MessageRefused

pytestmark = pytest.mark.anyio

HELLO = ClientInfo(cwd="/somewhere", env={"PARENT_SESSION_ID": "abc"}, pid=1)


async def _list(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


async def _call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    text = current_handshake.get().cwd if params.name == "where" else str(given.get("text"))
    if params.name == "fail":
        raise RuntimeError("the tool broke")
    if params.name == "half":
        text = "half \ud800 of a pair"
    return types.CallToolResult(content=[types.TextContent(text=text)])


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve one end of a socket pair with a real server, give the other end."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    server: Server[Any] = Server("toy", on_list_tools=_list, on_call_tool=_call)
    async with server.lifespan(server) as state:
        task = asyncio.create_task(serve_client(partial(serve_lines, server, state), None, reader, writer, HELLO))
        client_reader, client_writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 24)
        try:
            with anyio.fail_after(30):
                yield client_reader, client_writer
        finally:
            client_writer.close()
            await task
            writer.close()


async def _exchange(*messages: Any, answers: int) -> list[dict[str, Any]]:
    """Send messages (objects, or bytes as they are) and return that many answers."""
    async with connection() as (reader, writer):
        for message in messages:
            writer.write(message if isinstance(message, bytes) else json.dumps(message).encode())
            writer.write(b"\n")
        return [json.loads(await reader.readline()) for _ in range(answers)]


def _request(request_id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def _modern(request_id: int, name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call of the 2026 era, which carries its envelope."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return _request(request_id, "tools/call", name=name, arguments=arguments, _meta=meta)


INITIALIZE = _request(
    1,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "x", "version": "1"},
)


async def test_both_eras_are_served_and_know_their_client() -> None:
    """K-27: a handshake of 2025 or an envelope of 2026, and the tool sees the handshake of its connection."""
    old = await _exchange(INITIALIZE, _request(2, "tools/call", name="where"), answers=2)
    assert old[1]["result"]["content"][0]["text"] == "/somewhere"
    (new,) = await _exchange(_modern(1, "where"), answers=1)
    assert new["result"]["content"][0]["text"] == "/somewhere"


GARBAGE = {
    "words": (b"hello", PARSE_ERROR, None, "not JSON"),
    "cut off": (b'{"jsonrpc":"2.0","id":3,"method":"ping"', PARSE_ERROR, 3, "not JSON"),
    "raw NUL": (b'{"jsonrpc":"2.0","id":3,"method":"pi\0ng"}', PARSE_ERROR, 3, "control character"),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":3,"method":"\xff"}', PARSE_ERROR, 3, "UTF-8"),
    "lone surrogate": (
        rb'{"jsonrpc":"2.0","id":3,"method":"ping","params":{"x":"\ud83d"}}',
        PARSE_ERROR,
        3,
        "surrogate",
    ),
    "deep": (b'{"jsonrpc":"2.0","id":3,"method":"x","params":' + b'{"a":' * 50_000, PARSE_ERROR, 3, ""),
    "batch": (b"[]", INVALID_REQUEST, None, "batches"),
    "a number": (b"7", INVALID_REQUEST, None, "JSON object"),
    "no version": (b'{"id":3,"method":"ping"}', INVALID_REQUEST, 3, "jsonrpc"),
    "odd id": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', INVALID_REQUEST, None, '"id"'),
    "true id": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None, "a boolean"),
    "fraction id": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST, None, "a fraction"),
    "odd method": (b'{"jsonrpc":"2.0","id":3,"method":7}', INVALID_REQUEST, 3, '"method"'),
    "odd params": (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}', INVALID_REQUEST, 3, '"params"'),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_gets_an_error_that_says_what_is_wrong(name: str) -> None:
    """Each kind of hostile line is answered, to its id where it has one, and the next request is served."""
    line, code, request_id, words = GARBAGE[name]
    first, second = await _exchange(line, _modern(9, "echo", text="after"), answers=2)
    assert (first["error"]["code"], first["id"]) == (code, request_id)
    assert words in first["error"]["message"]
    assert second["result"]["content"][0]["text"] == "after"


async def test_wrong_types_inside_params_are_invalid_params() -> None:
    """A tool call whose arguments are no object is refused by the server, with its id."""
    answers = await _exchange(INITIALIZE, _request(2, "tools/call", name=5, arguments="x"), answers=2)
    assert (answers[1]["id"], answers[1]["error"]["code"]) == (2, -32602)


async def test_an_unknown_method_is_named() -> None:
    """A method that the server does not have is not found, also before the handshake."""
    (answer,) = await _exchange(_request(1, "no/such"), answers=1)
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32601, "no/such")


async def test_blank_lines_and_stray_answers_are_passed_over() -> None:
    """They are not requests: nobody waits for an answer."""
    stray = {"jsonrpc": "2.0", "id": 99, "result": {}}
    (answer,) = await _exchange(b"", b"  ", stray, _modern(1, "echo", text="x"), answers=1)
    assert answer["id"] == 1


async def test_a_tool_that_breaks_breaks_its_own_call_only() -> None:
    """An exception in a handler is an error for that request."""
    answers = await _exchange(_modern(1, "fail"), _modern(2, "echo", text="fine"), answers=2)
    by_id = {answer["id"]: answer for answer in answers}
    assert "error" in by_id[1]
    assert by_id[2]["result"]["content"][0]["text"] == "fine"


async def test_an_answer_that_is_no_valid_text_is_repaired() -> None:
    """Half of a surrogate pair in an answer must neither end the connection nor lose the answer."""
    answers = await _exchange(_modern(1, "half"), _modern(2, "echo", text="after"), answers=2)
    by_id = {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers}
    assert by_id == {1: "half \ufffd of a pair", 2: "after"}


async def test_escaped_nul_and_any_other_text_pass_unchanged() -> None:
    r"""What JSON can say reaches the tool: \u0000, pairs of surrogates, line separators."""
    text = "nul \0 pair \U0001f600 lines \u2028 \x85"
    (answer,) = await _exchange(_modern(1, "echo", text=text), answers=1)
    assert answer["result"]["content"][0]["text"] == text


async def test_a_message_in_pieces_is_one_message() -> None:
    """The boundaries of reads mean nothing."""
    async with connection() as (reader, writer):
        for byte in json.dumps(_modern(1, "echo", text="slow")).encode() + b"\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert json.loads(await reader.readline())["id"] == 1


async def test_many_requests_at_once_are_all_answered() -> None:
    """A thousand requests written without reading: all answered, whatever the buffers hold."""
    calls = [_modern(number, "echo", text="x" * 1000) for number in range(1, 1001)]
    answers = await _exchange(*calls, answers=1000)
    assert {answer["id"] for answer in answers} == set(range(1, 1001))


def test_a_refused_message_says_to_whom_the_answer_goes() -> None:
    """The error carries code and id for the answer."""
    with pytest.raises(MessageRefused) as caught:
        parse_message(b'{"jsonrpc":"1.0","id":"x","method":"ping"}')
    assert (caught.value.code, caught.value.request_id) == (INVALID_REQUEST, "x")


def test_an_answer_that_json_cannot_say_becomes_an_error() -> None:
    """A result of ours that cannot be written is our fault and is said so, to the id that waits."""
    message = types.JSONRPCResponse(jsonrpc="2.0", id=4, result={"x": object()})
    answer = json.loads(render_message(message))
    assert answer["id"] == 4
    assert "cannot be written" in answer["error"]["message"]


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"GET / HTTP/1.1", b'{"jsonrpc":"2.0","id":1,"method":"initialize"}']
)
def test_a_connection_without_our_handshake_is_told_how_to_connect(line: bytes) -> None:
    """Whoever speaks MCP or HTTP at the socket learns about `rlm-kernel mcp`."""
    with pytest.raises(HandshakeRefused, match="rlm-kernel mcp"):
        parse_handshake(line)


def test_another_protocol_number_is_refused_with_both_numbers() -> None:
    """An old daemon and a new front say so instead of misunderstanding each other."""
    with pytest.raises(HandshakeRefused, match="'99'"):
        parse_handshake(b'{"rlm":"99"}')


def test_a_hostile_handshake_is_reduced_to_what_is_usable() -> None:
    """Wrong types, NUL characters and unknown variables do not reach the tools."""
    line = json.dumps(
        {
            "rlm": 1,
            "pid": "x",
            "cwd": "/a\0b",
            "env": {"PARENT_SESSION_ID": "a\ud800", "PATH": "/x", "RLM_KERNEL_POLICY": 3},
        }
    ).encode()
    handshake = parse_handshake(line).client
    assert handshake == ClientInfo(cwd="", env={"PARENT_SESSION_ID": "a?"}, pid=-1)


def test_a_handshake_carries_the_session_variables_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-12: PARENT_SESSION_ID, OPENCODE_SESSION_ID and our own two, nothing else of the environment."""
    for name in HANDSHAKE_ENVIRONMENT:
        monkeypatch.setenv(name, name.lower())
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    handshake = parse_handshake(handshake_line()).client
    assert dict(handshake.env) == {name: name.lower() for name in HANDSHAKE_ENVIRONMENT}
