"""The section `history`: which goals were worked on, and one line for each recorded version."""

from __future__ import annotations

import datetime as dt

from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastSession:
    """One line of the history; unknown values are None.

    Attributes:
        session_id: of the frame.
        task: its goal.
        start, end: as ISO 8601 in UTC.
        iteration: which attempt it was.
        agents_used: the names of the clients.
        result: DELIVER, FAILED or ITERATION.
    """

    session_id: str
    task: str | None = None
    start: str | None = None
    end: str | None = None
    iteration: int | None = None
    agents_used: tuple[str, ...] | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The section `history`, newest first."""

    sessions: tuple[PastSession, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version of a project, for the log."""

    version: int
    tree: str
    created: float
    files: int


def version_line(line: VersionLine) -> str:
    """Return a version as a line of `context.log`; the same version is the same line."""
    return f"{iso(line.created) or '-'} version {line.version} tree {line.tree} files {line.files}"


def iso(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 to the second, in UTC; None if it is unknown, or no calendar has it."""
    if seconds is None:
        return None
    try:
        return f"{dt.datetime.fromtimestamp(int(seconds), dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None
