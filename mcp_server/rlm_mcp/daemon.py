"""The daemon: one process per user that serves MCP to every front over a unix socket.

Started by the first front (or by ``rlm-kernel daemon start``), it takes the claim for its socket path,
builds the server, listens, and ends by itself when nobody was connected for a while. SIGTERM and SIGINT
end it in order.

A connection opens with one hello line that names its role: ``mcp`` (then MCP, one message a line), ``http`` and ``web``
(MCP over HTTP or the web page is served for as long as the connection stays open), or one that is answered once:
``status``, ``sessions``, ``overview``, ``journal``, ``record``, ``queries``, ``turn``, ``save``, ``restore``,
``policy``, ``door``, ``doors`` and ``stop``.
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

from rlm_kernel import process, rendezvous
from rlm_kernel.jsonsize import has_too_many_values
from rlm_kernel.link import CHUNK, GOODBYE, IDLE_SECONDS, PROTOCOL
from rlm_kernel.version import VERSION
from rlm_mcp.errors import ClientFault, HelloRefused, RlmMcpError, SetupFault, WrongUsage
from rlm_mcp.hello import ClientHello, parse_hello
from rlm_mcp.lean import import_sdk
from rlm_mcp.logs import current_client, log_to

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

__all__ = ["DEFAULT_SERVER", "Daemon", "main"]

DEFAULT_SERVER = "rlm_mcp.server:create"
"""Import string of the server factory: a function without arguments that returns an async context manager,
which yields the SDK's low-level ``Server``."""
HELLO_SECONDS = 10.0
"""How long a new connection may take to say hello."""
LONGEST_BODY = 16 * 1024 * 1024
"""Bytes that may follow a hello line."""
CLOSE_SECONDS = 10.0
"""How long connections may take to end when the daemon stops."""
TICK_SECONDS = 2.0
"""How often the daemon looks whether it is needed, and whether its folder is still there."""

log = logging.getLogger("rlm_mcp.daemon")


