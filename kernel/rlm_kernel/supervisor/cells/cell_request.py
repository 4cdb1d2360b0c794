"""One request of a session, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlm_ipc.jupyter_wire import DELIMITER, object_in
from rlm_ipc.kernel_reports import CellError, CellResult
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import Ended, Loss, Uncopied
from rlm_ipc.worker_protocol import CellDone, CellReply, CellStatus, RunCell
from rlm_kernel.supervisor.cells.cell_output import CellOutput
from rlm_kernel.supervisor.cells.query_book import given_in
from rlm_kernel.supervisor.processes.kernel_json import parse

EXECUTE = "execute_request"
DISPLAYS = ("execute_result", "display_data")
MAX_DATA_BYTES = 8 << 20


@dataclass(slots=True)
class Parent:
    """What Jupyter messages about a request name of it: its kind and its header, None until one is needed."""

    kind: str
    header: bytes | None


@dataclass(slots=True)
class CellRequest:
    """A request in the queue of a session: a Jupyter client's (raw parts), or a ``cell`` of a supervisor client.

    ``direct`` is the future of that client. ``run`` is the key by which the client, or an ``attachment``, refers to the
    request later. A person's cell at a terminal has `TERMINAL` in place of an attachment. ``header`` is the parent
    header of Jupyter messages about the request; a direct cell gets one only when it is needed. ``shadowed`` are the
    contexts whose names the cell has taken, and ``returned`` those whose names it took or deleted and gave back. A
    ``withdrawn`` request must not start any more. A cell that was ``interrupted`` before it started ends as it starts.
    One that ``says_that_it_waits`` shows so in front ends. ``ended`` says what ended the request, ``reason`` explains
    it unless it ended by itself, and ``loss`` is what was lost with its worker. ``uncopied`` is what no checkpoint
    holds after it. The caller of one that was ``left`` has gone, and may return. One that was ``told`` has been
    answered by an earlier supervisor: it is only looked at again. One whose ``may_begin`` returns False at its turn is
    skipped. One that was ``noted`` has left nothing to record for a later supervisor.
    """

    tag: bytes
    kind: str
    parts: list[bytes] = field(default_factory=list)
    header: bytes | None = None
    cell: RunCell | None = None
    direct: asyncio.Future[CellResult] | None = None
    run: object = None
    attachment: str = ""
    left: bool = False
    told: bool = False
    withdrawn: bool = False
    may_begin: Callable[[], bool] | None = None
    says_that_it_waits: bool = False
    interrupted: bool = False
    output: CellOutput | None = None
    reply: CellReply | None = None
    result: str | None = None
    data: list[JsonObject] = field(default_factory=list)
    data_bytes: int = 0
    queries: list[str] = field(default_factory=list)
    shadowed: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    started: float = 0.0
    ended: Ended = Ended.BY_ITSELF
    reason: str = ""
    loss: Loss | None = None
    uncopied: Uncopied | None = None
    noted: bool = False

    @classmethod
    def of_client(cls, tag: bytes, parts: list[bytes], *, run: object = None, attachment: str = "") -> CellRequest:
        """Return a request of a Jupyter client, whose parts are `well_formed`."""
        kind, header = str(object_in(parts, 2).get("msg_type", "")), parts[parts.index(DELIMITER) + 2]
        return cls(tag, kind, parts, header, run=run, attachment=attachment)

    @classmethod
    def of_caller(
        cls,
        code: str,
        store_history: bool,
        direct: asyncio.Future[CellResult],
        run: object = None,
        may_begin: Callable[[], bool] | None = None,
        attachment: str = "",
    ) -> CellRequest:
        """Return a cell of a caller of the supervisor."""
        cell = RunCell(code, store_history)
        return cls(RunCell.TAG, EXECUTE, [], None, cell, direct, run, attachment, may_begin=may_begin)

    def kept(self) -> tuple[bytes, ...]:
        """Return what a later supervisor needs to answer it; `of_kept` reads it."""
        if self.cell is None:
            return self.tag, self.attachment.encode(), *self.parts
        stored = b"1" if self.cell.store_history else b""
        return (
            self.tag,
            str(self.run).encode("utf-8", "replace"),
            stored,
            self.cell.code.encode("utf-8", "surrogatepass"),
            self.attachment.encode(),
        )

    @classmethod
    def of_kept(cls, kept: Sequence[bytes], direct: asyncio.Future[CellResult]) -> CellRequest:
        """Return the request that `kept` described.

        ``direct`` is its future, if it is a cell of a supervisor client.
        """
        tag, name, *rest = kept
        if tag != RunCell.TAG:
            return cls.of_client(tag, rest, attachment=name.decode())
        code, attachment = rest[1].decode("utf-8", "surrogatepass"), b"".join(rest[2:]).decode()
        return cls.of_caller(code, bool(rest[0]), direct, name.decode(), attachment=attachment)

    @property
    def identities(self) -> list[bytes]:
        """The routing prefix of the client that sent it; empty for a direct cell."""
        return self.parts[: self.parts.index(DELIMITER)] if self.parts else []

    @property
    def why(self) -> str:
        """Why it ended and what was lost, in words."""
        return self.reason if self.loss is None else f"{self.reason}; {self.loss}"

    @property
    def error(self) -> CellError | None:
        """The error to show: the cell's own, or the supervisor's if the supervisor ended the cell."""
        reply = self.reply
        if reply is None or reply.status is not CellStatus.ERROR:
            return None
        if self.ended is not Ended.BY_ITSELF:
            return CellError(self.ended.error_name, self.why, reply.traceback)
        return CellError(reply.ename, reply.evalue, reply.traceback)

    def collect_message(self, channel: str, parts: tuple[bytes, ...]) -> None:
        """Keep the parts of a Jupyter client's cell that the journal needs."""
        # Most messages are neither: look for the kind in the bytes before parsing what may be megabytes of JSON.
        if channel == "iopub" and not any(kind.encode() in part for kind in DISPLAYS for part in parts[:4]):
            return
        found = _content(parts)
        if found is None:
            return
        kind, content = found
        if channel == "shell" and kind == "execute_reply":
            self.reply = _reply_in(content)
        elif channel == "iopub" and kind in DISPLAYS:
            self.collect(kind, content.get("data"), sum(map(len, parts)))

    def collect(self, kind: str, data: Any, size: int) -> None:
        """Keep a display: the last value, rich output (``size`` in bytes)."""
        if kind == "execute_result" and isinstance(data, dict):
            self.result = str(data.get("text/plain", ""))
        self.data_bytes += size
        if self.data_bytes <= MAX_DATA_BYTES and isinstance(data, dict):
            self.data.append(data)


