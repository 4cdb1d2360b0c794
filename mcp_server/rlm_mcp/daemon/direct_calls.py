"""Tool calls that are answered without the SDK, whose overhead is larger than the cost of most tools.

The SDK serves the first call of a connection, with all its checks. The server then permits (`Permit`) calls that differ
from it only in their tool, arguments and caller. Everything else goes to the SDK, and so do the calls behind it. Both
ways produce the same bytes.

Our own clients all send the same envelope. Their calls are permitted from the first one on, so the daemon does not
import the SDK until another client connects.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

from pydantic_core import from_json

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json
from rlm_mcp.daemon.message_lines import as_line
from rlm_mcp.service.progress import Progress

log = logging.getLogger(__name__)

METHOD = "tools/call"
RequestId = str | int
_CONNECTION_CLOSED, _INTERNAL_ERROR = -32000, -32603
"""The SDK's error codes for a call whose client has disconnected, and for one that fails."""
_RESERVED = "io.modelcontextprotocol/"
"""The prefix of names in the ``_meta`` of a call that are addressed to MCP itself."""
_TOKEN = "progressToken"
_CALL = {"jsonrpc", "id", "method", "params"}
_CANCELLATION = _CALL - {"id"}
_PARAMS = {"name", "arguments", "_meta"}


@dataclass(frozen=True)
class Content:
    """The content of an answer: texts, then pictures (PNG as base64)."""

    texts: Sequence[str]
    images: Sequence[str]
    is_error: bool


HasLeft = Callable[[], bool]
"""Tells whether the client of a call that ends early has disconnected without cancelling it."""
CallTool = Callable[[str, Mapping[str, Json], Mapping[str, Json], Progress, HasLeft], Awaitable[Content]]
"""Calls a tool by name, with arguments and the ``_meta`` of the call. A client's error is an answer, too."""


@dataclass(frozen=True)
class ResultShape:
    """How the SDK writes the ``result`` of a call in one version of the protocol, a ``text`` of it and an ``image``."""

    result: Mapping[str, Json]
    text: Mapping[str, Json]
    image: Mapping[str, Json]

    def line(self, request: RequestId, content: Content) -> bytes:
        """Return the line that answers ``request``."""
        texts = [{**self.text, "text": text} for text in content.texts]
        images = [{**self.image, "data": image} for image in content.images]
        result = {**self.result, "content": [*texts, *images], "isError": content.is_error}
        return as_line({"jsonrpc": "2.0", "id": request, "result": result})


@dataclass(frozen=True)
class Permit:
    """The calls that need no SDK: those with this ``envelope``, answered in this shape."""

    envelope: Mapping[str, Json]
    shape: ResultShape
    call: CallTool


def envelope(meta: Mapping[str, Any]) -> Mapping[str, Json]:
    """Return the part of a call's ``_meta`` for MCP itself: version, client, capabilities."""
    return {name: value for name, value in meta.items() if name.startswith(_RESERVED)}


@dataclass(frozen=True)
class _Call:
    """A call, as parsed from its line."""

    id: RequestId
    name: str
    arguments: Mapping[str, Json]
    meta: Mapping[str, Json]


