"""The stdio front: how long a client waits for its tools, and what the relay adds to each call.

Start is measured from starting the process to the answered ``initialize``, with a daemon that runs
already: once as it is from the second start on (the front remembers the answer), once with the answer
asked of the daemon. For comparison: the interpreter doing nothing, and the SDK's own stdio server with
one tool. Round trips are medians of a ping and of ``eval_code("1+1")`` through front and daemon, and of
the ping without the front.

Then whole commands of the command line, beside a program of one command that typer makes: what no command can undercut.
"""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apart import folders
from ratio import Case, compare, timed

from rlm_ipc import discovery
from rlm_ipc.json_lines import daemon_command, handshake_line, socket_path

ROUNDS = 20
CALLS = 300
FRONT = [sys.executable, "-P", "-m", "rlm_mcp", "mcp"]
SDK_SERVER = """
import anyio
from mcp.server.mcpserver import MCPServer
server = MCPServer("plain")
@server.tool()
def ping_tool() -> str:
    return "pong"
server.run()
"""
ONE_COMMAND = """
import typer
app = typer.Typer()
@app.command()
def main(name: str = "x") -> None:
    print(name)
app()
"""
HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def message(number: int, method: str, **params: Any) -> bytes:
    """Return a request as a line."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


class Client:
    """A client of a stdio server; options are those of `subprocess.Popen`."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.number = 0
        self.ask("initialize", **HANDSHAKE)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.number += 1
        self.process.stdin.write(message(self.number, method, **params))
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self.number:
                return answer
        raise RuntimeError("the server ended")

    def initialized(self) -> None:
        """Finish the handshake."""
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.process.stdin.flush()

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def start(command: list[str]) -> float:
    """Return the seconds from starting a server to its answered initialize."""
    began = time.perf_counter()
    client = Client(command)
    seconds = time.perf_counter() - began
    client.close()
    return seconds


def start_forgetful() -> float:
    """Start a front that remembers no answers."""
    Path(discovery.state_folder(), "front-answers.json").unlink(missing_ok=True)
    return start(FRONT)


def whole(*command: str) -> float:
    """Return the seconds from the start of a program to its end."""
    return timed(lambda: subprocess.run([sys.executable, "-P", *command], check=True, stdout=subprocess.DEVNULL))


def median(call: Callable[[], object]) -> float:
    """Return the median seconds of a call."""
    return statistics.median(timed(call) for _ in range(CALLS))


def ping_without_front() -> Callable[[], object]:
    """Return a ping straight to the daemon's socket."""
    sock = discovery.connect(socket_path(discovery.runtime_folder()))
    assert isinstance(sock, socket.socket)
    file = sock.makefile("rwb")
    file.write(handshake_line() + message(0, "initialize", **HANDSHAKE))
    file.flush()
    file.readline()
    file.readline()

    def ping() -> None:
        file.write(message(1, "ping"))
        file.flush()
        file.readline()

    return ping


def main() -> None:
    """Measure in folders of our own, with a daemon of our own."""
    with folders() as folder:
        path = socket_path(discovery.runtime_folder())
        discovery.connect_or_start(path, daemon_command(sys.executable, path), log=str(folder / "log")).close()
        measure()


def measure() -> None:
    """Print the comparisons."""
    compare(
        "start to answered initialize",
        [
            Case("SDK's stdio server", lambda: start([sys.executable, "-P", "-c", SDK_SERVER])),
            Case("front, warm daemon", lambda: start(FRONT)),
            Case("front that remembers nothing", start_forgetful),
            Case("the interpreter alone", lambda: whole("-c", "pass")),
        ],
        rounds=ROUNDS,
        warm_up=2,
    )
    compare(
        "a command",
        [
            Case("one command of typer", lambda: whole("-c", ONE_COMMAND)),
            Case("work list", lambda: whole("-m", "rlm_mcp", "work", "list")),
            Case("run 1+1", lambda: whole("-m", "rlm_mcp", "run", "1+1")),
        ],
        rounds=ROUNDS,
        warm_up=2,
    )
    client = Client(FRONT)
    client.initialized()
    code = {"name": "eval_code", "arguments": {"code": "1+1"}}
    client.ask("tools/call", **code)
    straight = ping_without_front()
    compare(
        "round trip",
        [
            Case("eval_code 1+1 through front", lambda: median(lambda: client.ask("tools/call", **code))),
            Case("ping through front", lambda: median(lambda: client.ask("ping"))),
            Case("ping without front", lambda: median(straight)),
        ],
        rounds=5,
    )
    client.close()


if __name__ == "__main__":
    main()
