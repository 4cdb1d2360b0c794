"""The log of a frame: Markdown for people below front matter in YAML for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from rlm_ipc.session_record import SessionRecord
from rlm_ipc.tree_record import RecordedFrame


def as_log(about: RecordedFrame, calls: Sequence[tuple[float, str]], record: SessionRecord | None) -> str:
    """Return the log of a frame; ``calls`` are those of tools, with their times.

    ``record`` has the frame's cells; None: they have gone with their session.
    """
    import yaml

    from rlm_mcp.formats.notebook import cells_as_markdown, fenced  # loads nbformat, which takes 0.2 s

    cells = record.cells if record is not None else ()
    times = about.started_at, about.ended_at
    front = {
        "frame": about.id,
        "goal": about.goal,
        "status": about.status,
        "parent": about.parent,
        "session": (record.session or None) if record is not None else None,
        "artifacts": list(about.artifacts),
        "decisions": list(about.decisions),
        "handed_over": list(about.handed_over),
        "started_at": _moment(times[0]),
        "ended_at": _moment(times[1]),
        "seconds": None if times[0] is None or times[1] is None else round(times[1] - times[0], 3),
        "cells": len(cells),
        "failed_cells": sum(cell.status != "ok" for cell in cells),
        "tool_calls": sum(cell.author == "agent" for cell in cells) + len(calls),
        "summary_by": about.summary_by,
    }
    told = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    events = [f"- {_moment(event.at)} {_line(event.verb)} by {_line(event.author)}" for event in about.events]
    heading = f"# Frame {about.id}: {_plain(_line(about.goal))}"
    summary = fenced(about.summary or "(no summary)", "text")  # an extract has what cells wrote
    parts = [f"---\n{told}---", heading, summary, "\n".join(events)]
    if calls:
        parts += ["## Calls of tools", fenced("\n".join(f"{_moment(at)} {_line(call)}" for at, call in calls), "text")]
    return "\n\n".join([*parts, *(cells_as_markdown(record) if record is not None else ())]) + "\n"


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _line(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """Escape what would load a picture, link or be HTML where somebody looks at the Markdown."""
    return re.sub(r"[\\<\[`&]", r"\\\g<0>", text)
