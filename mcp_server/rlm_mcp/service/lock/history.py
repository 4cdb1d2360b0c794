"""The history of a project: its goals, their authors and their results, from rows."""

from __future__ import annotations

from rlm_lock.sections.history import History, PastSession, iso
from rlm_memory import locks
from rlm_memory.frames.rows import frame_id
from rlm_memory.locks import PastGoal
from rlm_memory.places import tree_of
from rlm_memory.store import Store

_MOST = 50
_LONGEST_TASK = 200
_RESULTS = {"completed": "DELIVER", "failed": "FAILED", "blocked": "FAILED", "in_progress": "ITERATION"}
"""What the protocol calls the state of a goal."""


def past(store: Store, root: str) -> History:
    """Return the latest goals of a project's repository, the newest first."""
    return History(tuple(map(_session, locks.past_goals(store, tree_of(root, ""), _MOST))))


def past_of(store: Store, frame: int) -> PastSession | None:
    """Return a frame's entry in the history, or None if it was never started."""
    found = locks.past_goal(store, frame)
    return None if found is None else _session(found)


def _session(goal: PastGoal) -> PastSession:
    return PastSession(
        session_id=frame_id(goal.key),
        task=goal.goal[:_LONGEST_TASK],
        start=iso(goal.started_at),
        end=iso(goal.ended_at),
        iteration=goal.attempts,
        agents_used=None if goal.holder is None else (goal.holder,),
        result=_RESULTS.get(goal.status),
    )
