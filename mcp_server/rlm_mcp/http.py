"""Streamable HTTP for clients that cannot start a process: loopback only, with a bearer token.

``rlm-kernel serve`` asks the daemon to open this door, so HTTP clients share the sessions of all the
others. Three checks come before any MCP: the ``Host`` and ``Origin`` headers name this machine (a web
page that rebinds its name to 127.0.0.1 fails here), and the request carries the token from a file that
only this user can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm_kernel import rendezvous
from rlm_kernel.link import MAX_LINE
from rlm_mcp.errors import SetupFault, WrongUsage
from rlm_mcp.hello import ClientHello, current_hello

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Guard", "HttpDoor", "read_token"]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8137
PATH = "/mcp"
SESSION_HEADER = "rlm-session"
"""Names the rlm-kernel session of an HTTP client, which has no environment or folder to tell it by."""
SHUTDOWN_SECONDS = 2

log = logging.getLogger(__name__)


class HttpDoor:
    """An HTTP listener on ``server``, open inside ``async with``. ``port`` 0 takes any free one.

    ``host`` and ``port`` may be whatever a client sent: they are checked here.
    """

    def __init__(self, server: Server[Any], host: object = None, port: object = None) -> None:
        self._server = server
        self._host = DEFAULT_HOST if host is None else str(host)
        self._port = DEFAULT_PORT if port is None else port
        self.url = ""
        self.token_file = Path()

    async def __aenter__(self) -> Self:
        sock = _bind(_loopback(self._host), _port(self._port))
        address, port = sock.getsockname()[:2]
        name = f"[{address}]" if ":" in address else address
        self.url = f"http://{name}:{port}{PATH}"
        self.token_file, token = read_token()
        app = Guard(_application(self._server), token, self.token_file)
        config = uvicorn.Config(
            app, log_config=None, lifespan="on", timeout_graceful_shutdown=SHUTDOWN_SECONDS, ws="none"
        )
        self._uvicorn = _Uvicorn(config)
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[sock]))
        log.info("http opened", extra={"url": self.url})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uvicorn.should_exit = True
        await asyncio.wait([self._task], timeout=SHUTDOWN_SECONDS + 3)
        self._task.cancel()
        log.info("http closed", extra={"url": self.url})


class _Uvicorn(uvicorn.Server):
    """uvicorn inside a process whose signals belong to the daemon."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers alone."""
        yield


def _application(server: Server[Any]) -> Starlette:
    manager = StreamableHTTPSessionManager(server, max_request_body_size=MAX_LINE)
    route = Route(PATH, endpoint=StreamableHTTPASGIApp(manager))
    return Starlette(routes=[route], lifespan=lambda _: manager.run())


class Guard:
    """ASGI middleware: who may talk to the door, and for which session they speak."""

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
        session = headers.get(SESSION_HEADER, "")
        token = current_hello.set(ClientHello(env={"PARENT_SESSION_ID": session} if session else {}))
        try:
            await self._app(scope, receive, send)
        finally:
            current_hello.reset(token)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        """Return the answer to a request that may not pass."""
        if not _is_local(headers.get("host", "")):
            return _error(421, "the Host header must name this machine: use the URL that `rlm-kernel serve` shows")
        origin = headers.get("origin")
        if origin is not None and not _is_local(origin.partition("://")[2]):
            return _error(403, "web pages of other machines may not call this server")
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            return _error(
                401,
                f"send the header `Authorization: Bearer TOKEN` with the token in {self._token_file}",
                {"WWW-Authenticate": "Bearer"},
            )
        return None


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def _is_local(authority: str) -> bool:
    """Say whether ``HOST[:PORT]`` names the loopback interface."""
    host = authority.partition("]")[0].lstrip("[") if authority.startswith("[") else authority.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _loopback(host: str) -> str:
    """Return the address to listen on; raises :class:`WrongUsage` unless it is a loopback one."""
    if not _is_local(f"[{host}]" if ":" in host else host):
        raise WrongUsage(f"{host} is not a loopback address; listen on 127.0.0.1 and reach it by an SSH tunnel")
    return DEFAULT_HOST if host == "localhost" else host


def _port(port: object) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise WrongUsage(f"{port!r} is not a port; use a number from 0 (any free one) to 65535")
    return port


def _bind(host: str, port: int) -> socket.socket:
    """Bind first, so that a taken port is this caller's error and not a dead task's."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise SetupFault(f"cannot listen at {host}:{port}: {error.strerror}; choose another --port") from error
    return sock


def read_token() -> tuple[Path, str]:
    """Return the token's file and the token, made on first use.

    Raises :class:`SetupFault` if others can read or replace it.
    """
    file = rendezvous.state_dir() / "http-token"
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
