"""The notice about the story and the epic above an ended frame."""

from __future__ import annotations

from rlm_ipc.messages import JsonObject
from rlm_memory.work.handoffs import Boundaries


def told_of(done: Boundaries) -> JsonObject:
    """Return the notice if everything in the story or epic above has ended: a story never completes itself."""
    said: JsonObject = {}
    if done.story_completed or done.epic_completed:
        said = {"story_completed": done.story_completed, "epic_completed": done.epic_completed}
        said["next"] = f"all below {done.story or done.epic} has completed; pop it"
    elif done.failed:
        following = "everything has ended, but not everything has completed; reopen what failed, or pop the story"
        said = {"story_completed": False, "next": following}
    return said
