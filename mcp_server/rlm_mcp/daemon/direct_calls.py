"""Calls of tools that are answered without the SDK, whose way to a tool and back costs more than most tools.

The SDK serves the first call of a connection, with every check that it makes. The server then permits (`Permit`) calls
that differ from that one only in their tool, its arguments and who asks. Whatever else a client sends goes to the SDK,
with the calls behind it. The bytes of an answer are the same on both ways.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    SERVER_INFO_META_KEY,
    CallToolResult,
    ErrorData,
    ImageContent,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    TextContent,
    methods,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import PydanticSerializationError, from_json, to_json

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json
from rlm_mcp.daemon.mcp_lines import render_message
from rlm_mcp.formats.pictures import PNG
from rlm_mcp.service.progress import Progress

__all__ = ["Content", "DirectCalls", "Permit", "ResultShape", "current_direct_calls", "envelope"]

log = logging.getLogger(__name__)

_METHOD = "tools/call"
_RESERVED = "io.modelcontextprotocol/"
"""How names begin by which MCP itself is told something in the ``_meta`` of a call."""
_TOKEN = "progressToken"
_CALL = {"jsonrpc", "id", "method", "params"}
_PARAMS = {"name", "arguments", "_meta"}


@dataclass(frozen=True)
class Content:
    """What a call is answered with: texts, and pictures (PNG as base64) behind them."""

    texts: Sequence[str]
    images: Sequence[str]
    is_error: bool


HasLeft = Callable[[], bool]
"""Says of a call that ends early whether its client has hung up without cancelling it."""
CallTool = Callable[[str, Mapping[str, Json], Mapping[str, Json], Progress, HasLeft], Awaitable[Content]]
"""Calls a tool by its name, with arguments and the ``_meta`` of the call. A client's fault is an answer, too."""


class ResultShape:
    """How the SDK writes the result of a call in one version of the protocol."""

    def __init__(self, version: str, server_info: Mapping[str, Json]) -> None:
        sample = CallToolResult(content=[TextContent(text=""), ImageContent(data="", mime_type=PNG)])
        dumped = sample.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._result = methods.serialize_server_result(_METHOD, version, dumped)
        self._text, self._image = self._result["content"]
        if version in MODERN_PROTOCOL_VERSIONS:
            self._result["_meta"] = {SERVER_INFO_META_KEY: dict(server_info)}

    def line(self, request: RequestId, content: Content) -> bytes:
        """Return the line that answers ``request``."""
        texts = [{**self._text, "text": text} for text in content.texts]
        images = [{**self._image, "data": image} for image in content.images]
        result = {**self._result, "content": [*texts, *images], "isError": content.is_error}
        try:
            return to_json({"jsonrpc": "2.0", "id": request, "result": result}) + b"\n"
        except (PydanticSerializationError, UnicodeError):
            return render_message(JSONRPCResponse(jsonrpc="2.0", id=request, result=result))


@dataclass(frozen=True)
class Permit:
    """What the SDK has accepted: a call with this ``envelope`` on this connection, answered in this shape."""

    envelope: Mapping[str, Json]
    shape: ResultShape
    call: CallTool


def envelope(meta: Mapping[str, Any]) -> Mapping[str, Json]:
    """Return what the ``_meta`` of a call tells MCP itself: version, client, capabilities."""
    return {name: value for name, value in meta.items() if name.startswith(_RESERVED)}


@dataclass(frozen=True)
class _Call:
    """A call as its line has it."""

    id: RequestId
    name: str
    arguments: Mapping[str, Json]
    meta: Mapping[str, Json]


