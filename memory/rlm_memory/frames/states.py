"""Kinds and statuses of frames, and the steps between statuses in one table.

    planned ──start──▶ in_progress ──pop──▶ completed | failed | blocked
       ▲  ◀───undo───────┘    │                       │
       │                      └─invalidate─┐          │
       ├──────────reopen──── invalidated ◀─┘          │
       └──────────reopen──────────────────────────────┘

Callers set ``blocked`` for a frame that cannot continue. That a frame waits for others is never a status: it is derived
from the edges of the frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rlm_memory.errors import FrameStatusRefused


class Kind(StrEnum):
    """The kind of a frame. A frame of kind ``session`` stands for the session itself and is never popped."""

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


class EdgeType(StrEnum):
    """Why a frame has an edge to another: it waits for that one, or its edge is a note."""

    BLOCKS = "blocks"
    """It waits until the other has completed, or is no longer wanted."""
    WAITS_FOR = "waits_for"
    """It waits for all children of the other, including those added later."""
    ON_FAILURE = "on_failure"
    """It waits until the other fails, and is invalidated if the other completes."""
    FOUND_IN = "found_in"
    """It was found during work on the other."""
    SUPERSEDES = "supersedes"
    """It replaces the other."""


class Verb(StrEnum):
    """An action that changes the status of a frame."""

    START = "start"
    UNDO = "undo"
    POP = "pop"
    END_SESSION = "end_session"
    RECORD = "record"
    INVALIDATE = "invalidate"
    REOPEN = "reopen"


_PLANNED, _RUNS = Status.PLANNED, Status.IN_PROGRESS
_COMPLETED, _FAILED, _BLOCKED, _INVALIDATED = Status.COMPLETED, Status.FAILED, Status.BLOCKED, Status.INVALIDATED

OUTCOMES = frozenset({_COMPLETED, _FAILED, _BLOCKED})
"""Statuses that a pop may set."""
OPEN = frozenset({_PLANNED, _RUNS, _BLOCKED})
"""Statuses of a frame below which new frames may be added."""
NO_TASKS_BELOW = frozenset({_COMPLETED, _FAILED, _BLOCKED, _INVALIDATED})
"""Statuses of a frame below which no task is handed out."""
ENDED_FOR_GOOD = frozenset({_COMPLETED, _FAILED})
"""Statuses of a frame below which nothing is to be done until it is reopened."""
WAITING_TYPES = frozenset({EdgeType.BLOCKS, EdgeType.WAITS_FOR, EdgeType.ON_FAILURE})
"""The types of edges that make a frame wait; the others are notes."""
_RESOLVED_BY: Mapping[EdgeType, frozenset[Status]] = {
    EdgeType.BLOCKS: frozenset({_COMPLETED, _INVALIDATED}),
    EdgeType.ON_FAILURE: frozenset({_FAILED}),
}

STEPS: Mapping[Verb, Mapping[Status, frozenset[Status]]] = {
    Verb.START: {_PLANNED: frozenset({_RUNS}), _BLOCKED: frozenset({_RUNS})},
    Verb.UNDO: {_RUNS: frozenset({_PLANNED})},
    Verb.POP: {_RUNS: OUTCOMES},
    Verb.END_SESSION: {_RUNS: frozenset({_BLOCKED})},
    Verb.RECORD: dict.fromkeys((_PLANNED, _RUNS), frozenset({_COMPLETED, _BLOCKED, _INVALIDATED})),
    Verb.INVALIDATE: dict.fromkeys((_PLANNED, _RUNS, _BLOCKED), frozenset({_INVALIDATED})),
    Verb.REOPEN: dict.fromkeys((_COMPLETED, _FAILED, _BLOCKED, _INVALIDATED), frozenset({_PLANNED})),
}
"""The statuses from which each verb may start, and to which it may lead."""

_ADVICE = {
    _PLANNED: "it has not started: push it first, or claim it in the queue",
    _RUNS: "it runs: pop it first",
    _COMPLETED: "it has ended: reopen it first",
    _FAILED: "it has ended: reopen it first",
    _BLOCKED: "reopen it, or push it to continue with it",
    _INVALIDATED: "reopen it first",
}
_ADVICE_FOR = {(Verb.START, _RUNS): "it runs: name it as the session to work in it, or pop it first"}
"""Advice for a verb where the status alone is not enough to choose it."""


def resolves(edge: EdgeType, status: Status) -> bool:
    """Whether an edge to a frame of that status no longer has to wait. Not for edges that wait for children."""
    return edge not in WAITING_TYPES or status in _RESOLVED_BY[edge]


def check_step(frame: str, verb: Verb, current: Status, wanted: Status) -> None:
    """Refuse a step that the table does not have; ``frame`` is the id to name.

    Raises:
        FrameStatusRefused: the verb does not start from ``current``, or does not lead to ``wanted``.
    """
    led = STEPS[verb].get(current)
    if led is None:
        raise FrameStatusRefused(frame, current, verb, _ADVICE_FOR.get((verb, current), _ADVICE[current]))
    if wanted not in led:
        raise FrameStatusRefused(frame, current, f"{verb} as {wanted}", f"use one of: {', '.join(sorted(led))}")
