"""One MCP stream per connection: newline-delimited JSON-RPC over a unix socket, served by the SDK's own loop.

Everything that arrives is hostile. A line that is not a message gets a JSON-RPC error which says what is
wrong with it, addressed to its id wherever one can be found, so that no caller waits for ever; then the
next line is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage

from rlm_ipc.json_lines import CHUNK, MAX_LINE, LineSplitter, Oversized, error_line
from rlm_mcp.client_info import ClientInfo, current_handshake
from rlm_mcp.daemon.direct_calls import DirectCalls, current_direct_calls
from rlm_mcp.daemon.mcp_lines import parse_message, refuse_too_many_values, render_message
from rlm_mcp.errors import MessageRefused

__all__ = ["LineStream", "serve_client"]

log = logging.getLogger("rlm_mcp.daemon.mcp_stream")


async def serve_client(
    server: Server[Any],
    state: Any,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handshake: ClientInfo,
) -> None:
    """Serve one client until it hangs up; ``state`` is the server's lifespan state, shared by all of them.

    The client's first request decides the protocol era (2025 handshake or 2026-07-28 envelope).
    """
    token = current_handshake.set(handshake)
    direct = DirectCalls(writer)
    current_direct_calls.set(direct)
    stream = LineStream(reader, writer, direct)
    try:
        await serve_dual_era_loop(
            server,
            stream,
            stream,
            lifespan_state=state,
            init_options=server.create_initialization_options(NotificationOptions(tools_changed=True)),
        )
    finally:
        current_handshake.reset(token)
        await direct.aclose()


class LineStream:
    """The SDK's read and write stream over one asyncio connection; no pump tasks, no queues in between."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direct: DirectCalls,
        *,
        limit: int = MAX_LINE,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._direct = direct
        self._lines = LineSplitter(limit)
        self._read: deque[bytes | Oversized] = deque()
        self._limit = limit

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            while self._read:
                if (message := await self._take(self._read.popleft())) is not None:
                    return SessionMessage(message)
            try:
                data = await self._reader.read(CHUNK)
            except OSError:
                data = b""
            if not data:
                self._direct.cancel()
                raise StopAsyncIteration
            self._read.extend(self._lines.feed(data))

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raises :class:`anyio.EndOfStream` when the client has hung up."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _take(self, line: bytes | Oversized) -> JSONRPCMessage | None:
        """Return the message in a line for the SDK; what is none, or needs no SDK, is answered here."""
        if isinstance(line, Oversized):
            refusal = line.refusal(self._limit)
        elif not line.strip():
            refusal = None
        else:
            try:
                refuse_too_many_values(line)
                if self._direct.take(line):
                    return None
                message = parse_message(line)
                self._direct.passed(message)
                return message
            except MessageRefused as refused:
                log.info("message refused", extra={"reason": str(refused)})
                refusal = error_line(refused.request_id, refused.code, str(refused))
        if refusal is not None:
            await self._write(refusal)
        return None

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, waiting while the client does not read."""
        await self._write(render_message(item.message))
        self._direct.answered(item.message)

    async def _write(self, line: bytes) -> None:
        if self._writer.is_closing():
            raise anyio.ClosedResourceError
        self._writer.write(line)
        try:
            await self._writer.drain()
        except OSError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Do nothing: the connection belongs to whoever accepted it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
