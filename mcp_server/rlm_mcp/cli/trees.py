"""A tree of goals as one file, and replaying such a file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import ask
from rlm_ipc.errors import KernelError, ProtocolError, ToolFailed
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject, read
from rlm_ipc.session_record import RecordedCell
from rlm_ipc.session_requests import ShowTree
from rlm_ipc.tree_record import RecordedEvent, RecordedFrame, TreeRecord
from rlm_mcp.errors import ClientFault
from rlm_mcp.formats.tree import FORMAT

_SESSION = "session"


def record_of_tree(frame: str, *, cells: bool = True) -> TreeRecord:
    """Return a frame and all frames below it; raises DaemonRefused if it does not exist."""
    return ask(ShowTree(frame, cells=cells), start=True)


def read_tree(file: Path) -> TreeRecord:
    """Return the tree in a file; raises ClientFault if the file contains none."""
    hint = "use a file written by `rlm-kernel tree --export`"
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClientFault(f"{file} cannot be read ({error.strerror}); {hint}") from error
    except ValueError as error:
        raise ClientFault(f"{file} is not JSON ({error}); {hint}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ClientFault(f"{file} does not contain a tree of this version; {hint}")
    try:
        return read(TreeRecord, {name: value.get(name) for name in ("frame", "frames")})
    except ProtocolError as error:
        raise ClientFault(f"{file} does not contain a tree ({error}); {hint}") from error


@dataclass(frozen=True)
class Difference:
    """A difference in a frame; ``what`` is for example ``status``, ``cell 2`` or ``summary``."""

    frame: str
    what: str
    then: str
    now: str


@dataclass
class _Replay:
    """The goals of a file, replayed in new sessions.

    ``ids`` maps the ids in the file to the new ids, or to a session's name for a frame that represents a session.
    """

    policy: str
    session: str = field(default_factory=lambda: f"replay-{secrets.token_hex(4)}")
    ids: dict[str, str] = field(default_factory=dict)
    tops: dict[str, str] = field(default_factory=dict)
    """The frames that represent the sessions, by the sessions' names."""
    differences: list[Difference] = field(default_factory=list)
    cells: int = 0

    def call(self, tool: str, session: str | None = None, **arguments: Any) -> JsonObject:
        return call_tool(tool, arguments, session=session or self.session, policy=self.policy)

    def differs(self, frame: RecordedFrame, what: str, then: str, now: str) -> None:
        if then != now:
            self.differences.append(Difference(frame.id, what, then, now))

    def do(self, frame: RecordedFrame, event: RecordedEvent) -> None:
        """Repeat a change, unless it was part of another one."""
        mine = self.ids.get(frame.id, "")
        match event.verb:
            case "plan" if frame.kind == _SESSION:
                self._session_for(frame)
            case "plan":
                planned = self.call("plan", goal=frame.goal, parent=self._above(frame))
                self.ids[frame.id] = planned["frame"]
            case "start" if not event.along:
                self.call("push", goal=mine, fork=event.fork)
            case "pop" | "end_session" if not event.along and frame.kind != _SESSION:
                self._pop(frame, mine, event)
            case "invalidate" | "reopen":
                if self.call("frame", id=mine)["status"] != event.status:  # else a frame above has changed it, too
                    self.call("frame", id=mine, do=event.verb)

    def run(self, frame: RecordedFrame, number: int, cell: RecordedCell) -> None:
        """Run a cell again in the session in which it ran."""
        self.cells += 1
        name = self.ids.get(frame.id) or self._session_for(frame)  # it may have run before its frame was made
        try:
            self.call("eval_code", session=name, code=cell.code)
        except ToolFailed as error:
            self.differs(frame, f"cell {number}", cell.output, str(error))
            return
        again = record_of_tree(self.tops.get(name, name)).frames[0].cells[-1]
        self.differs(frame, f"cell {number}: status", cell.status, again.status)
        self.differs(frame, f"cell {number}: output", cell.output, again.output)

    def end(self) -> None:
        """Delete the sessions and frames of the replay."""
        for name, top in reversed(self.tops.items()):
            for child in self.call("frame", id=top)["children"]:
                frame = self.call("frame", id=child)
                if frame["kind"] == _SESSION:
                    continue
                if frame["status"] == "in_progress":
                    self.call("pop", id=child, status="failed", children="fail")
                self.call("frame", id=child, do="forget")
            self.call("end_session", session=name)

    def _above(self, frame: RecordedFrame) -> str:
        above = self.ids.get(frame.parent or "") or self._open(self.session)
        return self.tops.get(above, above)

    def _open(self, name: str) -> str:
        if name not in self.tops:
            self.tops[name] = self.call("frame", session=name)["frame"]
        return name

    def _session_for(self, frame: RecordedFrame) -> str:
        """Return the session that replaces a frame's session: a fork, unless it is the first one."""
        if frame.id not in self.ids:
            name, above = self.session, self.ids.get(frame.parent or "")
            if above is not None:
                name = f"{self.session}-{frame.id}x"
                self.call("fork_session", session=above, name=name)
            self.ids[frame.id] = self._open(name)
        return self.ids[frame.id]

    def _pop(self, frame: RecordedFrame, mine: str, event: RecordedEvent) -> None:
        status = event.status if event.verb == "pop" else "blocked"
        last = event is [one for one in frame.events if one.verb in ("pop", "end_session")][-1]
        given: JsonObject = {"id": mine, "status": status, "children": "fail" if event.failed else "refuse"}
        if last:
            given |= {"summary": frame.summary if frame.summary_by != "extract" else "", "decisions": frame.decisions}
            given |= {"artifacts": frame.artifacts, "hand_over": frame.handed_over}
        try:
            ended = self.call("pop", **given)
        except ToolFailed as error:
            self.differs(frame, "pop", event.status, str(error))
            return
        if last:
            self.differs(frame, "summary", frame.summary, ended["summary"])


def replay_tree(record: TreeRecord, policy: str | None = None) -> tuple[int, list[Difference]]:
    """Replay all changes and cells in their order. Return the number of cells that ran, and the differences.

    Everything happens below a new session, which is deleted at the end.
    """
    again = _Replay(policy or os.environ.get("RLM_KERNEL_POLICY") or "default")
    again.call("status")
    try:
        for frame, what in _in_order(record):
            if isinstance(what, RecordedEvent):
                again.do(frame, what)
            else:
                again.run(frame, *what)
        for frame in record.frames:
            mine = again.ids.get(frame.id)
            if mine is not None and frame.kind != _SESSION:
                again.differs(frame, "status", frame.status, again.call("frame", id=mine)["status"])
        return again.cells, again.differences
    finally:
        with suppress(KernelError):
            again.end()


def _in_order(record: TreeRecord) -> Iterator[tuple[RecordedFrame, RecordedEvent | tuple[int, RecordedCell]]]:
    """Yield changes and cells in their order: changes by number, and cells between them by time."""
    whole: list[tuple[float, int, RecordedFrame, RecordedEvent | tuple[int, RecordedCell]]] = []
    for frame in record.frames:
        whole += [(event.at, event.number, frame, event) for event in frame.events]
        # A cell that started at the same clock reading as a change started after it.
        whole += [(cell.started_at, 1 << 60, frame, (n, cell)) for n, cell in enumerate(frame.cells, 1)]
    for _, _, frame, what in sorted(whole, key=lambda one: one[:2]):
        yield frame, what
