"""Cells of which no caller of the host hears: those of Jupyter clients, and those whose caller has gone.

The daemon keeps a journal of a session. It sees the cells that it runs itself; of the others the host tells it by an
event, and keeps the latest for a daemon that comes later.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rlm_kernel.displays import kept
from rlm_kernel.host.request import Request
from rlm_kernel.host.signing import DELIMITER

LONGEST_CODE = 65_536
LONGEST_OUTPUT = 16_384
MOST_CHARS = 1 << 20
"""Characters of code and output that are kept of one kernel."""

Note = dict[str, Any]


class CellLog:
    """The latest such cells of one kernel; ``emit`` tells whoever listens now."""

    def __init__(self, emit: Callable[[Note], None]) -> None:
        self._emit = emit
        self._serials = itertools.count(1)
        self._notes: deque[Note] = deque()
        self._chars = 0

    def note(self, request: Request, began: float | None) -> None:
        """Take note of a cell that has ended; ``began`` is when, in epoch seconds, None if it never did."""
        content = shown_content(request)
        if began is None or content is None:
            return
        code, ended = str(content["code"]), time.time()
        note = {
            "serial": next(self._serials),
            "author": author_of(request),
            "door": request.door,
            "code": code[:LONGEST_CODE],
            "started": began,
            "ended": ended,
            "status": str((request.reply or {}).get("status", "aborted"))[:20],
            "output": _output(request)[:LONGEST_OUTPUT],
            "queries": [query["id"] for query in request.queries],
            "displays": kept(request.data),
        }
        self._notes.append(note)
        self._chars += _chars(note)
        while self._chars > MOST_CHARS:
            self._chars -= _chars(self._notes.popleft())
        self._emit({"event": "cell", **note})

    def after(self, serial: int) -> list[Note]:
        """What is kept of the cells after that one, the oldest first."""
        return [note for note in self._notes if note["serial"] > serial]


def author_of(request: Request) -> str:
    """Who asked for a cell: an ``agent``, or a person's ``notebook``."""
    return "notebook" if request.direct is None else "agent"


def content_of(request: Request) -> dict[str, Any] | None:
    """The content of an ``execute_request``; None for anything else."""
    if request.kind != "execute_request":
        return None
    try:
        content = request.cell or json.loads(request.frames[request.frames.index(DELIMITER) + 5])
    except (ValueError, LookupError, RecursionError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("code"), str) else None


def shown_content(request: Request) -> dict[str, Any] | None:
    """The content of a cell that the person meant to see."""
    content = content_of(request)
    return None if content is None or content.get("silent") else content


def _output(request: Request) -> str:
    """What the cell wrote, the text of its value, and the last line of its error."""
    output, reply = request.output, request.reply or {}
    parts = [output.text("stdout"), output.text("stderr")] if output is not None else []
    parts.append(request.result or "")
    if reply.get("status") == "error":
        parts.append(f"{reply.get('ename')}: {reply.get('evalue')}")
    return "\n".join(part.rstrip("\n") for part in parts if part)


def _chars(note: Note) -> int:
    shown = sum(len(form) for display in note["displays"] for form in display.values())
    return len(note["code"]) + len(note["output"]) + shown
