"""One client's connection: newline-delimited JSON-RPC over a unix socket, with the SDK only if the client needs it.

All input is untrusted. A line that is not a message gets a JSON-RPC error that says what is wrong with it. The error
carries the line's id if it can be found, so that no caller waits forever. Then the next line is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rlm_ipc.json_lines import CHUNK, MAX_LINE, LineSplitter, Oversized, error_line
from rlm_mcp.client_info import ClientInfo, current_handshake
from rlm_mcp.daemon.direct_calls import DirectCalls, Permit, current_direct_calls
from rlm_mcp.daemon.line_reader import LineReader
from rlm_mcp.daemon.message_lines import refuse_too_many_values
from rlm_mcp.errors import MessageRefused

log = logging.getLogger(__name__)


async def serve_client(
    rest: Callable[[ClientLines], Awaitable[None]],
    permit: Permit | None,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handshake: ClientInfo,
) -> None:
    """Serve a client until it disconnects: calls that ``permit`` covers here; from any other line on, by ``rest``."""
    token = current_handshake.set(handshake)
    direct = DirectCalls(writer, permit)
    current_direct_calls.set(direct)
    lines = ClientLines(reader, writer, direct)
    try:
        if await lines.is_other():
            await rest(lines)
    finally:
        current_handshake.reset(token)
        await direct.aclose()


class ClientLines:
    """The lines of one client. Calls that need no SDK are answered here; other lines are passed on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direct: DirectCalls) -> None:
        self.direct = direct
        self._reader = reader
        self._writer = writer
        self._lines = LineSplitter(MAX_LINE)
        self._read: deque[bytes | Oversized] = deque()
        self._waits = False
        """Whether nothing that has arrived is left to be read."""
        if isinstance(reader, LineReader):
            reader.offer = self._take_at_once

    async def is_other(self) -> bool:
        """Answer calls until another line comes, which `next` returns. Return whether one has come."""
        while True:
            while self._read:
                if not await self._took(self._read[0]):
                    return True
                self._read.popleft()
            self._waits = self._lines.empty
            try:
                data = await self._reader.read(CHUNK)
            except OSError:
                data = b""
            finally:
                self._waits = False
            if not data:
                self.direct.cancel()
                return False
            self._read.extend(self._lines.feed(data))

    async def next(self) -> bytes | None:
        """Return the next other line, or None if the client has disconnected."""
        while await self.is_other():
            if isinstance(line := self._read.popleft(), bytes):
                return line
        return None

    async def refuse(self, refused: MessageRefused) -> None:
        """Tell the client what is wrong with a line."""
        log.info("message refused", extra={"reason": str(refused)})
        await self._tell(error_line(refused.request_id, refused.code, str(refused)))

    async def write(self, line: bytes) -> None:
        """Write a line, and wait while the client does not read; raises OSError if it has disconnected."""
        if self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(line)
        await self._writer.drain()

    def _take_at_once(self, data: bytes) -> bool:
        """Take a call that has arrived alone, as most do, without waking the task that reads."""
        self._waits = self._waits and len(data) < CHUNK and data.find(b"\n") == len(data) - 1 and self.direct.take(data)
        return self._waits

    async def _took(self, line: bytes | Oversized) -> bool:
        """Tell whether a line is done: it is a call that needs no SDK, it is refused, or it is empty."""
        if isinstance(line, Oversized):
            if (refusal := line.refusal(MAX_LINE)) is not None:
                await self._tell(refusal)
            return True
        if not line.strip():
            return True
        try:
            refuse_too_many_values(line)
            return self.direct.take(line)
        except MessageRefused as refused:
            await self.refuse(refused)
            return True

    async def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # the client has disconnected: the next read reports it
            await self.write(line)
