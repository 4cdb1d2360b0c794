"""The daemon: one process per user that serves MCP to every front over a unix socket.

Started by the first front (or by ``rlm-kernel daemon start``), it takes the claim for its socket path,
builds the server, listens, and ends by itself when nobody was connected for a while. SIGTERM and SIGINT
end it in order.

A connection opens with a handshake line that names its role; `rlm_ipc.daemon_protocol` has the table of roles with
their requests and replies. In the role ``mcp`` MCP follows, one message a line. For ``http`` and ``web``, MCP over HTTP
or the web page is served for as long as the connection stays open. Every other role is answered once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import importlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_ipc import discovery, processes
from rlm_ipc.daemon_protocol import (
    ROLES,
    Accepted,
    AddAttachment,
    ApplyPolicy,
    AttachmentInfo,
    AttachmentList,
    AttachmentOpened,
    AttachmentRevoked,
    DaemonStatus,
    EnterAttachment,
    Fault,
    HttpServed,
    JournalPage,
    KeepTurn,
    ListAttachments,
    ListJournal,
    ListQueries,
    ListSessions,
    McpServed,
    PolicyApplied,
    QueryList,
    RecordShown,
    Refused,
    Request,
    RestoreSession,
    RevokeAttachment,
    SaveSession,
    ServeHttp,
    ServeMcp,
    ServeWeb,
    SessionList,
    SessionRestored,
    SessionSaved,
    SessionsSeen,
    ShowOverview,
    ShowRecord,
    ShowStatus,
    StopDaemon,
    Stopping,
    Tidied,
    Tidy,
    TurnKept,
    WebServed,
    role_of,
)
from rlm_ipc.errors import ProtocolError
from rlm_ipc.json_lines import CHUNK, GOODBYE, IDLE_SECONDS, PROTOCOL
from rlm_ipc.json_size import has_too_many_values
from rlm_ipc.messages import Json, plain, read
from rlm_ipc.version import VERSION
from rlm_mcp.client_info import ClientInfo, parse_handshake
from rlm_mcp.daemon.logs import current_client, log_to
from rlm_mcp.daemon.sdk_stubs import import_sdk
from rlm_mcp.errors import HandshakeRefused, RlmMcpError, SetupFault, WrongUsage

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from rlm_mcp.service.service import Service

__all__ = ["DEFAULT_SERVER", "Daemon", "main"]

DEFAULT_SERVER = "rlm_mcp.daemon.mcp_server:create"
"""Import string of the server factory: a function without arguments that returns an async context manager,
which yields the SDK's low-level ``Server``."""
HELLO_SECONDS = 10.0
"""How long a new connection may take to say handshake."""
CLOSE_SECONDS = 10.0
"""How long connections may take to end when the daemon stops."""
TICK_SECONDS = 2.0
"""How often the daemon looks whether it is needed, and whether its folder is still there."""

log = logging.getLogger("rlm_mcp.daemon")


