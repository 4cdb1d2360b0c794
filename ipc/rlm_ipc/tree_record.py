"""The record of a tree of frames: every goal with what came of it, what ran for it, and who changed it when.

Times are epoch seconds. What people, models and code have said stands in it as they said it.
"""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_record import RecordedCell, RecordedContext


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A change of a frame. ``number`` is its place among all changes.

    ``along`` tells that another frame took it along; ``fork`` that it was started in a session of its own; ``failed``
    are the frames that its end took along.
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
    """One frame. ``session`` is the name of the one that it runs in; ``cells`` are there if they were asked for.

    A frame that stands for a session has the cells that were run there for no goal, and its ``contexts``.
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
    """A frame and all below it, the highest first."""

    frame: str
    frames: tuple[RecordedFrame, ...]
