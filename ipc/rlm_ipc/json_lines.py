"""The link between a client process and the daemon: one handshake line each way, then newline-delimited JSON-RPC.

Standard library only, and nothing slow from it: the front loads this module while a client waits. Both ends cut the
byte stream into lines with the same :class:`LineSplitter` and the same limit, so a line that is too long is refused
with the same words wherever it arrives.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

PROTOCOL = 1
"""Number of the protocol between front and daemon. It changes when an old daemon cannot serve a new front."""
MAX_LINE = 128 * 1024 * 1024
"""Longest accepted line, in bytes: a context that fills the 100 MB quota fits, with the usual escapes."""
IDLE_SECONDS = 1800.0
"""How long a daemon stays when nobody is connected."""
CHUNK = 256 * 1024
"""Bytes requested in one read."""
EDGE = 4096
"""How much of the start and end of a refused line is kept, to find the id to answer."""
MADE_BY, TERMINAL = "RLM_KERNEL_MADE_BY", "terminal"
"""The variable that a command at a terminal sets for its own calls."""
HANDSHAKE_ENVIRONMENT = ("PARENT_SESSION_ID", "OPENCODE_SESSION_ID", "RLM_KERNEL_POLICY", "RLM_KERNEL_TOOLS", MADE_BY)
"""The only variables of a client's environment that the daemon sees."""
GOODBYE = b'{"rlm":"goodbye"}\n'
"""Last line of a daemon that stops on purpose: its fronts start a new one when they need it, not at once."""

MODERN_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Where a request of the 2026-07-28 version says which protocol it speaks."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
DAEMON_LOST = -32010
"""Our own error code: the daemon ended before it answered."""


def socket_path(runtime_dir: str) -> str:
    """Return where the daemon of this protocol listens; another protocol number is another daemon."""
    return f"{runtime_dir}/mcp-v{PROTOCOL}.sock"


def daemon_command(python: str, *options: str) -> list[str]:
    """Return the command that starts a daemon.

    ``-P`` keeps the user's folder out of its imports; the columns of its own tracebacks are not worth their memory.
    """
    return [python, "-P", "-X", "no_debug_ranges", "-m", "rlm_mcp.daemon", *options]


def daemon_log(state_folder: str) -> str:
    """Return where a daemon's output goes (its log proper is beside it)."""
    return f"{state_folder}/daemon.out"


def hooks_folder(state_folder: str) -> str:
    """Return where hooks of agent programs find the daemon's socket, the file for events and the text to print."""
    return f"{state_folder}/hooks"


def handshake_line(role: str = "mcp", **more: object) -> bytes:
    """Return the line that opens a connection: who we are, where we run, and our part of the environment."""
    handshake = {
        "rlm": PROTOCOL,
        "role": role,
        "pid": os.getpid(),
        "cwd": _working_directory(),
        "env": handshake_environment(os.environ),
        **more,
    }
    return json.dumps(handshake).encode() + b"\n"


def handshake_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a client passes to the daemon, which runs in another folder."""
    handed = {name: environment[name] for name in HANDSHAKE_ENVIRONMENT if environment.get(name)}
    if "RLM_KERNEL_POLICY" in handed:
        handed["RLM_KERNEL_POLICY"] = named_policy(handed["RLM_KERNEL_POLICY"])
    return handed


def named_policy(given: str) -> str:
    """Return a policy's name unchanged, or its path made absolute for the daemon."""
    is_path = "/" in given or given.endswith((".yaml", ".yml"))
    return os.path.abspath(os.path.expanduser(given)) if is_path else given


def _working_directory() -> str:
    """Return the working directory, or an empty string if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def error_line(request_id: str | int | None, code: int, message: str, **data: object) -> bytes:
    """Return a JSON-RPC error response as a line."""
    error: dict[str, object] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode() + b"\n"


class Oversized:
    """A line longer than the limit: its first and last bytes and its length. The rest was dropped."""

    def __init__(self, head: bytes, tail: bytes, size: int) -> None:
        self.head = head
        self.tail = tail
        self.size = size

    def refusal(self, limit: int = MAX_LINE) -> bytes | None:
        """Return the error line to answer with; ``None`` if it was not a request."""
        found, request_id = edge_id(self.head, self.tail)
        if not found and b'"result"' in self.head:
            return None
        message = (
            f"the message is {self.size:,} bytes long, the limit is {limit:,}; write the text to a file and "
            "load that: load_context(name, path=...)"
        )
        return error_line(request_id, INVALID_REQUEST, message)


class LineSplitter:
    """Cuts a byte stream into lines without their end; a line over ``limit`` becomes :class:`Oversized`."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def empty(self) -> bool:
        """True if no part of a further line has been fed."""
        return not self._size

    def feed(self, data: bytes) -> Iterator[bytes | Oversized]:
        """Take the data that was read, and yield every line that it completes."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._add(piece)
            yield self._finish()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            if piece:
                self._pending.append(piece)
            return
        if self._pending:  # This piece exceeds the limit: from here on only the edges are kept.
            whole = b"".join(self._pending)
            self._head, self._tail = whole[:EDGE], whole[-EDGE:]
            self._pending.clear()
        self._head = (self._head + piece[:EDGE])[:EDGE]
        self._tail = (self._tail + piece)[-EDGE:]

    def _finish(self) -> bytes | Oversized:
        line: bytes | Oversized
        if self._size <= self._limit:
            line = b"".join(self._pending) if len(self._pending) != 1 else self._pending[0]
        else:
            line = Oversized(self._head, self._tail, self._size)
        self._pending.clear()
        self._size, self._head, self._tail = 0, b"", b""
        return line


def edge_id(head: bytes, tail: bytes) -> tuple[bool, str | int | None]:
    """Find the id of a message of which only the edges are known: (found, id).

    Clients write the id before the long part (``{"jsonrpc":"2.0","id":1,"method":…``) or as one of the last members
    (``…},"jsonrpc":"2.0","id":1}``). Text in a string is never mistaken for it, because quotes are escaped there.
    """
    import re

    member = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"'
    identity = rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)'
    for pattern, text in (
        (rb"^\s*\{\s*(?:" + member + rb"\s*,\s*)*" + identity + rb"\s*[,}]", head),
        (rb",\s*" + identity + rb"\s*(?:,\s*" + member + rb"\s*)*\}\s*$", tail),
    ):
        if match := re.search(pattern, text):
            try:
                value: Any = json.loads(match[1])
            except ValueError:
                continue
            return True, value
    return False, None
