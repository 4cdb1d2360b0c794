"""One request that a session works on, and what came of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from rlm_kernel.host.output import CellOutput

DELIMITER = b"<IDS|MSG>"
DISPLAYS = ("execute_result", "display_data")
MAX_DATA_BYTES = 8 << 20


@dataclass(slots=True)
class Request:
    """A Jupyter request in the queue of a session: raw frames, and where its results go beside the Jupyter sockets.

    ``direct`` is the future of a caller on the control socket, or None for a request of a Jupyter client; ``run`` is
    what that caller names it by. A request is ``withdrawn`` when it shall not begin any more.
    """

    tag: bytes
    frames: list[bytes]
    direct: asyncio.Future[dict[str, Any]] | None = None
    run: object = None
    withdrawn: bool = False
    output: CellOutput | None = None
    reply: dict[str, Any] | None = None
    result: str | None = None
    data: list[dict[str, Any]] = field(default_factory=list)
    data_bytes: int = 0
    queries: list[dict[str, Any]] = field(default_factory=list)
    started: float = 0.0

    @property
    def header(self) -> bytes:
        """The raw header frame."""
        return self.frames[self.frames.index(DELIMITER) + 2]

    @property
    def identities(self) -> list[bytes]:
        """The routing prefix of the client that asked."""
        return self.frames[: self.frames.index(DELIMITER)]

    @property
    def kind(self) -> str:
        """The message type, or an empty string for a header that cannot be read."""
        try:
            header = json.loads(self.header)
            return str(header["msg_type"])
        except (ValueError, LookupError, TypeError, RecursionError):
            return ""

    def collect(self, channel: str, frames: tuple[bytes, ...]) -> None:
        """Keep what a caller of the host will want of its cell: the reply, the last value, rich output."""
        if channel == "iopub" and not any(kind.encode() in frame for kind in DISPLAYS for frame in frames[:4]):
            return
        read = _content(frames)
        if read is None:
            return
        kind, content = read
        if channel == "shell" and kind == "execute_reply":
            self.reply = content
        elif channel == "iopub" and kind in DISPLAYS:
            data = content.get("data")
            if kind == "execute_result" and isinstance(data, dict):
                self.result = str(data.get("text/plain", ""))
            self.data_bytes += sum(map(len, frames))
            if self.data_bytes <= MAX_DATA_BYTES:
                self.data.append({"kind": kind, "data": data})


def _content(frames: tuple[bytes, ...]) -> tuple[str, dict[str, Any]] | None:
    try:
        at = frames.index(DELIMITER)
        header, content = json.loads(frames[at + 2]), json.loads(frames[at + 5])
        return (str(header["msg_type"]), content) if isinstance(content, dict) else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def well_formed(frames: list[bytes]) -> bool:
    """True if ``frames`` have the shape of a Jupyter request: prefix, delimiter, signature and four dicts."""
    return DELIMITER in frames and len(frames) >= frames.index(DELIMITER) + 6


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
        "defined": _names(summary.get("defined")),
        "dropped": _names(summary.get("dropped")),
    }


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []
