"""What the tests of the MCP side share: a small real server, daemons that run it, fronts to talk through."""

import json
import os
import signal
import socket
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from front_process import FrontProcess
from waiting import wait_until

from rlm_ipc import discovery
from rlm_ipc.json_lines import daemon_command, handshake_line, socket_path
from rlm_memory.store import Store

PATIENCE = 60.0
"""Seconds after which whatever a test waits for will not happen any more."""

TOY = '''
"""A small MCP server: the transport is what is tested, not the tools."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from types import SimpleNamespace

import mcp_types as types
from mcp.server.lowlevel import Server

from rlm_ipc.daemon_requests import Tidied
from rlm_ipc.daemon_rows import OpenSession
from rlm_mcp.client_info import current_handshake
from rlm_mcp.daemon.served import Served
from rlm_mcp.service.hooks.agents import Agents

EXTRA = [name for name in os.environ.get("TOY_TOOLS", "").split(",") if name]
NAMES = ["echo", "size", "who", "hang", "eval_code", "load_context", "status", *EXTRA]


async def list_tools(context, params):
    schema = {"type": "object"}
    tools = [types.Tool(name=n, description=n, input_schema=schema) for n in NAMES]
    return types.ListToolsResult(tools=tools)


async def call_tool(context, params):
    text = await answer(params.name, params.arguments or {})
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def answer(name, given):
    if name == "echo":
        return given["text"]
    if name == "size":
        return str(len(given["text"]))
    if name == "hang":
        with open(os.environ["TOY_HANGING"], "w") as file:
            file.write("hanging")
        await asyncio.Event().wait()
    handshake = current_handshake.get()
    who = {"cwd": handshake.cwd, "env": dict(handshake.env), "pid": handshake.pid, "daemon": os.getpid()}
    if name == "eval_code":
        good = "raise" not in given["code"]
        error = None if good else "Boom: it was told to"
        return json.dumps({"success": good, "stdout": given["code"], "stderr": "", "error": error, **who})
    if name == "load_context":
        if given["name"] == "class":
            said = {"message": "'class' is a keyword", "hint": "use 'klass'"}
            return json.dumps({"error": "invalid_name", **said})
        paths = given["path"] if isinstance(given["path"], list) else [given["path"]]
        return json.dumps({"name": given["name"], "size": sum(map(os.path.getsize, paths))})
    return json.dumps(who)


@asynccontextmanager
async def create():
    gate = os.environ.get("TOY_GATE")
    if gate:  # blocks until the test opens the other end
        with open(gate) as file:
            file.read()
    handlers = {"on_list_tools": list_tools, "on_call_tool": call_tool}
    server = Server("toy", version="1", instructions="Toy.", **handlers)
    yield Served(State(), lambda: server, None)


class Holders:
    def connected(self, client):
        pass

    def left(self, client):
        pass


class State:
    hooks = SimpleNamespace(agents=Agents())
    runs = SimpleNamespace(daemon_ends=False)
    holders = Holders()

    def list_sessions(self):
        rest = {
            "workspace": "/srv/somebody/" + "a-folder/" * 20,
            "contexts": 2,
            "content_bytes": 2048,
            "kernel": "not started",
            "last_used": "2026-01-02T03:04:05.678+00:00",
            "connection_file": "",
        }
        return OpenSession("a", "default", **rest), OpenSession("ses_b", "[x]", **rest)

    def list_resting(self):
        return ()

    async def tidy(self):
        return Tidied(0)


def broken():
    raise RuntimeError("the toy is broken")
'''


def _install_toy(root: Path, patch: pytest.MonkeyPatch) -> str:
    folder = root / "toy"
    folder.mkdir()
    (folder / "rlm_toy.py").write_text(textwrap.dedent(TOY))
    places = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    patch.setenv("PYTHONPATH", os.pathsep.join(places))
    patch.setenv("TOY_HANGING", str(root / "hanging"))
    return "rlm_toy:create"


class Daemons:
    """The daemon of the test's folders, whoever started it."""

    def __init__(self, server: str) -> None:
        self.server = server

    @property
    def path(self) -> str:
        """Where it listens."""
        return socket_path(discovery.runtime_folder())

    def start(self, *options: str) -> int:
        """Start one, unless there is one; returns its process id."""
        command = daemon_command(sys.executable, self.path, "--server", self.server, *options)
        log = f"{discovery.state_folder()}/daemon.out"
        with discovery.connect_or_start(self.path, command, log=log) as sock:
            return discovery.peer(sock).pid

    def pid(self) -> int | None:
        """Return the process id of the one that listens."""
        sock = discovery.connect(self.path)
        if sock is None:
            return None
        with sock:
            return discovery.peer(sock).pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the one that listens, and wait until it has ended."""
        if (pid := self.pid()) is not None:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                process.send_signal(number)
                process.wait(PATIENCE)

    def handshake(self, role: str = "mcp", **more: object) -> tuple[socket.socket, dict[str, Any]]:
        """Connect to it in a role, with the fields of a request; returns the connection and the reply."""
        sock = discovery.connect(self.path)
        assert sock is not None
        sock.settimeout(PATIENCE)
        sock.sendall(handshake_line(role, request=more))
        return sock, json.loads(_read_line(sock))


def _read_line(sock: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        data = sock.recv(1)
        assert data, "the daemon hung up"
        line += data
    return line


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty database."""
    opened = Store.open(tmp_path / "rlm.sqlite3")
    yield opened
    opened.close()


@pytest.fixture
def daemons(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemons]:
    """Give the daemon of this test's own folders, which may be killed; at the end it is gone."""
    yield from _daemons(isolation.root, monkeypatch)


@pytest.fixture(scope="module")
def shared_daemon(module_isolation: Any) -> Iterator[Daemons]:
    """Give a running daemon that all tests of the module use and none may harm."""
    with pytest.MonkeyPatch.context() as patch:
        for daemons in _daemons(module_isolation.root, patch):
            daemons.start()
            yield daemons


def _daemons(root: Path, patch: pytest.MonkeyPatch) -> Iterator[Daemons]:
    daemons = Daemons(_install_toy(root, patch))
    yield daemons

    def left() -> bool:
        daemons.kill()
        return discovery.is_claimed(daemons.path)  # one that starts or ends holds the claim, but does not listen

    if discovery.is_claimed(daemons.path):
        wait_until(left, lambda claimed: not claimed)


@pytest.fixture
def open_front() -> Iterator[Callable[..., FrontProcess]]:
    """Start fronts whose daemon runs the small server; at the end they are closed."""
    fronts: list[FrontProcess] = []

    def start(*arguments: str, cwd: Path | None = None) -> FrontProcess:
        options = list(arguments) or ["--server", "rlm_toy:create"]
        fronts.append(FrontProcess(options, cwd))
        return fronts[-1]

    yield start
    for front in fronts:
        if front.process.returncode is None:
            front.process.kill()
            front.close()
