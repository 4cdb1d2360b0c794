"""A client's connection to the daemon: the socket under a `Dialogue`, on an event loop."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping
from typing import Generic, Self

from rlm_ipc import discovery
from rlm_ipc.daemon_connection import REPLY_SECONDS, connect, the_socket
from rlm_ipc.daemon_dialogue import (
    CLOSED_UNDER_A_CALL,
    ENDED_UNDER_A_CALL,
    Dialogue,
    OnProgress,
    accepted,
    handshake,
    no_reply,
    reply_to,
)
from rlm_ipc.daemon_requests import Reply, Request, ServeMcp
from rlm_ipc.errors import DaemonNotStarted, DaemonUnavailable
from rlm_ipc.messages import JsonObject


class AsyncDaemonConnection(asyncio.Protocol, Generic[Reply]):
    """A connection in the role of its request, created by `open`. ``reply`` is the daemon's answer to the request."""

    reply: Reply

    def __init__(self) -> None:
        self._dialogue = Dialogue()
        self._transport: asyncio.WriteTransport | None = None
        self._news = asyncio.Event()
        self._ended = self._closed = False

    @classmethod
    async def open(
        cls, request: Request[Reply], environment: Mapping[str, str] | None = None, client: str | None = None
    ) -> Self:
        """Connect to the daemon, starting one if there is none, and make the request.

        ``environment`` holds the variables that the daemon sees, in place of this process's own.

        Raises:
            DaemonRefused: the daemon refuses the request.
            DaemonUnavailable: it could not be started, or ended at once.
            ProcessError: it does not answer, or is not a daemon.
        """
        opening = handshake(request, environment, client)
        # In the role ``mcp`` the handshake does nothing yet, so nothing is lost if the daemon is killed before the
        # first request.
        for pause in discovery.DYING_SERVER if isinstance(request, ServeMcp) else ():
            try:
                return await cls._open(request, opening)
            except DaemonNotStarted:
                raise
            except DaemonUnavailable:
                await asyncio.sleep(pause)
        return await cls._open(request, opening)

    @classmethod
    async def _open(cls, request: Request[Reply], said: bytes) -> Self:
        sock = await asyncio.to_thread(connect, start=True)
        _, made = await asyncio.get_running_loop().create_unix_connection(cls, sock=sock)
        try:
            made._send(said)
            async with asyncio.timeout(REPLY_SECONDS):
                made.reply = reply_to(request, accepted(await made._line(), the_socket()))
        except TimeoutError as error:
            made.close()
            raise no_reply(REPLY_SECONDS) from error
        except BaseException:
            made.close()
            raise
        return made

    def has_ended(self) -> bool:
        """Return whether the daemon has hung up, or announced that it will, since the last request."""
        if self._ended or self._transport is None or self._dialogue.is_over():
            return True
        # The loop may not have read it yet; an idle connection receives nothing else.
        unread = select.poll()
        unread.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(unread.poll(0))

    async def request(self, method: str, params: JsonObject, on_progress: OnProgress | None) -> JsonObject:
        """Send an MCP request and return its result."""
        self._send(self._dialogue.request(method, params, on_progress))
        while line := await self._line():
            if (answer := self._dialogue.answer(line, on_progress)) is not None:
                return answer
        raise DaemonUnavailable(CLOSED_UNDER_A_CALL if self._closed else ENDED_UNDER_A_CALL)

    def close(self) -> None:
        """Hang up. A request in progress is cancelled first."""
        self._closed = True
        if self._transport is not None:
            if not self._ended and (cancel := self._dialogue.cancel()) and not self._transport.get_write_buffer_size():
                self._transport.write(cancel)  # this leaves at once, unless the daemon does not read
            self._transport.abort()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._ended:
            self._transport.write(data)

    async def _line(self) -> bytes:
        """Return the daemon's next line; empty at the end."""
        while (line := self._dialogue.line()) is None:
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        return line

    # --- called by the loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take the data that was read."""
        self._dialogue.feed(data)
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the connection."""
        self._ended = True
        self._news.set()
