"""What is said of the idling away of a session."""

from __future__ import annotations

from rlm_mcp.service.tool_answers import moment
from rlm_memory.sessions import Ending, How, SessionRow

__all__ = ["duration", "lost"]

_UNITS = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def lost(resting: SessionRow | None, ending: Ending | None, *, variables_kept: bool) -> str:
    """What is said of the idling away of a session, or of the one before it of its name; empty if there is nothing.

    ``variables_kept`` says whether the policy of the resting one keeps its variables: their coming back tells itself.
    """
    if resting is not None:
        if variables_kept and resting.unsaved is None:
            return ""
        unused = f"the session was not used for {duration(resting.idle_seconds)}"
        idled = f"{unused} and rests since {moment(resting.last_used_at + resting.idle_seconds)}"
        why = "" if resting.unsaved is None else f" because they could not be saved ({resting.unsaved})"
        return f"{idled}: its variables went{why}, texts and queries stay"
    went = None if ending is None or ending.how is not How.EXPIRED else ending.went
    if ending is None or went is None:
        return ""
    gone = [
        *([_counted(went.texts, "text") + f" ({went.size:,} bytes)"] if went.texts else []),
        *(["its variables"] if went.variables else []),
        *([_counted(went.queries, "unanswered query", "unanswered queries")] if went.queries else []),
    ]
    if not gone:
        return ""
    listed = " and ".join(filter(None, (", ".join(gone[:-1]), gone[-1])))
    unused = f"the session was not used for {duration(went.idle_seconds)}"
    return f"{unused} and expired at {moment(ending.at)}: {listed} went; load them again"


def duration(seconds: float) -> str:
    """Say how long that is, in the largest unit of which it is at least one."""
    size, unit = next((found for found in _UNITS if seconds >= found[0]), _UNITS[-1])
    amount = f"{round(seconds / size, 1):g}"
    return f"{amount} {unit}{'' if amount == '1' else 's'}"


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