class DirectCalls:
    """The calls of one connection that are answered here."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.permit: Permit | None = None
        self._writer = writer
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._elsewhere: set[RequestId] = set()
        """Calls that the SDK has and has not answered: those behind them would overtake them here."""
        self._cancelled: set[RequestId] = set()
        """Calls, here or there, that the client has cancelled."""
        self._has_hung_up = False

    def take(self, line: bytes) -> bool:
        """Answer the call in a line, and say whether it is one that is answered here."""
        if (permit := self.permit) is None or self._elsewhere or (call := _call_in(line)) is None:
            return False
        if envelope(call.meta) != permit.envelope:
            return False
        task = asyncio.create_task(self._answer(permit, call))
        self._running[coerce_request_id(call.id)] = task
        task.add_done_callback(self._done)
        return True

    def passed(self, message: JSONRPCMessage) -> None:
        """Hear of a message that goes to the SDK."""
        match message:
            case JSONRPCRequest(method="tools/call", id=request):
                self._elsewhere.add(coerce_request_id(request))
            case JSONRPCRequest(method="initialize"):
                self.permit = None
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as named}):
                request = coerce_request_id(named)
                if request in self._elsewhere or request in self._running:
                    self._cancelled.add(request)
                self._elsewhere.discard(request)
                if (task := self._running.get(request)) is not None:
                    task.cancel()

    def answered(self, message: JSONRPCMessage) -> None:
        """Hear of a message that the SDK sends."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._elsewhere.discard(coerce_request_id(message.id))

    def has_left(self, request: RequestId) -> bool:
        """Say whether the client has hung up without cancelling that call."""
        return self._has_hung_up and coerce_request_id(request) not in self._cancelled

    def ended(self, request: RequestId) -> None:
        """Forget a call of the SDK that has ended."""
        self._cancelled.discard(coerce_request_id(request))

    def cancel(self) -> None:
        """Give up what runs: the client has hung up."""
        self._has_hung_up = True
        for task in self._running.values():
            task.cancel()

    async def aclose(self) -> None:
        """Give up what runs, and wait until it has ended."""
        self.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        for request in [request for request, one in self._running.items() if one is task]:
            del self._running[request]
            self._cancelled.discard(request)

    async def _answer(self, permit: Permit, call: _Call) -> None:
        token = call.meta.get(_TOKEN)

        async def progress(done: float, message: str, total: float | None = None) -> None:
            if token is not None:
                told = {"progressToken": token, "progress": done, "total": total, "message": message}
                params = {name: value for name, value in told.items() if value is not None}
                await self._write(
                    render_message(
                        JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params),
                    )
                )

        try:
            has_left = functools.partial(self.has_left, call.id)
            content = await permit.call(call.name, call.arguments, call.meta, progress, has_left)
            line = permit.shape.line(call.id, content)
        except asyncio.CancelledError:
            if coerce_request_id(call.id) not in self._cancelled:  # who has cancelled a call is told nothing more of it
                self._put(_failed(call.id, CONNECTION_CLOSED, "Connection closed"))
            raise
        except Exception:
            log.exception("a call failed", extra={"tool": call.name[:80]})
            line = _failed(call.id, INTERNAL_ERROR, "Internal server error")
        await self._write(line)

    def _put(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)

    async def _write(self, line: bytes) -> None:
        self._put(line)
        with suppress(OSError):  # the client has gone: the loop that reads hears of it
            await self._writer.drain()


def _call_in(line: bytes) -> _Call | None:
    """Return the call in a line, if it has nothing but what each call has."""
    if b'"tools/call"' not in line:
        return None
    try:
        message = from_json(line)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.keys() != _CALL:
        return None
    request, params = message["id"], message["params"]
    if message["jsonrpc"] != "2.0" or message["method"] != _METHOD or type(request) not in {int, str}:
        return None
    if not isinstance(params, dict) or not params.keys() <= _PARAMS:
        return None
    name, arguments, meta = params.get("name"), params.get("arguments", _NONE), params.get("_meta", _NONE)
    if not isinstance(name, str) or not isinstance(arguments, dict) or not isinstance(meta, dict):
        return None
    if _TOKEN in meta and type(meta[_TOKEN]) not in {int, str}:
        return None
    return _Call(request, name, arguments, meta)


def _failed(request: RequestId, code: int, message: str) -> bytes:
    return render_message(JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=code, message=message)))


_NONE: Mapping[str, Json] = {}
current_direct_calls: ContextVar[DirectCalls | None] = ContextVar("rlm_mcp_direct_calls", default=None)
"""The calls of the connection that is being served; None where a connection has no such way, as over HTTP."""
