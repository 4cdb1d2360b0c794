"""The daemon: accepts connections at its socket, and serves each in the role of its handshake.

A connection opens with a handshake line that names its role; `rlm_ipc.daemon_protocol` has the table of roles with
their requests and replies. In the role ``mcp``, MCP follows, one message per line. For ``http`` and ``web``, MCP over
HTTP or the web page is served while the connection is open. Every other role gets one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_ipc import discovery, processes
from rlm_ipc.daemon_protocol import Fault, role_of
from rlm_ipc.daemon_requests import (
    DaemonStatus,
    McpServed,
    Request,
    ServeHttp,
    ServeMcp,
    ServeWeb,
    ShowStatus,
    StopDaemon,
    Stopping,
)
from rlm_ipc.errors import ProtocolError
from rlm_ipc.json_lines import CHUNK, GOODBYE, IDLE_SECONDS, hooks_folder
from rlm_ipc.version import VERSION
from rlm_mcp.daemon.caller import Caller
from rlm_mcp.daemon.line_reader import LineReader
from rlm_mcp.daemon.logs import current_client, log_to
from rlm_mcp.daemon.requests import answer
from rlm_mcp.errors import HandshakeRefused, RlmMcpError, SetupFault, WrongUsage
from rlm_mcp.service.background import Threads
from rlm_mcp.service.hooks.folder import HookFolder
from rlm_memory.errors import StoreFault

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from rlm_mcp.daemon.client_lines import ClientLines
    from rlm_mcp.daemon.served import Served

CLOSE_SECONDS = 10.0
"""How long the daemon waits for connections to end when it stops."""
TICK_SECONDS = 2.0
"""How often the daemon checks whether it is needed, and whether its folder still exists."""

log = logging.getLogger("rlm_mcp.daemon")


class Daemon:
    """Accepts connections at ``path`` until it is told to stop or is no longer needed."""

    def __init__(self, served: Served, path: Path, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._served = served
        self._state = served.service
        self._path = path
        self._server: Server[Any] | None = None
        self._starts_up = True
        self._idle_seconds = idle_seconds
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._stop = asyncio.Event()
        self._started = time.time()
        self._last_used = time.monotonic()
        self._http: list[str] = []
        self._numbers = self._clients = 0

    async def run(self, claim: discovery.InstanceLock, ready_fd: int | None = None) -> None:
        """Listen, announce it, and serve until the end. The caller holds ``claim`` for the path."""
        sock = discovery.listen(self._path)
        self._lead_hooks()
        loop = asyncio.get_running_loop()

        def connected() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(LineReader(limit=CHUNK), self._accept, loop=loop)

        listener = await loop.create_unix_server(connected, sock=sock)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        log.info("daemon listens", extra={"path": str(self._path), "pid": os.getpid(), "version": VERSION})
        discovery.announce_ready(ready_fd)
        try:
            await self._until_stopped(claim)
        finally:
            # Remove the path first: new clients then start another daemon, which waits for our claim.
            if claim.stands():
                self._path.unlink(missing_ok=True)
            listener.close()
            await self._hang_up()

    def _lead_hooks(self) -> None:
        try:
            HookFolder(Path(hooks_folder(discovery.state_folder()))).lead_to(self._path)
        except OSError as error:
            log.warning("hooks will not find the daemon", extra={"reason": str(error)})

    def stop(self, reason: str) -> None:
        """Shut the daemon down cleanly."""
        log.info("daemon stops", extra={"reason": reason})
        self._stop.set()

    async def _until_stopped(self, claim: discovery.InstanceLock) -> None:
        while not self._stop.is_set():
            if not claim.stands():
                self.stop("the runtime folder was deleted: clients start another daemon, on the same sessions")
                break
            claim.touch()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self._idle_seconds, TICK_SECONDS)):
                    await self._stop.wait()
            if self._starts_up:  # now, and not while the first client waits
                self._starts_up = False
                processes.finish_startup()
            if not self._connections and time.monotonic() - self._last_used >= self._idle_seconds:
                self.stop("idle")

    async def _hang_up(self) -> None:
        """End every connection, with a goodbye so that no front starts another daemon at once."""
        self._state.runs.daemon_ends = True
        for task, writer in self._connections.items():
            if not writer.is_closing():
                writer.write(GOODBYE)
            writer.close()
            task.cancel()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=CLOSE_SECONDS)
            if late:
                log.warning("connections did not end in time", extra={"count": len(late)})

    # --- connections ------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            await self._welcome(reader, writer)
        except (OSError, asyncio.CancelledError):
            log.info("connection ended", extra={"reason": "hung up" if not self._stop.is_set() else "stopping"})
        except Exception:
            log.exception("connection failed")
        finally:
            del self._connections[task]
            self._last_used = time.monotonic()
            writer.close()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the handshake, then serve the connection."""
        peer = discovery.peer(writer.get_extra_info("socket"))
        if peer.uid != os.getuid():
            log.warning("stranger refused", extra={"pid": peer.pid, "uid": peer.uid})
            return
        caller = Caller(reader, writer)
        try:
            request = await caller.listen()
        except (HandshakeRefused, ProtocolError) as refused:
            log.info("handshake refused", extra={"pid": peer.pid, "reason": str(refused)})
            caller.refuse(str(refused), Fault.REQUEST)
            return
        self._numbers += 1
        caller.client = replace(caller.client, connection=self._numbers, peer=peer.pid)
        if isinstance(request, ServeMcp):
            await self._serve_mcp(caller, request)
            return
        await self._serve(caller, request)

    async def _serve(self, caller: Caller, request: Request[Any]) -> None:
        """Serve a connection in its role. A refusal is sent with its hint."""
        try:
            match request:
                case ServeHttp():
                    await self._serve_http(caller, request)
                case ServeWeb():
                    await self._serve_web(caller, request)
                case StopDaemon():
                    caller.accept(request, Stopping())
                    self.stop("asked to")
                case ShowStatus():
                    caller.accept(request, self._status())
                case _:
                    await answer(caller, self._state, request)
        except RlmMcpError as error:
            hint = getattr(error, "hint", "")
            fault = Fault.USAGE if isinstance(error, WrongUsage) else Fault.REQUEST
            caller.refuse(f"{error}; {hint}" if hint else str(error), fault)
        except (OSError, asyncio.CancelledError):  # the caller has disconnected, or the daemon ends
            raise
        except Exception as error:
            log.exception("request failed", extra={"role": role_of(request)})
            told = f"the daemon failed ({type(error).__name__}: {error})"
            caller.refuse(f"{told}; its log has more, please report this as a bug", Fault.DAEMON)

    # --- roles that last as long as their connection ------------------------------------------------

    async def _serve_mcp(self, caller: Caller, request: ServeMcp) -> None:
        from rlm_mcp.daemon.client_lines import serve_client

        current_client.set(caller.client.pid)
        log.info("client connected", extra={"cwd": caller.client.cwd})
        caller.accept(request, McpServed())
        self._state.holders.connected(caller.client)
        self._clients += 1
        try:
            with self._state.hooks.agents.connected(caller.client, caller.client.peer):
                await serve_client(self._serve_lines, self._served.permit, caller.reader, caller.writer, caller.client)
        finally:
            self._clients -= 1
            if not self._stop.is_set():  # else we disconnect, and the client is alive
                self._state.holders.left(caller.client)
        log.info("client left")

    async def _serve_lines(self, lines: ClientLines) -> None:
        """Serve a client with the SDK, from its first line that needs it."""
        server = self._mcp_server()
        from rlm_mcp.daemon.mcp_stream import serve_lines

        await serve_lines(server, self._state, lines)

    def _mcp_server(self) -> Server[Any]:
        if self._server is None:
            self._server, self._starts_up = self._served.make_server(), True
        return self._server

    async def _serve_http(self, caller: Caller, request: ServeHttp) -> None:
        server = self._mcp_server()
        from rlm_mcp.web.mcp_endpoint import http_endpoint

        async with http_endpoint(server, request.host, request.port) as served:
            caller.accept(request, served)
            await self._hold_open(caller, served.url)

    async def _serve_web(self, caller: Caller, request: ServeWeb) -> None:
        from rlm_mcp.web.page_server import web_page

        async with web_page(self._state, request.host, request.port) as served:
            caller.accept(request, served)
            await self._hold_open(caller, served.url)

    async def _hold_open(self, caller: Caller, url: str) -> None:
        """Serve HTTP while the connection that asked for it is open."""
        self._http.append(url)
        try:
            while await caller.reader.read(CHUNK):
                pass
        finally:
            self._http.remove(url)

    def _status(self) -> DaemonStatus:
        return DaemonStatus(
            clients=self._clients,
            uptime_seconds=round(time.time() - self._started, 1),
            idle_seconds=self._idle_seconds,
            python=sys.version.split()[0],
            http=tuple(self._http),
        )


