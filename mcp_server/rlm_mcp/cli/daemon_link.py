"""How the command line reaches the daemon: the control roles of the hello line, and MCP like any client."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, Self

from rlm_kernel import rendezvous
from rlm_mcp.errors import ClientFault, DaemonFault, DaemonUnavailable, RlmMcpError, ToolFailed, WrongUsage
from rlm_mcp.front import daemon_log
from rlm_mcp.front_answers import MODERN_VERSION_KEY
from rlm_mcp.link import daemon_command, hello_environment, hello_line, socket_path
from rlm_mcp.version import VERSION

__all__ = ["Control", "call_tool", "connect", "is_running", "start_daemon", "the_socket"]

REPLY_SECONDS = 30.0
_FAULTS: dict[str, type[RlmMcpError]] = {"usage": WrongUsage, "request": ClientFault}
"""What the daemon says was at fault when it refuses; without a word it was the daemon."""
ENVELOPE = {
    MODERN_VERSION_KEY: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "rlm-kernel", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""What a request of the stateless protocol says about its client."""


def the_socket() -> str:
    """Return where the daemon of this user listens."""
    return socket_path(rendezvous.runtime_folder())


def is_running() -> bool:
    """Say whether a daemon lives (also while it starts or ends)."""
    return rendezvous.is_claimed(the_socket())


def start_daemon(*options: str) -> socket.socket:
    """Return a connection to the daemon, which is started if there is none."""
    path = the_socket()
    command = daemon_command(sys.executable, path, *options)
    return rendezvous.connect_or_start(path, command, log=daemon_log(rendezvous.state_folder()))


def connect(*, start: bool) -> socket.socket:
    """Return a connection to the daemon; raises :class:`DaemonUnavailable` if none runs or may start."""
    if start:
        return start_daemon()
    sock = rendezvous.connect(the_socket())
    if sock is None:
        raise DaemonUnavailable("no daemon is running; start it with: rlm-kernel daemon start")
    return sock


class Control:
    """A connection in one of the daemon's control roles; a context manager."""

    def __init__(
        self, role: str, *, start: bool = False, seconds: float | None = REPLY_SECONDS, **more: object
    ) -> None:
        self._socket = connect(start=start)
        self._socket.settimeout(seconds)
        self._file = self._socket.makefile("rb")
        try:
            self._socket.sendall(hello_line(role, **more))
            self.reply = _reply(self._file.readline())
        except ConnectionError as error:  # it was killed: its socket takes connections for a moment yet
            self.close()
            raise DaemonUnavailable("the daemon ended before it answered; try again") from error
        except BaseException:
            self.close()
            raise

    def wait_for_end(self) -> None:
        """Block until the daemon ends the connection."""
        self._socket.settimeout(None)
        try:
            while self._file.readline():
                pass
        except OSError:
            pass

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send an MCP request of the stateless protocol and return its result; passes over notifications.

        That protocol needs no handshake: a few lines do for what takes the SDK a second to import.
        """
        self._socket.settimeout(None)
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        for line in self._file:
            answer = json.loads(line)
            if answer.get("id") == 1:
                break
        else:
            raise DaemonUnavailable("the daemon ended before it answered; look at what was done, then try again")
        if "error" in answer:
            raise ToolFailed(str(answer["error"].get("message")), answer)
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reply(line: bytes) -> dict[str, Any]:
    """Return the daemon's answer to a hello; raises when it refused or is gone."""
    if not line:
        raise DaemonUnavailable("the daemon ended before it answered; try again")
    reply: dict[str, Any] = json.loads(line)
    if not reply.get("ok"):
        kind = _FAULTS.get(str(reply.get("fault")), DaemonFault)
        raise kind(str(reply.get("error", "the daemon refused the connection")))
    return reply


# --- MCP ------------------------------------------------------------------------------------------


def call_tool(
    name: str, arguments: dict[str, Any], *, session: str | None = None, policy: str | None = None
) -> dict[str, Any]:
    """Call a tool of the daemon as an MCP client and return its answer, which is one JSON object.

    ``session`` names the session to work in, ``policy`` the one to open it under. A cell that takes longer than a
    call may is waited for. Raises :class:`ToolFailed` when the tool answers with an error.
    """
    with Control("mcp", start=True, env=_environment(session, policy)) as connection:
        answer = _checked(connection.request("tools/call", {"name": name, "arguments": arguments}))
        while answer.get("status") == "running" and "run" in answer:
            again = {"name": "wait", "arguments": {"run": answer["run"]}}
            answer = _checked(connection.request("tools/call", again))
        return answer


def _checked(result: dict[str, Any]) -> dict[str, Any]:
    """Return the answer in a tool's result; raises :class:`ToolFailed` when it is an error."""
    text = "".join(block.get("text", "") for block in result.get("content", []))
    try:
        found = json.loads(text)
    except ValueError:
        found = {"text": text}
    answer: dict[str, Any] = found if isinstance(found, dict) else {"answer": found}
    # A cell that raised is an answer (it has `success`), a call that could not be done is not.
    if result.get("isError") or ("error" in answer and "success" not in answer):
        raise ToolFailed(_message(answer), answer)
    return answer


def _message(answer: dict[str, Any]) -> str:
    """Return what a tool's error says, as one line."""
    parts = [str(answer[key]) for key in ("message", "hint", "text") if answer.get(key)]
    if isinstance(available := answer.get("available"), list):
        parts.append(f"available: {', '.join(map(str, available)) or 'nothing'}")
    return "; ".join(parts) or json.dumps(answer, ensure_ascii=False)


def _environment(session: str | None, policy: str | None) -> dict[str, str]:
    """Return the environment that the daemon is told; what the command line names wins."""
    named = {"PARENT_SESSION_ID": session, "RLM_KERNEL_POLICY": policy}
    return hello_environment(os.environ) | {name: value for name, value in named.items() if value}
