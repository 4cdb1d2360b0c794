"""An HTTP listener inside the daemon: on the loopback interface only, open for as long as a block runs.

`local_refusal` is the first check of every request: the ``Host`` and ``Origin`` headers name this machine, so that a
web page which rebinds its name to 127.0.0.1 fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlm_mcp.errors import SetupFault, WrongUsage

DEFAULT_HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 2
MOST_CONNECTIONS = 256
SECONDS_TO_ASK = 10.0
"""How long a connection may be open before its first request is there."""

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, host: str | None, port: int) -> AsyncIterator[str]:
    """Serve ``app`` and give the base of its URLs; without a ``host`` on 127.0.0.1.

    Port 0 takes any free one.

    Raises:
        WrongUsage: ``host`` is not a loopback address, or ``port`` is not a port.
        SetupFault: the port is taken.
    """
    sock = _bind(_loopback(DEFAULT_HOST if host is None else host), _port(port))
    address, number = sock.getsockname()[:2]
    url = f"http://[{address}]:{number}" if ":" in address else f"http://{address}:{number}"
    config = uvicorn.Config(
        app, http=_Bounded, ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=SHUTDOWN_SECONDS
    )
    server = _Uvicorn(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    log.info("http opened", extra={"url": url})
    try:
        yield url
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=SHUTDOWN_SECONDS + 3)
        task.cancel()
        log.info("http closed", extra={"url": url})


class _Bounded(H11Protocol):
    """A connection of whoever: every user of this machine can open them, and each is a descriptor of the daemon."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Hang up on one too many, and later on one that asks nothing."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(SECONDS_TO_ASK, self._hang_up_if_silent)

    def _hang_up_if_silent(self) -> None:
        asked: object = self.cycle  # None until a request is there, whatever its type says
        if asked is None:
            self.transport.abort()


class _Uvicorn(uvicorn.Server):
    """uvicorn inside a process whose signals belong to the daemon."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers alone."""
        yield


def local_refusal(headers: Headers) -> JSONResponse | None:
    """Return the answer to a request that does not come from this machine's own programs and pages."""
    if not _is_local(headers.get("host", "")):
        return error_response(421, "the Host header must name this machine: use the URL that the command shows")
    origin = headers.get("origin")
    if origin is not None and not _is_local(origin.partition("://")[2]):
        return error_response(403, "web pages of other machines may not call this server")
    return None


def bears(headers: Headers, token: bytes) -> bool:
    """Say whether a request carries the token."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an answer that says what is wrong."""
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


def _port(port: int) -> int:
    if not 0 <= port <= 65535:
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