# --- the process ----------------------------------------------------------------------------------


def run(server: str, path: str, idle_seconds: float | None, claim: discovery.InstanceLock, ready_fd: int | None) -> int:
    """Run the daemon until it ends. Return the exit status of its process.

    ``server`` names the function that creates the served object, as ``MODULE:FUNCTION``.
    """

    async def serve() -> None:
        asyncio.get_running_loop().set_default_executor(Threads(thread_name_prefix="daemon"))
        async with _factory(server)() as served:
            idle = IDLE_SECONDS if idle_seconds is None else idle_seconds
            await Daemon(served, Path(path), idle_seconds=idle).run(claim, ready_fd)

    try:
        log_to(discovery.state_dir() / "logs" / "daemon.log")
        asyncio.run(serve())
    except (RlmMcpError, discovery.DiscoveryError, StoreFault) as error:
        print(f"rlm-kernel daemon: {error}", file=sys.stderr)
        log.error("daemon ended", extra={"reason": str(error)})
        return 1
    return 0


def _factory(name: str) -> Callable[[], AbstractAsyncContextManager[Served]]:
    """Import the function; raises :class:`SetupFault` if it does not exist."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SetupFault(f"cannot import the server {name!r}: {error}; use MODULE:FUNCTION") from error
    if not callable(found):
        raise SetupFault(f"the server {name!r} is not a function; use MODULE:FUNCTION")
    return found  # type: ignore[no-any-return]