class Daemon:
    """Accepts connections at ``path`` until it is told to stop or nobody needs it any more."""

    def __init__(self, server: Server[Any], state: Service, path: Path, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._server = server
        self._state = state
        self._path = path
        self._idle_seconds = idle_seconds
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._stop = asyncio.Event()
        self._started = time.time()
        self._last_used = time.monotonic()
        self._http: list[str] = []
        self._answers: dict[type[Request[Any]], Callable[[Any], Awaitable[object]]] = {
            ShowStatus: self._status,
            ListSessions: self._sessions,
            Tidy: self._tidy,
            ShowOverview: self._overview,
            ListJournal: self._journal,
            ShowRecord: self._record,
            ListQueries: self._queries,
            KeepTurn: self._turn,
            SaveSession: self._save,
            ApplyPolicy: self._policy,
            ListAttachments: self._list_attachments,
            AddAttachment: self._add_attachment,
            RevokeAttachment: self._revoke_attachment,
            EnterAttachment: self._enter_attachment,
        }
        """What is answered once and needs to know nothing of who asks."""

    async def run(self, claim: discovery.InstanceLock, ready_fd: int | None = None) -> None:
        """Listen, announce it, and serve until the end. The caller holds ``claim`` for the path."""
        sock = discovery.listen(self._path)
        listener = await asyncio.start_unix_server(self._accept, sock=sock, limit=CHUNK)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        log.info("daemon listens", extra={"path": str(self._path), "pid": os.getpid(), "version": VERSION})
        discovery.announce_ready(ready_fd)
        processes.finish_startup()
        try:
            await self._until_stopped(claim)
        finally:
            # The path goes first: newcomers then start another daemon, which waits for our claim.
            if claim.stands():
                self._path.unlink(missing_ok=True)
            listener.close()
            await self._hang_up()

    def stop(self, reason: str) -> None:
        """End the daemon in order."""
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
            if not self._connections and time.monotonic() - self._last_used >= self._idle_seconds:
                self.stop("idle")

    async def _hang_up(self) -> None:
        """End every connection, with a goodbye so that no front starts another daemon at once."""
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
        """Check who is there and what for, then serve that."""
        peer = discovery.peer(writer.get_extra_info("socket"))
        if peer.uid != os.getuid():
            log.warning("stranger refused", extra={"pid": peer.pid, "uid": peer.uid})
            return
        caller = _Caller(reader, writer)
        try:
            request = await caller.listen()
        except (HandshakeRefused, ProtocolError) as refused:
            log.info("handshake refused", extra={"pid": peer.pid, "reason": str(refused)})
            caller.refuse(str(refused), Fault.REQUEST)
            return
        await self._serve(caller, request)

    async def _serve(self, caller: _Caller, request: Request[Any]) -> None:
        """Do what a connection is for. Whatever is refused is told with its hint."""
        if isinstance(request, ServeMcp):
            await self._serve_mcp(caller)
            return
        try:
            match request:
                case ServeHttp():
                    await self._serve_http(caller, request)
                case ServeWeb():
                    await self._serve_web(caller, request)
                case StopDaemon():
                    caller.accept(Stopping())
                    self.stop("asked to")
                case RestoreSession():
                    caller.accept(await self._restore(request, caller.client))
                case _:
                    caller.accept(await self._answers[type(request)](request))
        except RlmMcpError as error:
            hint = getattr(error, "hint", "")
            fault = Fault.USAGE if isinstance(error, WrongUsage) else Fault.REQUEST
            caller.refuse(f"{error}; {hint}" if hint else str(error), fault)
        except (OSError, asyncio.CancelledError):  # who asked has gone, or the daemon ends
            raise
        except Exception as error:
            log.exception("request failed", extra={"role": role_of(request)})
            told = f"the daemon failed ({type(error).__name__}: {error})"
            caller.refuse(f"{told}; its log has more, please report this as a bug", Fault.DAEMON)

    # --- roles that last as long as their connection ------------------------------------------------

    async def _serve_mcp(self, caller: _Caller) -> None:
        from rlm_mcp.daemon.mcp_stream import serve_client

        current_client.set(caller.client.pid)
        log.info("client connected", extra={"cwd": caller.client.cwd})
        caller.accept(McpServed())
        await serve_client(self._server, self._state, caller.reader, caller.writer, caller.client)
        log.info("client left")

    async def _serve_http(self, caller: _Caller, request: ServeHttp) -> None:
        from rlm_mcp.web.mcp_endpoint import http_endpoint

        async with http_endpoint(self._server, request.host, request.port) as served:
            await self._hold_open(caller, served)

    async def _serve_web(self, caller: _Caller, request: ServeWeb) -> None:
        from rlm_mcp.web.page_server import web_page

        async with web_page(self._state, request.host, request.port) as served:
            await self._hold_open(caller, served)

    async def _hold_open(self, caller: _Caller, served: HttpServed | WebServed) -> None:
        """Serve HTTP for as long as whoever asked for it stays connected."""
        self._http.append(served.url)
        caller.accept(served)
        try:
            while await caller.reader.read(CHUNK):
                pass
        finally:
            self._http.remove(served.url)

    # --- roles that are answered once -------------------------------------------------------------

    async def _status(self, _: ShowStatus) -> DaemonStatus:
        return DaemonStatus(
            clients=len(self._connections) - 1,
            uptime_seconds=round(time.time() - self._started, 1),
            idle_seconds=self._idle_seconds,
            python=sys.version.split()[0],
            http=tuple(self._http),
        )

    async def _sessions(self, _: ListSessions) -> SessionList:
        return SessionList(self._state.list_sessions(), self._state.list_resting())

    async def _tidy(self, _: Tidy) -> Tidied:
        return await self._state.tidy()

    async def _overview(self, _: ShowOverview) -> SessionsSeen:
        return await self._state.watch.overview()

    async def _journal(self, request: ListJournal) -> JournalPage:
        return JournalPage(self._state.list_journal(request.session, request.last))

    async def _record(self, request: ShowRecord) -> RecordShown:
        return RecordShown(await self._state.record(request.session, request.last))

    async def _queries(self, request: ListQueries) -> QueryList:
        return QueryList(self._state.queries.list_pending(request.session))

    async def _turn(self, request: KeepTurn) -> TurnKept:
        return self._state.note_turn(request)

    async def _save(self, request: SaveSession) -> SessionSaved:
        path = Path(request.file) if request.file else None
        return await self._state.save_session(request.session, path, embed=request.embed)

    async def _restore(self, request: RestoreSession, client: ClientInfo) -> SessionRestored:
        return await self._state.restore_session(request, client)

    async def _policy(self, request: ApplyPolicy) -> PolicyApplied:
        return await self._state.apply_policy(request.session, request.policy, looser=request.looser)

    async def _list_attachments(self, _: ListAttachments) -> AttachmentList:
        return AttachmentList(self._state.attachments.rows())

    async def _add_attachment(self, request: AddAttachment) -> AttachmentInfo:
        return self._state.attachments.add(request.session, request.mode)

    async def _revoke_attachment(self, request: RevokeAttachment) -> AttachmentRevoked:
        return await self._state.attachments.revoke(request.attachment)

    async def _enter_attachment(self, request: EnterAttachment) -> AttachmentOpened:
        return await self._state.enter_attachment(request.attachment, request.key)


class _Caller:
    """A connection that says handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client = ClientInfo()

    async def listen(self) -> Request[Any]:
        """Read what the connection is for.

        Raises:
            HandshakeRefused: it does not open with our handshake, or in no role of ours.
            ProtocolError: the request is none of that role; the text names the field.
        """
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                line = await self.reader.readline()
        except (TimeoutError, ValueError):
            line = b""
        handshake = parse_handshake(line)
        self.client = handshake.client
        role = ROLES.get(handshake.role)
        if role is None:
            raise HandshakeRefused(f"there is no role {handshake.role[:80]!r}; roles are {', '.join(ROLES)}")
        request = handshake.request if handshake.size is None else await self._behind(handshake.size)
        return read(role.request, request)

    async def _behind(self, size: int) -> Json:
        """Read a request that is too long for the handshake line."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await self.reader.readexactly(size)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise HandshakeRefused(f"the request of {size:,} bytes did not come whole; try again") from error
        try:
            if not has_too_many_values(data):
                return json.loads(data)
        except (ValueError, RecursionError):
            pass
        raise HandshakeRefused(f"the request of {size:,} bytes is no JSON that can be read; send less at once")

    def accept(self, reply: object) -> None:
        """Reply to the handshake."""
        self._write(Accepted(PROTOCOL, True, VERSION, os.getpid(), plain(reply)))

    def refuse(self, error: str, fault: Fault) -> None:
        """Reply to the handshake that it is not served, and why."""
        self._write(Refused(PROTOCOL, False, error, fault))

    def _write(self, reply: Accepted | Refused) -> None:
        self.writer.write(json.dumps(plain(reply)).encode() + b"\n")


# --- the process ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a daemon; returns the exit status."""
    options = _options(argv)
    if not options.foreground:
        discovery.detach()
    os.umask(0o077)
    faulthandler.enable()
    import_sdk()
    try:
        log_to(discovery.state_dir() / "logs" / "daemon.log")
        with discovery.claim_to_serve(options.socket, options.ready_fd) as claim:
            asyncio.run(_serve(options, claim))
    except discovery.AlreadyServed:
        pass
    except (RlmMcpError, discovery.DiscoveryError) as error:
        print(f"rlm-kernel daemon: {error}", file=sys.stderr)
        log.error("daemon ended", extra={"reason": str(error)})
        return 1
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rlm-kernel-daemon", description="Serve MCP at a unix socket.")
    parser.add_argument("socket", type=Path, help="where to listen")
    parser.add_argument("--server", default=DEFAULT_SERVER, help="MODULE:FUNCTION that makes the MCP server")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds to stay without a client")
    parser.add_argument("--ready-fd", type=int, help="descriptor to write a byte to when listening")
    parser.add_argument("--foreground", action="store_true", help="stay a child of the starter")
    return parser.parse_args(argv)


async def _serve(options: argparse.Namespace, claim: discovery.InstanceLock) -> None:
    factory = _factory(options.server)
    async with factory() as server, server.lifespan(server) as state:
        await Daemon(server, state, options.socket, idle_seconds=options.idle).run(claim, options.ready_fd)


def _factory(name: str) -> Callable[[], AbstractAsyncContextManager[Server[Any]]]:
    """Import the server factory; raises :class:`SetupFault` when there is none of that name."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SetupFault(f"cannot import the server {name!r}: {error}; use MODULE:FUNCTION") from error
    if not callable(found):
        raise SetupFault(f"the server {name!r} is not a function; use MODULE:FUNCTION")
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
