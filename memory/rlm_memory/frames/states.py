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


class EdgeType(StrEnum):
    """Why a frame has an edge to another: it waits for that one, or its edge is a note."""

    BLOCKS = "blocks"
    """It waits until the other has completed, or is no longer wanted."""
    WAITS_FOR = "waits_for"
    """It waits for all children of the other, those too that are added later."""
    ON_FAILURE = "on_failure"
    """It waits until the other fails, and is invalidated if that completes."""
    FOUND_IN = "found_in"
    """It was found while somebody worked on the other."""
    SUPERSEDES = "supersedes"
    """It takes the place of the other."""


class Verb(StrEnum):
    """What takes a frame from one status to another."""

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
"""What a pop may lead to."""
OPEN = frozenset({_PLANNED, _RUNS, _BLOCKED})
"""Below a frame in one of these there may be new ones."""
CLOSED = frozenset({_COMPLETED, _FAILED, _BLOCKED, _INVALIDATED})
"""Below a frame in one of these nothing is handed out."""
ENDED_FOR_GOOD = frozenset({_COMPLETED, _FAILED})
"""Below a frame in one of these nothing is to be done, until it is reopened."""
WAITING_TYPES = frozenset({EdgeType.BLOCKS, EdgeType.WAITS_FOR, EdgeType.ON_FAILURE})
"""The edges for which a frame waits; the others are notes."""
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
"""From where each verb may start, and where it may lead."""

_ADVICE = {
    _PLANNED: "it has not started: push it first, or claim it in the queue",
    _RUNS: "it runs: pop it first",
    _COMPLETED: "it has ended: reopen it first",
    _FAILED: "it has ended: reopen it first",
    _BLOCKED: "reopen it, or push it to go on with it",
    _INVALIDATED: "reopen it first",
}
_ADVICE_FOR = {(Verb.START, _RUNS): "it runs: name it as the session to work in it, or pop it first"}
"""Where a verb needs another advice than the status alone."""


def resolves(edge: EdgeType, status: Status) -> bool:
    """Whether a frame with an edge to one of that status need not wait; not for edges that wait for children."""
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
