"""What is said of the idling away of a session."""

from __future__ import annotations

from rlm_memory.sessions import Ending, How, SessionRow

__all__ = ["lost"]


def lost(resting: SessionRow | None, ending: Ending | None) -> str:
    """What is said of the idling away of a session, or of the one before it of its name; empty if there is nothing.

    One that comes back with its variables tells that itself.
    """
    if resting is not None:
        said = f"the session was not used for {resting.idle_seconds:,.0f} s: its variables went, texts and queries stay"
        return "" if resting.kept_until is None else said
    went = None if ending is None or ending.how is not How.EXPIRED else ending.went
    if went is None:
        return ""
    gone = [
        *([_counted(went.texts, "text") + f" ({went.size:,} bytes)"] if went.texts else []),
        *(["its variables"] if went.variables else []),
        *([_counted(went.queries, "unanswered query", "unanswered queries")] if went.queries else []),
    ]
    if not gone:
        return ""
    listed = " and ".join(filter(None, (", ".join(gone[:-1]), gone[-1])))
    return f"the session was not used for {went.idle_seconds:,.0f} s and expired: {listed} went; load them again"


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
