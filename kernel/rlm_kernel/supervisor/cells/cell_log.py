"""The cells whose results no caller of the supervisor gets: those of Jupyter clients, and those whose caller has gone.

The daemon keeps a session's journal, and sees the cells that it runs itself. The supervisor reports the others to it in
events, and keeps the latest for a daemon that connects later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from rlm_ipc.displays import kept
from rlm_ipc.json_lines import TERMINAL
from rlm_ipc.jupyter_wire import object_in
from rlm_ipc.kernel_reports import CellNote
from rlm_ipc.messages import JsonObject
from rlm_ipc.worker_protocol import CellStatus
from rlm_kernel.supervisor.cells.cell_request import CellRequest

LONGEST_CODE = 65_536
LONGEST_OUTPUT = 16_384
MOST_CHARS = 1 << 20
"""Maximum characters of code and output that are kept for one kernel."""


class CellLog:
    """The latest such cells of one kernel; ``emit`` reports each one to the present listeners.

    ``next_serial`` returns a number that no supervisor has returned before: the daemon gets each serial once.
    """

    def __init__(self, emit: Callable[[CellNote], None], next_serial: Callable[[], int]) -> None:
        self._emit, self._next_serial = emit, next_serial
        self._notes: deque[CellNote] = deque()
        self._chars = 0

    def note(self, request: CellRequest, began: float | None) -> None:
        """Record a cell that has ended. ``began`` is its start in epoch seconds, or None if it never began."""
        content = shown_content(request)
        if began is None or content is None:
            return
        code, ended = str(content["code"]), time.time()
        note = CellNote(
            serial=self._next_serial(),
            author=author_of(request),
            attachment=request.attachment,
            code=code[:LONGEST_CODE],
            started=began,
            ended=ended,
            status=CellStatus.ABORTED if request.reply is None else request.reply.status,
            output=_output(request)[:LONGEST_OUTPUT],
            queries=tuple(request.queries),
            displays=tuple(kept(request.data)),
            count=None if request.reply is None else request.reply.execution_count,
            value=(request.result or "")[:LONGEST_OUTPUT],
            traceback=_within(request.error.traceback if request.error is not None else ()),
        )
        self._notes.append(note)
        self._chars += _chars(note)
        while self._chars > MOST_CHARS:
            self._chars -= _chars(self._notes.popleft())
        self._emit(note)

    def after(self, serial: int) -> list[CellNote]:
        """Return the recorded cells after that one, oldest first."""
        return [note for note in self._notes if note.serial > serial]


def author_of(request: CellRequest) -> str:
    """Return who sent a cell: an ``agent``, or a developer's ``notebook``. The attachment marks a terminal."""
    return "notebook" if request.direct is None else "agent"


def shown_author(request: CellRequest) -> str:
    """Return who sent a cell, as people see it: an ``agent``, a ``notebook`` or a person at a ``terminal``."""
    return TERMINAL if request.attachment == TERMINAL else author_of(request)


def content_of(request: CellRequest) -> JsonObject | None:
    """Return the content of an ``execute_request``, for a caller's cell only its code; None for anything else."""
    if request.kind != "execute_request":
        return None
    if request.cell is not None:
        return {"code": request.cell.code}
    content = object_in(request.parts, 5)
    return content if isinstance(content.get("code"), str) else None


def shown_content(request: CellRequest) -> JsonObject | None:
    """Return the content of a cell, unless the client asked to run it silently."""
    content = content_of(request)
    return None if content is None or content.get("silent") else content


def _output(request: CellRequest) -> str:
    """Return the cell's text output, the text of its value, and the last line of its error."""
    output, error = request.output, request.error
    parts = [output.text("stdout"), output.text("stderr")] if output is not None else []
    parts.append(request.result or "")
    if error is not None:
        parts.append(f"{error.ename}: {error.evalue}")
    return "\n".join(part.rstrip("\n") for part in parts if part)


def _within(lines: Sequence[str]) -> tuple[str, ...]:
    """Return as many lines of a traceback as there is room for, from the end, because the last ones say most."""
    kept, left = list[str](), LONGEST_OUTPUT
    for line in reversed(lines):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def _chars(note: CellNote) -> int:
    shown = sum(len(form) for display in note.displays for form in display.values())
    return len(note.code) + len(note.output) + len(note.value) + sum(map(len, note.traceback)) + shown