class Daemon:
    """Accepts connections at ``path`` until it is told to stop or nobody needs it any more."""

    def __init__(self, server: Server[Any], state: Any, path: Path, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._server = server
        self._state = state
        self._path = path
        self._idle_seconds = idle_seconds
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._stop = asyncio.Event()
        self._started = time.time()
        self._last_used = time.monotonic()
        self._doors: list[str] = []
        self._roles: dict[str, Callable[[_Caller], Awaitable[None]]] = {
            "mcp": self._serve_mcp,
            "status": self._serve_status,
            "sessions": self._serve_sessions,
            "tidy": self._serve_tidy,
            "overview": self._serve_overview,
            "journal": self._serve_journal,
            "record": self._serve_record,
            "queries": self._serve_queries,
            "turn": self._serve_turn,
            "save": self._serve_save,
            "restore": self._serve_restore,
            "policy": self._serve_policy,
            "door": self._serve_door,
            "doors": self._serve_doors,
            "stop": self._serve_stop,
            "http": self._serve_http,
            "web": self._serve_web,
        }

    async def run(self, claim: rendezvous.Claim, ready_fd: int | None = None) -> None:
        """Listen, announce it, and serve until the end. The caller holds ``claim`` for the path."""
        sock = rendezvous.listen(self._path)
        listener = await asyncio.start_unix_server(self._accept, sock=sock, limit=CHUNK)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        log.info("daemon listens", extra={"path": str(self._path), "pid": os.getpid(), "version": VERSION})
        rendezvous.announce_ready(ready_fd)
        process.settle()
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

    async def _until_stopped(self, claim: rendezvous.Claim) -> None:
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
        peer = rendezvous.peer(writer.get_extra_info("socket"))
        if peer.uid != os.getuid():
            log.warning("stranger refused", extra={"pid": peer.pid, "uid": peer.uid})
            return
        caller = _Caller(reader, writer)
        try:
            await caller.listen()
            serve = self._roles.get(caller.role)
            if serve is None:
                raise HelloRefused(f"there is no role {caller.role!r}; roles are {', '.join(self._roles)}")
        except HelloRefused as refused:
            log.info("hello refused", extra={"pid": peer.pid, "reason": str(refused)})
            caller.reply(ok=False, error=str(refused))
            return
        await serve(caller)

    async def _serve_mcp(self, caller: _Caller) -> None:
        from rlm_mcp.transport import serve_client

        current_client.set(caller.hello.pid)
        log.info("client connected", extra={"cwd": caller.hello.cwd})
        caller.reply(ok=True, **self._identity())
        await serve_client(self._server, self._state, caller.reader, caller.writer, caller.hello)
        log.info("client left")

    async def _serve_status(self, caller: _Caller) -> None:
        clients = len(self._connections) - 1
        caller.reply(
            ok=True,
            **self._identity(),
            clients=clients,
            uptime_seconds=round(time.time() - self._started, 1),
            idle_seconds=self._idle_seconds,
            python=sys.version.split()[0],
            http=self._doors,
        )

    async def _serve_sessions(self, caller: _Caller) -> None:
        caller.reply(
            ok=True, **self._identity(), sessions=self._state.list_sessions(), resting=self._state.list_resting()
        )

    async def _serve_tidy(self, caller: _Caller) -> None:
        await self._serve_work(caller, self._state.tidy())

    async def _serve_overview(self, caller: _Caller) -> None:
        caller.reply(ok=True, **self._identity(), overview=await self._state.watch.overview())

    async def _serve_journal(self, caller: _Caller) -> None:
        session, last = str(caller.message.get("session")), caller.message.get("last")
        try:
            rows = self._state.list_journal(session, last if isinstance(last, int) else None)
        except ClientFault as error:
            _refuse(caller, error)
        else:
            caller.reply(ok=True, **self._identity(), cells=rows)

    async def _serve_record(self, caller: _Caller) -> None:
        session, last = str(caller.message.get("session")), caller.message.get("last")
        await self._serve_work(caller, self._state.record(session, last if isinstance(last, int) else None))

    async def _serve_queries(self, caller: _Caller) -> None:
        rows = self._state.list_queries(str(caller.message.get("session")))
        caller.reply(ok=True, **self._identity(), queries=rows)

    async def _serve_turn(self, caller: _Caller) -> None:
        await self._serve_work(caller, self._state.note_turn(await caller.body()))

    async def _serve_save(self, caller: _Caller) -> None:
        message = caller.message
        path = Path(message["file"]) if message.get("file") else None
        work = self._state.save_session(str(message.get("session")), path, embed=bool(message.get("embed")))
        await self._serve_work(caller, work)

    async def _serve_restore(self, caller: _Caller) -> None:
        from rlm_mcp.service.snapshots import Request

        said = {name: str(caller.message.get(name) or "") for name in ("source", "file", "session", "policy")}
        path = Path(said["file"]) if said["file"] else None
        request = Request(said["source"], path, said["session"], said["policy"])
        await self._serve_work(caller, self._state.restore_session(request, caller.hello))

    async def _serve_policy(self, caller: _Caller) -> None:
        said = {name: str(caller.message.get(name) or "") for name in ("session", "policy")}
        await self._serve_work(caller, self._state.apply_policy(**said, looser=bool(caller.message.get("looser"))))

    async def _serve_door(self, caller: _Caller) -> None:
        said = {name: str(caller.message.get(name) or "") for name in ("door", "key")}
        await self._serve_work(caller, self._state.enter_door(said["door"], said["key"]))

    async def _serve_doors(self, caller: _Caller) -> None:
        said = {name: str(caller.message.get(name) or "") for name in ("do", "door", "session", "mode")}
        await self._serve_work(caller, self._state.manage_doors(**said))

    async def _serve_work(self, caller: _Caller, work: Awaitable[dict[str, Any]]) -> None:
        """Answer with what comes of it; a fault of the caller's is told with its hint."""
        try:
            caller.reply(ok=True, **self._identity(), answer=await work)
        except ClientFault as error:
            _refuse(caller, error)

    async def _serve_stop(self, caller: _Caller) -> None:
        caller.reply(ok=True, **self._identity())
        self.stop("asked to")

    async def _serve_http(self, caller: _Caller) -> None:
        from rlm_mcp.http import http_door

        await self._hold_open(caller, http_door(self._server, caller.message.get("host"), caller.message.get("port")))

    async def _serve_web(self, caller: _Caller) -> None:
        from rlm_mcp.web.door import web_door

        await self._hold_open(caller, web_door(self._state, caller.message.get("host"), caller.message.get("port")))

    async def _hold_open(self, caller: _Caller, opening: AbstractAsyncContextManager[dict[str, str]]) -> None:
        """Keep a door open for as long as whoever asked for it stays connected."""
        try:
            async with opening as door:
                self._doors.append(door["url"])
                caller.reply(ok=True, **self._identity(), **door)
                try:
                    while await caller.reader.read(CHUNK):
                        pass
                finally:
                    self._doors.remove(door["url"])
        except RlmMcpError as error:
            caller.reply(ok=False, error=str(error), fault="usage" if isinstance(error, WrongUsage) else "request")

    @staticmethod
    def _identity() -> dict[str, Any]:
        return {"version": VERSION, "pid": os.getpid()}


class _Caller:
    """A connection that says hello."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.hello = ClientHello()
        self.message: dict[str, Any] = {}

    @property
    def role(self) -> str:
        """What the connection is for."""
        return str(self.message.get("role", "mcp"))

    async def listen(self) -> None:
        """Read the hello line; raises :class:`HelloRefused`."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                line = await self.reader.readline()
        except (TimeoutError, ValueError):
            line = b""
        self.hello, self.message = parse_hello(line)

    async def body(self) -> object:
        """Read the JSON behind the hello line, of which the line tells the length; None if there is none."""
        size = self.message.get("bytes")
        if not isinstance(size, int) or not 0 < size <= LONGEST_BODY:
            return None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await self.reader.readexactly(size)
                return None if has_too_many_values(data) else json.loads(data)
        except (TimeoutError, ValueError, RecursionError, asyncio.IncompleteReadError):
            return None

    def reply(self, *, ok: bool, **more: object) -> None:
        """Answer the hello."""
        self.writer.write(json.dumps({"rlm": PROTOCOL, "ok": ok, **more}).encode() + b"\n")


# --- the process ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a daemon; returns the exit status."""
    options = _options(argv)
    if not options.foreground:
        rendezvous.detach()
    os.umask(0o077)
    faulthandler.enable()
    import_sdk()
    try:
        log_to(rendezvous.state_dir() / "logs" / "daemon.log")
        with rendezvous.claim_to_serve(options.socket, options.ready_fd) as claim:
            asyncio.run(_serve(options, claim))
    except rendezvous.AlreadyServed:
        pass
    except (RlmMcpError, rendezvous.RendezvousError) as error:
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


def _refuse(caller: _Caller, error: ClientFault) -> None:
    """Tell a fault of the caller's with its hint."""
    hint = getattr(error, "hint", "")
    caller.reply(ok=False, error=f"{error}; {hint}" if hint else str(error), fault="request")


async def _serve(options: argparse.Namespace, claim: rendezvous.Claim) -> None:
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
