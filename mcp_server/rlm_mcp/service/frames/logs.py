"""The files of a frame: a Markdown log, and an executed notebook of its own cells.

Each is written under another name and then renamed, so that it is complete or unchanged.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rlm_ipc.session_record import SessionRecord
from rlm_mcp.formats.frame_log import as_log
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.records import record_of_frame
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.record import cell_of, query_of
from rlm_mcp.service.sessions.sessions import Clock
from rlm_memory import journal, queries, sessions
from rlm_memory.errors import SessionEnded
from rlm_memory.frames import transcript
from rlm_memory.frames.rows import FrameRow
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.store import Store
from rlm_memory.transcripts.messages import called

_SPILLED = "cells.jsonl"
_BEGAN = "began"


class FrameLogs:
    """The files of frames, one folder for each."""

    def __init__(self, store: Store, cells: Journal, clock: Clock, folder: Path) -> None:
        self._store, self._cells, self._clock, self._folder = store, cells, clock, folder

    def log(self, frame: str) -> Path:
        """Return the path of a frame's log."""
        return self._folder / frame / f"frame-{frame}.md"

    def notebook(self, frame: str) -> Path:
        """Return the path of a frame's notebook."""
        return self._folder / frame / f"frame-{frame}.ipynb"

    def written(self, frame: FrameRow) -> list[str]:
        """Return which files of an ended frame exist: ``md``, the log, and ``ipynb``, the notebook."""
        files = {"md": self.log(frame.id), "ipynb": self.notebook(frame.id)}
        return [] if frame.log is None else [kind for kind, file in files.items() if file.exists()]

    async def read(self, frame: FrameRow, kind: str = "md") -> str:
        """Return the text of a frame's file; raises ToolFault if it was not written."""
        if kind not in self.written(frame):
            what = "notebook" if kind == "ipynb" else "log"
            hint = "pop it; that writes its log, and a notebook if it has cells"
            raise ToolFault("no_log", f"frame {frame.id} is {frame.status} and has no {what}", hint)
        file = self.notebook(frame.id) if kind == "ipynb" else self.log(frame.id)
        return await asyncio.to_thread(file.read_text, encoding="utf-8", errors="replace")

    def began(self, frame: str) -> Path:
        """Return the path of the marker: a frame's files are newer than it."""
        return self._folder / frame / _BEGAN

    def begin(self, frame: str) -> None:
        """Write the marker of a frame that starts now."""
        marker = self.began(frame)
        marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker.touch(mode=0o600)

    async def write_log(self, frame: FrameRow, session: int | None) -> str:
        """Write the log; an existing one is kept if the session's journal was deleted."""
        target, cells = self.log(frame.id), await self.cells(frame)
        record = self._record(frame, session, cells)
        if record is None and target.exists():
            return str(target)
        about, calls = record_of_frame(self._store, frame), calls_told(self._store, frame)

        def write() -> None:
            known = {cell.number for cell in self._spilled(frame)}
            # Turns come from the file if the journal was deleted with its session.
            self._append(frame, [cell for cell in cells if cell.number not in known])
            _write(target, as_log(about, calls, record))

        await asyncio.to_thread(write)
        return str(target)

    async def write_notebook(self, frame: FrameRow, session: int) -> None:
        """Write the notebook; an existing one is kept if the session's journal was deleted."""
        record = self._record(frame, session, await self.cells(frame))
        if record is not None:
            await asyncio.to_thread(_write_notebook, self.notebook(frame.id), record, self._clock())

    def spill(self, frame: FrameRow) -> None:
        """Move a running frame's cells that are beyond its bound from the journal to its file."""
        over = journal.beyond(self._store, frame.key)
        if over:
            self._append(frame, over)
            journal.let_go(self._store, over)

    def forget(self, frames: Sequence[str]) -> None:
        """Remove all files of frames."""
        for frame in frames:
            shutil.rmtree(self._folder / frame, ignore_errors=True)

    async def cells(self, frame: FrameRow) -> list[JournalEntry]:
        """List the frame's cells, the oldest first, those of its file included."""
        self._cells.flush()
        return await asyncio.to_thread(self._kept, frame)

    def _kept(self, frame: FrameRow) -> list[JournalEntry]:
        ran = journal.of_frame(self._store, frame.key)  # before the file: a cell is deleted here only once it is there
        found = {cell.number: cell for cell in (*self._spilled(frame), *ran)}
        return [found[number] for number in sorted(found)]

    def _append(self, frame: FrameRow, cells: Sequence[JournalEntry]) -> None:
        """Add cells to the frame's file."""
        if not cells:
            return
        path, lines = self._folder / frame.id / _SPILLED, [json.dumps(asdict(cell)) for cell in cells]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(["", *lines, ""]))  # the last line may be incomplete: keep it separate
            file.flush()
            os.fsync(file.fileno())

    def _spilled(self, frame: FrameRow) -> list[JournalEntry]:
        path = self._folder / frame.id / _SPILLED
        if not path.exists():
            return []
        lines = [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line is not None]

    def _record(self, frame: FrameRow, session: int | None, ran: Sequence[JournalEntry]) -> SessionRecord | None:
        """Return the record for the log; None if the session has ended, and its journal with it."""
        name, policy = "", ""
        if session is not None:
            try:
                row = sessions.get(self._store, sessions.name_of(self._store, session))
            except SessionEnded:
                return None
            name, policy = row.id, row.policy
        asked = {} if session is None else {q.id: query_of(q) for q in queries.of_session(self._store, session)}
        cells = tuple(cell_of(cell, asked) for cell in ran)
        return SessionRecord(name, policy, frame.status.value, cells=cells)


def calls_told(store: Store, frame: FrameRow) -> list[tuple[float, str]]:
    """List the tool calls for a frame's log, with their times."""
    return [(call.at, called(call.tool, call.arguments)) for call in transcript.calls_of(store, frame.key)]


def _write_notebook(target: Path, record: SessionRecord, now: float) -> None:
    from rlm_mcp.formats.notebook import as_text

    _write(target, as_text(record, now))


def _write(target: Path, content: str) -> None:
    """Write a file atomically. Concurrent writers use different temporary names."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(target)


def _parsed(line: str) -> JournalEntry | None:
    """Return a cell of the file. The last line may be incomplete; then the journal has the cell."""
    try:
        values = json.loads(line)
    except ValueError:
        return None
    lists = {name: tuple(values.get(name, ())) for name in ("queries", "displays", "traceback")}
    return JournalEntry(**{**values, **lists, "author": Author(values["author"])})