class DirectCalls:
    """The calls of one connection that are answered here, once there is a ``permit``.

    ``ours`` permits the calls of our own clients, until they send anything else.
    """

    def __init__(self, writer: asyncio.StreamWriter, ours: Permit | None = None) -> None:
        self.permit: Permit | None = None
        self._ours = ours
        self._writer = writer
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._elsewhere: set[RequestId] = set()
        """Calls that the SDK has not answered yet. Later calls must not overtake them."""
        self._cancelled: set[RequestId] = set()
        """Calls, here or in the SDK, that the client has cancelled."""
        self._has_hung_up = False
        self._context = copy_context()
        """Whose calls they are: where a line arrives, nothing says it."""

    def take(self, line: bytes) -> bool:
        """Answer the call in a line, or cancel one that runs here. Return whether the line was one of these."""
        if self._running and (named := _cancelled_in(line)) is not None and named in self._running:
            self._cancelled.add(named)
            self._running[named].add_done_callback(self._done)  # one that has not begun never gets to its end
            self._running[named].cancel()
            return True
        if (permit := self.permit or self._ours) is None or self._elsewhere or (call := _call_in(line)) is None:
            return False
        if envelope(call.meta) != permit.envelope:
            return False
        task = asyncio.get_running_loop().create_task(self._answer(permit, call), context=self._context.copy())
        self._running[_coerced(call.id)] = task
        return True

    def passed(self, method: str, request: RequestId | None, params: Mapping[str, Json]) -> None:
        """Note a request or a notification that goes to the SDK."""
        self._ours = None
        match method:
            case "tools/call" if request is not None:
                self._elsewhere.add(_coerced(request))
            case "initialize" if request is not None:
                self.permit = None
            case "notifications/cancelled" if isinstance(named := params.get("requestId"), str | int):
                if (given := _coerced(named)) in self._elsewhere:
                    self._cancelled.add(given)
                    self._elsewhere.discard(given)

    def answered(self, request: RequestId) -> None:
        """Note that the SDK has answered a request."""
        self._elsewhere.discard(_coerced(request))

    def has_left(self, request: RequestId) -> bool:
        """Tell whether the client has disconnected without cancelling the call."""
        return self._has_hung_up and _coerced(request) not in self._cancelled

    def ended(self, request: RequestId) -> None:
        """Forget a call of the SDK that has ended."""
        self._cancelled.discard(_coerced(request))

    def cancel(self) -> None:
        """Cancel the running calls: the client has disconnected."""
        self._has_hung_up = True
        for task in self._running.values():
            task.cancel()

    async def aclose(self) -> None:
        """Cancel the running calls, and wait for their end."""
        self.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _done(self, task: asyncio.Task[None] | None) -> None:
        for request in [request for request, one in self._running.items() if one is task]:
            del self._running[request]
            self._cancelled.discard(request)

    async def _answer(self, permit: Permit, call: _Call) -> None:
        try:
            await self._answered(permit, call)
        finally:
            self._done(asyncio.current_task())

    async def _answered(self, permit: Permit, call: _Call) -> None:
        token = call.meta.get(_TOKEN)

        async def progress(done: float, message: str, total: float | None = None) -> None:
            if token is not None:
                told = {"progressToken": token, "progress": done, "total": total, "message": message}
                params = {name: value for name, value in told.items() if value is not None}
                await self._write(as_line({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

        try:
            has_left = functools.partial(self.has_left, call.id)
            content = await permit.call(call.name, call.arguments, call.meta, progress, has_left)
            line = permit.shape.line(call.id, content)
        except asyncio.CancelledError:
            if _coerced(call.id) not in self._cancelled:  # a cancelled call gets no answer
                self._put(_failed(call.id, _CONNECTION_CLOSED, "Connection closed"))
            raise
        except Exception:
            log.exception("a call failed", extra={"tool": call.name[:80]})
            line = _failed(call.id, _INTERNAL_ERROR, "Internal server error")
        await self._write(line)

    def _put(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)

    async def _write(self, line: bytes) -> None:
        self._put(line)
        with suppress(OSError):  # the client has disconnected: the reading loop notices it
            await self._writer.drain()


def _object_in(line: bytes, method: bytes) -> Mapping[str, Json] | None:
    """Return the JSON object in a line, if it can be a message with this method."""
    if method not in line:
        return None
    try:
        message = from_json(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _cancelled_in(line: bytes) -> RequestId | None:
    """Return the request that a line cancels, if it does nothing else."""
    message = _object_in(line, b'"notifications/cancelled"')
    if message is None or message.keys() != _CANCELLATION or message["method"] != "notifications/cancelled":
        return None
    named = message["params"].get("requestId") if isinstance(message["params"], dict) else None
    return _coerced(named) if isinstance(named, int | str) else None


def _call_in(line: bytes) -> _Call | None:
    """Return the call in a line, if it has only the usual fields."""
    message = _object_in(line, b'"tools/call"')
    if message is None or message.keys() != _CALL:
        return None
    request, params = message["id"], message["params"]
    if message["jsonrpc"] != "2.0" or message["method"] != METHOD or type(request) not in {int, str}:
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
    return as_line({"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message}})


def _coerced(request: RequestId) -> RequestId:
    """Return a request's id as the SDK compares it: the string "7" equals the number."""
    if isinstance(request, str):
        with suppress(ValueError):
            return int(request)
    return request


_NONE: Mapping[str, Json] = {}
current_direct_calls: ContextVar[DirectCalls | None] = ContextVar("rlm_mcp_direct_calls", default=None)
"""The direct calls of the current connection; None where there are none, as over HTTP."""
