"""Streamable HTTP for clients that cannot start a process: loopback only, with a bearer token.

``rlm-kernel serve`` asks the daemon to open this endpoint, so HTTP clients share the sessions of all the
others. Besides the checks of `rlm_mcp.web.listener`, a request must carry the token from a file that only this user
can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm_ipc import discovery
from rlm_ipc.daemon_requests import HttpServed
from rlm_ipc.json_lines import MAX_LINE
from rlm_mcp.client_info import HUNG_UP, ClientInfo, current_handshake
from rlm_mcp.errors import SetupFault
from rlm_mcp.web.listener import bears, error_response, listening, local_refusal

DEFAULT_PORT = 8137
PATH = "/mcp"
SESSION_HEADER = "rlm-session"
"""Names the rlm-kernel session of an HTTP client, which has no environment or folder to tell it by."""


@contextlib.asynccontextmanager
async def http_endpoint(
    server: Server[Any], host: str | None = None, port: int | None = None
) -> AsyncIterator[HttpServed]:
    """Serve MCP over HTTP; gives where, and the file of the token.

    Raises what `listening` does, and SetupFault for a token that others can read.
    """
    token_file, token = read_token()
    app = Guard(_application(server), token, token_file)
    async with listening(app, host, DEFAULT_PORT if port is None else port) as base:
        yield HttpServed(f"{base}{PATH}", str(token_file))


def _application(server: Server[Any]) -> Starlette:
    manager = StreamableHTTPSessionManager(server, max_request_body_size=MAX_LINE)
    route = Route(PATH, endpoint=StreamableHTTPASGIApp(manager))
    return Starlette(routes=[route], lifespan=lambda _: manager.run())


class Guard:
    """ASGI middleware: who may talk to the endpoint, and for which session they speak."""

    def __init__(self, app: ASGIApp, token: str, token_file: Path) -> None:
        self._app = app
        self._token = token.encode()
        self._token_file = token_file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if (refusal := self._refusal(headers)) is not None:
            await refusal(scope, receive, send)
            return
        hung_up = scope[HUNG_UP] = asyncio.Event()

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                hung_up.set()
            return message

        session = headers.get(SESSION_HEADER, "")
        token = current_handshake.set(ClientInfo(env={"PARENT_SESSION_ID": session} if session else {}))
        try:
            await self._app(scope, heard, send)
        finally:
            current_handshake.reset(token)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        """Return the answer to a request that may not pass."""
        if (stranger := local_refusal(headers)) is not None:
            return stranger
        if not bears(headers, self._token):
            wanted = f"send the header `Authorization: Bearer TOKEN` with the token in {self._token_file}"
            return error_response(401, wanted, {"WWW-Authenticate": "Bearer"})
        return None


def read_token() -> tuple[Path, str]:
    """Return the token's file and the token, made on first use.

    Raises :class:`SetupFault` if others can read or replace it.
    """
    file = discovery.state_dir() / "http-token"
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as new:
            new.write(secrets.token_urlsafe(32) + "\n")
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SetupFault(f"others can read or replace the token in {file}; remove the file to get a new one")
    token = file.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < 32:
        raise SetupFault(f"{file} holds no usable token; remove the file to get a new one")
    return file, token
