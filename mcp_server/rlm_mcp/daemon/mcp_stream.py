"""The lines of one client as the SDK's streams: those that `rlm_mcp.daemon.client_lines` does not answer itself."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from rlm_mcp.daemon.client_lines import ClientLines
from rlm_mcp.daemon.mcp_lines import parse_message, render_message
from rlm_mcp.errors import MessageRefused


async def serve_lines(server: Server[Any], state: Any, lines: ClientLines) -> None:
    """Serve a client by the SDK's own loop until it disconnects.

    ``state`` is the server's lifespan state, shared by all of them. The client's first request decides the protocol era
    (2025 handshake or 2026-07-28 envelope).
    """
    stream = LineStream(lines)
    await serve_dual_era_loop(
        server,
        stream,
        stream,
        lifespan_state=state,
        init_options=server.create_initialization_options(NotificationOptions(tools_changed=True)),
    )


class LineStream:
    """The SDK's read and write stream over one asyncio connection; no pump tasks, no queues in between."""

    def __init__(self, lines: ClientLines) -> None:
        self._lines = lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while (line := await self._lines.next()) is not None:
            try:
                message = parse_message(line)
            except MessageRefused as refused:
                await self._lines.refuse(refused)
            else:
                self._passed(message)
                return SessionMessage(message)
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raises :class:`anyio.EndOfStream` if the client has disconnected."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _passed(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._lines.direct.passed(message.method, message.id, message.params or {})
        elif isinstance(message, JSONRPCNotification):
            self._lines.direct.passed(message.method, None, message.params or {})

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, and wait while the client does not read."""
        message = item.message
        try:
            await self._lines.write(render_message(message))
        except OSError:
            raise anyio.BrokenResourceError from None
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._lines.direct.answered(message.id)

    async def aclose(self) -> None:
        """Do nothing: the connection is closed by its owner."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
