"""Kinds and statuses of frames, and the steps between statuses in one table.

    planned ──start──▶ in_progress ──pop──▶ completed | failed | blocked
       ▲  ◀───undo───────┘    │                       │
       │                      └─invalidate─┐          │
       ├──────────reopen──── invalidated ◀─┘          │
       └──────────reopen──────────────────────────────┘

``blocked`` is what somebody says of a frame that cannot go on. That a frame waits for others is never a status: it is
derived from what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rlm_memory.errors import FrameStatusRefused

__all__ = ["OPEN", "OUTCOMES", "STEPS", "Kind", "Status", "Verb", "check_step"]


class Kind(StrEnum):
    """What a frame is. That of a session stands for the session itself and is never popped."""

    SESSION = "session"
    TASK = "task"
    STORY = "story"
    EPIC = "epic"


class Status(StrEnum):
    """Where a frame is in its life."""

    PLANNED = "planned"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    INVALIDATED = "invalidated"


class Verb(StrEnum):
    """What takes a frame from one status to another."""

    START = "start"
    UNDO = "undo"
    POP = "pop"
    END_SESSION = "end_session"
    INVALIDATE = "invalidate"
    REOPEN = "reopen"


_PLANNED, _RUNS = Status.PLANNED, Status.IN_PROGRESS
_COMPLETED, _FAILED, _BLOCKED, _INVALIDATED = Status.COMPLETED, Status.FAILED, Status.BLOCKED, Status.INVALIDATED

OUTCOMES = frozenset({_COMPLETED, _FAILED, _BLOCKED})
"""What a pop may lead to."""
OPEN = frozenset({_PLANNED, _RUNS, _BLOCKED})
"""Below a frame in one of these there may be new ones."""

STEPS: Mapping[Verb, Mapping[Status, frozenset[Status]]] = {
    Verb.START: {_PLANNED: frozenset({_RUNS}), _BLOCKED: frozenset({_RUNS})},
    Verb.UNDO: {_RUNS: frozenset({_PLANNED})},
    Verb.POP: {_RUNS: OUTCOMES},
    Verb.END_SESSION: {_RUNS: frozenset({_BLOCKED})},
    Verb.INVALIDATE: dict.fromkeys((_PLANNED, _RUNS, _BLOCKED), frozenset({_INVALIDATED})),
    Verb.REOPEN: dict.fromkeys((_COMPLETED, _FAILED, _BLOCKED, _INVALIDATED), frozenset({_PLANNED})),
}
"""From where each verb may start, and where it may lead."""

_ADVICE = {
    _PLANNED: "it has not started: push it first",
    _RUNS: "it runs: pop it first",
    _COMPLETED: "it has ended: reopen it first",
    _FAILED: "it has ended: reopen it first",
    _BLOCKED: "reopen it, or push it to go on with it",
    _INVALIDATED: "reopen it first",
}


def check_step(frame: str, verb: Verb, current: Status, wanted: Status) -> None:
    """Refuse a step that the table does not have; ``frame`` is the id to name.

    Raises:
        FrameStatusRefused: the verb does not start from ``current``, or does not lead to ``wanted``.
    """
    led = STEPS[verb].get(current)
    if led is None:
        raise FrameStatusRefused(frame, current, verb, _ADVICE[current])
    if wanted not in led:
        raise FrameStatusRefused(frame, current, f"{verb} as {wanted}", f"use one of: {', '.join(sorted(led))}")
