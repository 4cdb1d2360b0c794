"""What becomes of a session that idles away, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_ipc.daemon_rows import NotKept
from rlm_mcp.service.tool_answers import moment
from rlm_memory import contexts, queries
from rlm_memory.frames import rows as frames
from rlm_memory.locks import is_section
from rlm_memory.sessions import Ending, How, SessionRow, Went
from rlm_memory.store import Store
from rlm_sandbox.policy import Policy

_MOST_TOLD = 10
_UNITS = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def rests_until(store: Store, session: int, policy: Policy, idled: float) -> float | None:
    """Until when a session is kept that idles away at ``idled``; None: until somebody ends it.

    It is kept as long as a goal is worked for in it, or for a time because its policy has it come back or because
    answers are awaited.
    """
    if frames.goals_in(store, session):
        return None
    back = policy.limits.rest_seconds if policy.reopen else 0.0
    answers = policy.limits.unanswered_seconds if queries.pending_ids(store, session) else 0.0
    return idled + max(back, answers)


def went(store: Store, row: SessionRow, idle: float, *, variables: bool) -> Went:
    """What is about to go with a session that expires after ``idle`` seconds."""
    texts = [text for text in contexts.of_session(store, row.key) if not is_section(text)]
    pending = queries.pending_ids(store, row.key)
    return Went(len(texts), sum(text.size for text in texts), len(pending), idle, variables)


def lost(resting: SessionRow | None, ending: Ending | None, *, variables_kept: bool) -> str:
    """What is said of the idling away of a session, or of the one before it of its name; empty if there is nothing.

    ``variables_kept`` says whether the policy of the resting one keeps its variables: their coming back tells itself.
    """
    if resting is not None:
        if variables_kept and resting.unsaved is None:
            return ""
        unused = f"the session was idle for {duration(resting.idle_seconds)}"
        idled = f"{unused} and was suspended at {moment(resting.last_used_at + resting.idle_seconds)}"
        why = "" if resting.unsaved is None else f" because they could not be saved ({resting.unsaved})"
        return f"{idled}: its variables are gone{why}; texts and queries are kept"
    if ending is None or ending.how is not How.EXPIRED or ending.went is None:
        return ""
    what = ending.went
    gone = [
        *([_counted(what.texts, "text") + f" ({what.size:,} bytes)"] if what.texts else []),
        *(["its variables"] if what.variables else []),
        *([_counted(what.queries, "unanswered query", "unanswered queries")] if what.queries else []),
    ]
    if not gone:
        return ""
    listed = " and ".join(filter(None, (", ".join(gone[:-1]), gone[-1])))
    unused = f"the session was idle for {duration(what.idle_seconds)}"
    return f"{unused} and expired at {moment(ending.at)}: {listed} are gone; load them again"


def as_saved(when: str, gone: Sequence[NotKept], later: int) -> str:
    """What is said of variables that have come back, as of when, and without which, each with the reason.

    ``later`` is how many cells ran after they were saved.
    """
    named = [f"{item.name}: {item.reason}" for item in gone[:_MOST_TOLD]]
    more = [f"and {len(gone) - _MOST_TOLD:,} more"] if len(gone) > _MOST_TOLD else []
    undone = f"; what {_counted(later, 'later cell')} did to them is lost" if later else ""
    without = f"; without {'; '.join(named + more)}" if gone else ""
    return f"variables are as they were saved at {when}{undone}{without}"


def duration(seconds: float) -> str:
    """Say how long that is, in the largest unit of which it is at least one."""
    size, unit = next((found for found in _UNITS if seconds >= found[0]), _UNITS[-1])
    amount = f"{round(seconds / size, 1):g}"
    return f"{amount} {unit}{'' if amount == '1' else 's'}"


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
