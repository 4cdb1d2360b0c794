"""What a client and the daemon say to each other, without the socket between them: bytes in, bytes out.

A connection begins with a handshake line and the daemon's reply to it; `daemon_protocol` has their types. In the role
``mcp`` requests follow. MCP is spoken in its stateless form, which needs no handshake: a few lines do what takes the
SDK a second to import. `daemon_connection` and `daemon_connection_async` carry it.

The table of roles is imported when a connection is open: if that starts a daemon, both import at the same time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from rlm_ipc.daemon_requests import Reply, Request
from rlm_ipc.errors import DaemonRefused, DaemonUnavailable, ProcessError, ProtocolError, ToolFailed
from rlm_ipc.json_lines import GOODBYE, MODERN_VERSION_KEY, LineSplitter, Oversized, handshake_line
from rlm_ipc.messages import Json, JsonObject, plain, read, reply_type
from rlm_ipc.version import VERSION

if TYPE_CHECKING:
    from rlm_ipc.daemon_protocol import Accepted

OnProgress = Callable[[float, float | None, str], None]
"""Called with how much of a call is done, the total if it is known, and what is happening."""
ENDED_AT_HANDSHAKE = "the daemon ended before it answered; try again"
ENDED_UNDER_A_CALL = "the daemon ended before it answered; look at what was done, then try again"
CLOSED_UNDER_A_CALL = "this client was closed before the answer came; what the call was doing has been interrupted"
ENVELOPE = {
    MODERN_VERSION_KEY: "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "rlm-kernel", "version": VERSION},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""What a request of the stateless protocol says about its client."""
_LONGEST_INLINE = 64 * 1024
"""Size in bytes up to which a request is part of the handshake line; the daemon reads no line beyond 256 KiB."""


class Dialogue:
    """One connection's state: lines that have arrived, and the request that waits for its answer."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._lines: deque[bytes | Oversized] = deque()
        self._requests = 0
        self._asked: int | None = None

    def feed(self, data: bytes) -> None:
        """Take the data that was read."""
        self._lines.extend(self._splitter.feed(data))

    def line(self) -> bytes | None:
        """Return the daemon's next line; None while none is complete."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        if isinstance(line, Oversized):
            raise ProtocolError(f"the daemon sent a line of {line.size:,} bytes; ask for less at once")
        return line

    def is_over(self) -> bool:
        """Return whether the daemon has announced that it will hang up."""
        return GOODBYE.strip() in self._lines

    def request(self, method: str, params: JsonObject, on_progress: OnProgress | None) -> bytes:
        """Return an MCP request; `answer` recognizes its answer."""
        self._requests += 1
        self._asked = self._requests
        meta = ENVELOPE if on_progress is None else {**ENVELOPE, "progressToken": self._requests}
        message = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": {**params, "_meta": meta}}
        return json.dumps(message).encode() + b"\n"

    def cancel(self) -> bytes:
        """Return the line that cancels the waiting request; empty if none is waiting."""
        if self._asked is None:
            return b""
        params = {"requestId": self._asked}
        return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode() + b"\n"

    def answer(self, line: bytes, on_progress: OnProgress | None) -> JsonObject | None:
        """Return the result if the line answers the request. Notifications of progress are passed on."""
        said = json.loads(line)
        if said.get("id") == self._requests:
            self._asked = None
            return _result(said)
        if on_progress is not None and said.get("method") == "notifications/progress":
            told = said["params"]
            on_progress(told["progress"], told.get("total"), told.get("message") or "")
        return None


def handshake(request: Request[Any], environment: Mapping[str, str] | None = None, client: str | None = None) -> bytes:
    """Return the handshake line for a request; a long request follows the line.

    ``environment`` holds the variables that the daemon sees, in place of this process's own. ``client`` distinguishes
    the clients of one process.
    """
    from rlm_ipc.daemon_protocol import role_of

    body: Json = plain(request)
    more: dict[str, object] = {} if environment is None else {"env": dict(environment)}
    if client is not None:
        more["lock"] = client
    written = json.dumps(body).encode()
    if len(written) <= _LONGEST_INLINE:
        return handshake_line(role_of(request), **more, request=body)
    return handshake_line(role_of(request), **more, bytes=len(written)) + written


def no_reply(seconds: float | None) -> ProcessError:
    """Return the error for a handshake that was not answered in time."""
    said = f"the daemon has not answered for {seconds:g} s; check whether it is overloaded, or end its process"
    return ProcessError(said)


def accepted(line: bytes, where: str) -> Accepted:
    """Return the reply of the daemon at ``where`` to a handshake.

    Raises:
        DaemonRefused: it refuses the request.
        DaemonUnavailable: it is gone.
        ProcessError: it cannot serve the request, or is not one of our daemons.
    """
    from rlm_ipc.daemon_protocol import Accepted, Fault, Refused

    if not line:
        raise DaemonUnavailable(ENDED_AT_HANDSHAKE)
    answer: Json = None
    with suppress(ValueError):
        answer = json.loads(line)
    is_accepted = isinstance(answer, dict) and answer.get("ok") is True
    try:
        reply = read(Accepted, answer) if is_accepted else read(Refused, answer)
    except ProtocolError as error:
        if line.strip() == GOODBYE.strip():
            raise DaemonUnavailable(ENDED_AT_HANDSHAKE) from error
        raise ProcessError(
            f"what listens at {where} is not an rlm-kernel daemon, or is one of another version ({error}); "
            "end that process, or remove the file"
        ) from error
    if isinstance(reply, Accepted):
        return reply
    if reply.fault is Fault.DAEMON:
        raise ProcessError(reply.error)
    raise DaemonRefused(reply.error, usage=reply.fault is Fault.USAGE)


def reply_to(request: Request[Reply], accepted: Accepted) -> Reply:
    """Return the reply to a request, in the type that the request names.

    Raises:
        ProtocolError: the reply has another type.
    """
    return cast("Reply", read(reply_type(type(request)), accepted.reply))


def _result(answer: JsonObject) -> JsonObject:
    if "error" in answer:
        raise ToolFailed(str(answer["error"].get("message")), answer)
    result: JsonObject = answer["result"]
    return result
