"""A connection to the daemon: its handshake, and the daemon's reply."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, TypeVar

from rlm_ipc.daemon_protocol import ROLES, Accepted, Fault, Refused
from rlm_ipc.daemon_requests import Request
from rlm_ipc.json_lines import PROTOCOL
from rlm_ipc.json_size import has_too_many_values
from rlm_ipc.messages import Json, plain, read
from rlm_ipc.version import VERSION
from rlm_mcp.client_info import ClientInfo, parse_handshake
from rlm_mcp.errors import HandshakeRefused

HANDSHAKE_SECONDS = 10.0
"""How long a new connection may take to send its handshake."""
Reply = TypeVar("Reply")


class Caller:
    """The other side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client = ClientInfo()

    async def listen(self) -> Request[Any]:
        """Read the handshake.

        Raises:
            HandshakeRefused: the connection does not start with our handshake, or names an unknown role.
            ProtocolError: the request does not fit the role; the text names the field.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                line = await self.reader.readline()
        except (TimeoutError, ValueError):
            line = b""
        handshake = parse_handshake(line)
        self.client = handshake.client
        kind = ROLES.get(handshake.role)
        if kind is None:
            raise HandshakeRefused(f"there is no role {handshake.role[:80]!r}; roles are {', '.join(ROLES)}")
        request = handshake.request if handshake.size is None else await self._behind(handshake.size)
        return read(kind, request)

    async def _behind(self, size: int) -> Json:
        """Read a request that is too long for the handshake line."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                data = await self.reader.readexactly(size)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise HandshakeRefused(f"the request of {size:,} bytes arrived incomplete; try again") from error
        try:
            if not has_too_many_values(data):
                return json.loads(data)
        except (ValueError, RecursionError):
            pass
        raise HandshakeRefused(f"the request of {size:,} bytes cannot be read as JSON; send less at once")

    def accept(self, request: Request[Reply], reply: Reply) -> None:
        """Reply to a request; its type determines the type of the reply."""
        self._write(Accepted(PROTOCOL, True, VERSION, os.getpid(), plain(reply)))

    def refuse(self, error: str, fault: Fault) -> None:
        """Refuse the handshake, with the reason."""
        self._write(Refused(PROTOCOL, False, error, fault))

    def _write(self, reply: Accepted | Refused) -> None:
        self.writer.write(json.dumps(plain(reply)).encode() + b"\n")
