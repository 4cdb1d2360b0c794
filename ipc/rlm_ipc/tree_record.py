"""The record of a tree of frames: every goal with its result, what ran for it, and who changed it when.

Times are epoch seconds. Text from people, models and code is recorded unchanged.
"""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_record import RecordedCell, RecordedContext

WITHOUT_SESSION = " (its session has ended)"
"""Follows the name of a session whose frame is kept for the goals below it."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A change of a frame. ``number`` is its place among all changes.

    ``along`` names the frame whose change caused it; ``fork`` says that it was started in a session of its own;
    ``failed`` are the frames that ended with it.
    """

    number: int
    at: float
    author: str
    verb: str
    status: str = ""
    along: bool = False
    fork: bool = True
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """One frame. ``session`` is the name of the session that it runs in; ``cells`` are included if requested.

    A frame that stands for a session has the cells that ran there without a goal, and its ``contexts``.
    """

    id: str
    parent: str | None
    kind: str
    goal: str
    status: str
    author: str
    session: str | None
    policy: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    summary: str
    summary_by: str
    artifacts: tuple[str, ...]
    decisions: tuple[str, ...]
    handed_over: tuple[str, ...]
    log: str | None
    events: tuple[RecordedEvent, ...]
    cells: tuple[RecordedCell, ...] = ()
    contexts: tuple[RecordedContext, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeRecord:
    """A frame and everything below it, top first."""

    frame: str
    frames: tuple[RecordedFrame, ...]
