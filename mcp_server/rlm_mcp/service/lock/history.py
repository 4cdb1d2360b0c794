"""The history of a project: its goals, their authors and their results, from rows."""

from __future__ import annotations

from rlm_ipc.messages import JsonObject, plain
from rlm_lock.sections.history import History as Past
from rlm_lock.sections.history import PastSession, iso
from rlm_memory import locks
from rlm_memory.frames.rows import frame_id
from rlm_memory.locks import PastGoal
from rlm_memory.places import tree_of
from rlm_memory.store import Store

_MOST = 50
_LONGEST_TASK = 200
_RESULTS = {"completed": "DELIVER", "failed": "FAILED", "blocked": "FAILED", "in_progress": "ITERATION"}
"""What the protocol calls the state of a goal."""


class History:
    """The histories of all projects."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of_project(self, root: str) -> JsonObject:
        """Return the section: the latest goals of the repository, the newest first."""
        return plain(self.past(root))

    def past(self, root: str) -> Past:
        """Return the latest goals of the repository, the newest first."""
        return Past(tuple(map(_session, locks.past_goals(self._store, tree_of(root, ""), _MOST))))

    def of_frame(self, key: int) -> PastSession | None:
        """Return a frame's entry in the history, or None if it was never started."""
        found = locks.past_goal(self._store, key)
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
