"""One request that a session works on, and what came of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from rlm_kernel import tags
from rlm_kernel.host.output import CellOutput
from rlm_kernel.host.peer import parse, texts
from rlm_kernel.host.queries import given_in
from rlm_kernel.host.signing import DELIMITER

EXECUTE = "execute_request"
DISPLAYS = ("execute_result", "display_data")
STATES = ("ok", "error", "aborted")
MAX_DATA_BYTES = 8 << 20


@dataclass(slots=True)
class Request:
    """A request in the queue of a session: of a Jupyter client (its raw frames), or a ``cell`` of a caller of the host.

    ``direct`` is the future of that caller, and ``run`` what the caller (or a door, by its name ``door``) calls the
    request by. ``header`` is what Jupyter messages about the request name as their parent; the header of a direct cell
    is made when one is needed. ``shadowed`` are the contexts whose names a cell has taken, and ``returned`` those that
    have their names again, though it took or deleted them. A request is ``withdrawn`` when it shall not begin any
    more; a cell that was ``interrupted`` before it began ends as it begins.
    """

    tag: bytes
    kind: str
    frames: list[bytes] = field(default_factory=list)
    header: bytes | None = None
    cell: dict[str, Any] = field(default_factory=dict)
    direct: asyncio.Future[dict[str, Any]] | None = None
    run: object = None
    door: str = ""
    withdrawn: bool = False
    interrupted: bool = False
    output: CellOutput | None = None
    reply: dict[str, Any] | None = None
    result: str | None = None
    data: list[dict[str, Any]] = field(default_factory=list)
    data_bytes: int = 0
    queries: list[dict[str, Any]] = field(default_factory=list)
    shadowed: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    started: float = 0.0

    @classmethod
    def of_client(cls, tag: bytes, frames: list[bytes], *, run: object = None, door: str = "") -> Request:
        """A request of a Jupyter client, of frames that are `well_formed`."""
        header = frames[frames.index(DELIMITER) + 2]
        return cls(tag, _kind(header), frames, header, run=run, door=door)

    @classmethod
    def of_caller(
        cls, code: str, store_history: bool, direct: asyncio.Future[dict[str, Any]], run: object = None
    ) -> Request:
        """A cell of a caller of the host."""
        cell = {"code": code, "store_history": store_history}
        return cls(tags.CELL, EXECUTE, cell=cell, direct=direct, run=run)

    @property
    def identities(self) -> list[bytes]:
        """The routing prefix of the client that asked; empty for a direct cell."""
        return self.frames[: self.frames.index(DELIMITER)] if self.frames else []

    def collect_message(self, channel: str, frames: tuple[bytes, ...]) -> None:
        """Keep what the journal will want of a Jupyter client's cell."""
        if channel == "iopub" and not any(kind.encode() in frame for kind in DISPLAYS for frame in frames[:4]):
            return
        read = _content(frames)
        if read is None:
            return
        kind, content = read
        if channel == "shell" and kind == "execute_reply":
            self.reply = content
        elif channel == "iopub" and kind in DISPLAYS:
            self.collect(kind, content.get("data"), sum(map(len, frames)))

    def collect(self, kind: str, data: Any, size: int) -> None:
        """Keep a display: the last value, rich output (``size`` in bytes)."""
        if kind == "execute_result" and isinstance(data, dict):
            self.result = str(data.get("text/plain", ""))
        self.data_bytes += size
        if self.data_bytes <= MAX_DATA_BYTES:
            self.data.append({"kind": kind, "data": data})


def _kind(header: bytes) -> str:
    """The message type, or an empty string for a header that cannot be read."""
    try:
        return str(json.loads(header)["msg_type"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def _content(frames: tuple[bytes, ...]) -> tuple[str, dict[str, Any]] | None:
    try:
        at = frames.index(DELIMITER)
        header, content = parse(frames[at + 2]), parse(frames[at + 5])
        return (str(header["msg_type"]), content) if isinstance(content, dict) else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def reply_in(summary: dict[str, Any]) -> dict[str, Any] | None:
    """The reply to a cell as a kernel tells it, of the right types; None if that is none."""
    reply = summary.get("reply")
    if not isinstance(reply, dict) or reply.get("status") not in STATES:
        return None
    count = reply.get("execution_count")
    error = {key: str(reply.get(key)) for key in ("ename", "evalue")} | {"traceback": texts(reply.get("traceback"))}
    known = {"status": reply["status"], "execution_count": count if isinstance(count, int) else None}
    return known | error if known["status"] == "error" else known


def direct_result(request: Request, summary: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a caller on the control socket gets of its cell."""
    reply = request.reply or {"status": "aborted"}
    output = request.output
    spool = output.close() if output else None
    error = None
    if reply.get("status") == "error":
        error = {key: reply.get(key) for key in ("ename", "evalue", "traceback")}
    return {
        "status": reply.get("status", "aborted"),
        "stdout": output.text("stdout") if output else "",
        "stderr": output.text("stderr") if output else "",
        "truncated": bool(output and output.truncated),
        "output_bytes": output.total if output else 0,
        "spool": str(spool) if spool else None,
        "spool_complete": bool(output and output.spool_complete),
        "result": request.result,
        "data": request.data,
        "error": error,
        "execution_count": reply.get("execution_count"),
        "seconds": seconds,
        "queries": request.queries,
        "defined": texts(summary.get("defined")),
        "shadowed": request.shadowed,
        "returned": request.returned,
        "given": given_in(summary),
    }
