"""Calls of tools that are answered without the SDK, whose way to a tool and back costs more than most tools.

The SDK serves the first call of a connection, with every check that it makes. The server then permits (`Permit`) calls
that differ from that one only in their tool, its arguments and who asks. Whatever else a client sends goes to the SDK,
with the calls behind it. The bytes of an answer are the same on both ways.

Clients of ours all say the same of themselves. Their calls are permitted from the first one on: while nobody else has
come, the daemon does without the SDK.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
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
"""The codes of errors that the SDK gives for a call whose client has hung up, and for one that fails."""
_RESERVED = "io.modelcontextprotocol/"
"""How names begin by which MCP itself is told something in the ``_meta`` of a call."""
_TOKEN = "progressToken"
_CALL = {"jsonrpc", "id", "method", "params"}
_CANCELLATION = _CALL - {"id"}
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
    """What needs no SDK on a connection: a call with this ``envelope``, answered in this shape."""

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
    """The calls of one connection that are answered here, as soon as the SDK has given a ``permit``.

    ``ours`` permits the calls of a client of ours, until it sends anything else.
    """

    def __init__(self, writer: asyncio.StreamWriter, ours: Permit | None = None) -> None:
        self.permit: Permit | None = None
        self._ours = ours
        self._writer = writer
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._elsewhere: set[RequestId] = set()
        """Calls that the SDK has and has not answered: those behind them would overtake them here."""
        self._cancelled: set[RequestId] = set()
        """Calls, here or there, that the client has cancelled."""
        self._has_hung_up = False

    def take(self, line: bytes) -> bool:
        """Answer the call in a line, or cancel one that runs here; says whether the line did either."""
        if self._running and (named := _cancelled_in(line)) is not None and named in self._running:
            self._cancelled.add(named)
            self._running[named].cancel()
            return True
        if (permit := self.permit or self._ours) is None or self._elsewhere or (call := _call_in(line)) is None:
            return False
        if envelope(call.meta) != permit.envelope:
            return False
        task = asyncio.create_task(self._answer(permit, call))
        self._running[_coerced(call.id)] = task
        task.add_done_callback(self._done)
        return True

    def passed(self, method: str, request: RequestId | None, params: Mapping[str, Json]) -> None:
        """Hear of a request, or a notification, that goes to the SDK."""
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
        """Hear that the SDK has answered a request."""
        self._elsewhere.discard(_coerced(request))

    def has_left(self, request: RequestId) -> bool:
        """Say whether the client has hung up without cancelling that call."""
        return self._has_hung_up and _coerced(request) not in self._cancelled

    def ended(self, request: RequestId) -> None:
        """Forget a call of the SDK that has ended."""
        self._cancelled.discard(_coerced(request))

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
                await self._write(as_line({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

        try:
            has_left = functools.partial(self.has_left, call.id)
            content = await permit.call(call.name, call.arguments, call.meta, progress, has_left)
            line = permit.shape.line(call.id, content)
        except asyncio.CancelledError:
            if _coerced(call.id) not in self._cancelled:  # who has cancelled a call is told nothing more of it
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
        with suppress(OSError):  # the client has gone: the loop that reads hears of it
            await self._writer.drain()


def _object_in(line: bytes, method: bytes) -> Mapping[str, Json] | None:
    """Return the JSON object in a line, if it can be a message with this method."""
    if method not in line:
        return None
    with suppress(ValueError):
        if isinstance(message := from_json(line), dict):
            return message
    return None


def _cancelled_in(line: bytes) -> RequestId | None:
    """Return which request a line cancels, if it does nothing else."""
    message = _object_in(line, b'"notifications/cancelled"')
    if message is None or message.keys() != _CANCELLATION or message["method"] != "notifications/cancelled":
        return None
    named = message["params"].get("requestId") if isinstance(message["params"], dict) else None
    return _coerced(named) if isinstance(named, int | str) else None


def _call_in(line: bytes) -> _Call | None:
    """Return the call in a line, if it has nothing but what each call has."""
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
    """Return a request's id as the SDK tells one from another: it takes the text "7" for the number."""
    if isinstance(request, str):
        with suppress(ValueError):
            return int(request)
    return request


_NONE: Mapping[str, Json] = {}
current_direct_calls: ContextVar[DirectCalls | None] = ContextVar("rlm_mcp_direct_calls", default=None)
"""The calls of the connection that is being served; None where a connection has no such way, as over HTTP."""
