"""The log of a frame: Markdown for people below front matter in YAML for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml

from rlm_ipc.session_record import SessionRecord

__all__ = ["FrameLog", "as_log"]


@dataclass(frozen=True)
class FrameLog:
    """What is known of a frame besides its cells. Times are epoch seconds.

    Events are (time, author, verb); ``calls`` are those of tools, as (time, text).
    """

    frame: str
    goal: str
    status: str
    parent: str | None
    artifacts: Sequence[str]
    decisions: Sequence[str]
    handed_over: Sequence[str]
    started_at: float | None
    ended_at: float | None
    summary: str
    summary_by: str
    events: Sequence[tuple[float, str, str]]
    calls: Sequence[tuple[float, str]] = ()


def as_log(about: FrameLog, record: SessionRecord | None) -> str:
    """Return the log. ``record`` has the frame's cells; None: they have gone with their session."""
    from rlm_mcp.formats.notebook import cells_as_markdown, fenced  # loads nbformat, which takes 0.2 s

    cells = record.cells if record is not None else ()
    times = about.started_at, about.ended_at
    front = {
        "frame": about.frame,
        "goal": about.goal,
        "status": about.status,
        "parent": about.parent,
        "session": record.session if record is not None else None,
        "artifacts": list(about.artifacts),
        "decisions": list(about.decisions),
        "handed_over": list(about.handed_over),
        "started_at": _moment(times[0]),
        "ended_at": _moment(times[1]),
        "seconds": None if times[0] is None or times[1] is None else round(times[1] - times[0], 3),
        "cells": len(cells),
        "failed_cells": sum(cell.status != "ok" for cell in cells),
        "tool_calls": sum(cell.author == "agent" for cell in cells) + len(about.calls),
        "summary_by": about.summary_by,
    }
    told = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    events = [f"- {_moment(at)} {_line(verb)} by {_line(author)}" for at, author, verb in about.events]
    quoted = "\n".join(f"> {line}" for line in (about.summary or "(no summary)").splitlines())
    heading = f"# Frame {about.frame}: {_line(about.goal)}"
    parts = [f"---\n{told}---", heading, quoted, "\n".join(events)]
    if about.calls:
        parts += [
            "## Calls of tools",
            fenced("\n".join(f"{_moment(at)} {_line(said)}" for at, said in about.calls), "text"),
        ]
    return "\n\n".join([*parts, *(cells_as_markdown(record) if record is not None else ())]) + "\n"


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _line(said: str) -> str:
    return " ".join(said.split())