def _reply_in(content: JsonObject) -> CellReply:
    """Return what a Jupyter client was told about its cell, as far as the kernel followed the protocol."""
    status, count, lines = (content.get(name) for name in ("status", "execution_count", "traceback"))
    return CellReply(
        CellStatus(status) if status in list(CellStatus) else CellStatus.ABORTED,
        count if isinstance(count, int) else None,
        str(content.get("ename", "")),
        str(content.get("evalue", "")),
        tuple(map(str, lines)) if isinstance(lines, list) else (),
    )


def _content(parts: tuple[bytes, ...]) -> tuple[str, JsonObject] | None:
    try:
        at = parts.index(DELIMITER)
        header, content = parse(parts[at + 2]), parse(parts[at + 5])
        return (str(header["msg_type"]), content) if isinstance(content, dict) else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def direct_result(request: CellRequest, done: CellDone, seconds: float) -> CellResult:
    """Return the result of a cell for its caller on the control socket."""
    reply = request.reply or CellReply(CellStatus.ABORTED)
    output = request.output
    spool = output.close() if output else None
    return CellResult(
        status=reply.status,
        stdout=output.text("stdout") if output else "",
        stderr=output.text("stderr") if output else "",
        truncated=bool(output and output.truncated),
        output_bytes=output.total if output else 0,
        spool=str(spool) if spool else None,
        spool_complete=bool(output and output.spool_complete),
        result=request.result,
        data=tuple(request.data),
        error=request.error,
        ended=request.ended,
        reason=request.reason,
        loss=request.loss,
        uncopied=request.uncopied,
        execution_count=reply.execution_count,
        seconds=seconds,
        queries=tuple(request.queries),
        defined=done.defined,
        shadowed=tuple(request.shadowed),
        returned=tuple(request.returned),
        given=given_in(done.given),
    )
