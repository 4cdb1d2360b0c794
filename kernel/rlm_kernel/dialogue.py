"""What a client and the daemon say to each other, without the socket between them: bytes in, bytes out.

A connection begins with a hello line and the daemon's reply to it; in the role ``mcp`` requests follow. MCP is spoken
in its stateless form, which needs no handshake: a few lines of the standard library do for what takes the SDK a second
to import. `connection` and `connection_async` carry it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rlm_kernel.errors import DaemonRefused, DaemonUnavailable, ProcessError, ProtocolError, ToolFailed
from rlm_kernel.link import GOODBYE, MODERN_VERSION_KEY, LineSplitter, Oversized, hello_line
from rlm_kernel.version import VERSION

__all__ = ["ENDED_AT_HELLO", "ENDED_UNDER_A_CALL", "Dialogue", "OnProgress", "hello", "no_reply", "reply_in"]

OnProgress = Callable[[float, float | None, str], None]
"""Hears how much of a call is done, how much there is if that is known, and what is happening."""
ENDED_AT_HELLO = "the daemon ended before it answered; try again"
ENDED_UNDER_A_CALL = "the daemon ended before it answered; look at what was done, then try again"
_ENVELOPE = {
    MODERN_VERSION_KEY: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "rlm-kernel", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""What a request of the stateless protocol says about its client."""


class Dialogue:
    """One connection's state: lines that have arrived, and the request that waits for its answer."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._lines: deque[bytes | Oversized] = deque()
        self._requests = 0

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._lines.extend(self._splitter.feed(data))

    def line(self) -> bytes | None:
        """Return the next line of the daemon; None while none is whole."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        if isinstance(line, Oversized):
            raise ProtocolError(f"the daemon sent a line of {line.size:,} bytes; ask for less at once")
        return line

    def is_over(self) -> bool:
        """Say whether the daemon has said that it will hang up."""
        return GOODBYE.strip() in self._lines

    def request(self, method: str, params: dict[str, Any], on_progress: OnProgress | None) -> bytes:
        """Return an MCP request, whose answer `answer` finds."""
        self._requests += 1
        meta = _ENVELOPE if on_progress is None else {**_ENVELOPE, "progressToken": self._requests}
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": {**params, "_meta": meta}}
        return json.dumps(message).encode() + b"\n"

    def answer(self, line: bytes, on_progress: OnProgress | None) -> dict[str, Any] | None:
        """Return the result if the line answers the request; of notifications it passes on those of progress."""
        said = json.loads(line)
        if said.get("id") == self._requests:
            return _result(said)
        if on_progress is not None and said.get("method") == "notifications/progress":
            told = said["params"]
            on_progress(told["progress"], told.get("total"), told.get("message") or "")
        return None


def hello(role: str, body: object, more: dict[str, object]) -> bytes:
    """Return the hello of a role; what has no room in its line, which is short, goes into the ``body`` behind it."""
    behind = b"" if body is None else json.dumps(body).encode()
    return hello_line(role, **more, **({"bytes": len(behind)} if behind else {})) + behind


def no_reply(seconds: float | None) -> ProcessError:
    """Return the error that a hello was not answered in time."""
    said = f"the daemon has not answered for {seconds:g} s; see whether it is overloaded, or end its process"
    return ProcessError(said)


def reply_in(line: bytes, where: str) -> dict[str, Any]:
    """Return the answer to a hello of the daemon at ``where``; raises when it refused or is gone."""
    if not line:
        raise DaemonUnavailable(ENDED_AT_HELLO)
    reply: Any = None
    with suppress(ValueError):
        reply = json.loads(line)
    if not isinstance(reply, dict):
        raise ProcessError(f"what listens at {where} is no daemon of ours; end that process, or remove the file")
    if not reply.get("ok"):
        said, fault = str(reply.get("error", "the daemon refused the connection")), reply.get("fault")
        if fault is None:  # without a word the daemon is at fault
            raise ProcessError(said)
        raise DaemonRefused(said, usage=fault == "usage")
    return reply


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ToolFailed(str(answer["error"].get("message")), answer)
    result: dict[str, Any] = answer["result"]
    return result
