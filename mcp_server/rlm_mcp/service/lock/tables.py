"""The protocol of the lock as tables: the answer for each priority and role, and the errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault

TTL_SECONDS = 3600
"""How long an answer may be used without asking again, and how long an unused alias is kept."""
DIFF, MAP = "diff", "map"


class Priority(StrEnum):
    """How much of the lock a call wants."""

    P0 = "P0"
    """Everything that is needed to start."""
    P1 = "P1"
    """What has happened here, and how the project is now."""
    P2 = "P2"
    """Changes since this frame's last call."""
    P3 = "P3"
    """Counts."""


KEYS: Mapping[Priority, tuple[str, ...]] = {
    Priority.P0: ("project", "keyfiles", "rules"),
    Priority.P1: ("history", "project"),
    Priority.P2: (DIFF,),
    Priority.P3: ("project",),
}
"""The keys of the content, unless fields or a role say otherwise."""
ROLES: Mapping[str, tuple[str, ...]] = {
    "analyst": ("project", "keyfiles"),
    "planner": ("project", "rules"),
    "implementer": ("rules",),
    "reviewer": ("history", "rules"),
    "tester": ("keyfiles", "history"),
    "conductor": ("history",),
}
"""The fields that an agent of each role gets, unless it names others."""


class Trouble(StrEnum):
    """What may be wrong with a lock."""

    NOT_FOUND = "LOCK_NOT_FOUND"
    EXPIRED = "LOCK_EXPIRED"
    STALE = "LOCK_STALE"
    CONFLICT = "LOCK_CONFLICT"


@dataclass(frozen=True, slots=True)
class _Told:
    http_status: int
    action: str
    fields: Mapping[str, str]


_TOLD: Mapping[Trouble, _Told] = {
    Trouble.NOT_FOUND: _Told(404, "stop, and call with priority P0 first", {"verifiability": "NON-VERIFIABLE"}),
    Trouble.EXPIRED: _Told(410, "refresh by a call with priority P0", {}),
    Trouble.STALE: _Told(200, "warn, continue, and call with priority P2", {}),
    Trouble.CONFLICT: _Told(409, "report it to the conductor of the agents", {}),
}


def trouble(which: Trouble) -> JsonObject:
    """Return what an answer says of it: error, http_status, action."""
    row = _TOLD[which]
    return {"error": which.value, "http_status": row.http_status, "action": row.action, **row.fields}


def refusal(which: Trouble, message: str) -> ToolFault:
    """Return the fault of a call that gets nothing."""
    fields = trouble(which)
    del fields["error"]
    return ToolFault(which.value, message, **fields)


@dataclass(frozen=True, slots=True)
class Choice:
    """The content of a call's answer: its priority and its keys."""

    priority: Priority
    keys: tuple[str, ...]


def choose(
    asked: Priority | None, fields: Sequence[str] | None, role: str | None, *, seen: bool, mapped: bool
) -> Choice:
    """Decide what a call gets.

    Args:
        asked: the priority that the call names.
        fields: those that it names; they always win.
        role: narrows what there is by default.
        seen: whether this frame has already seen a version.
        mapped: whether the call asks for a map; without other requests it gets only that.
    """
    own = ROLES[role] if role is not None else None
    if asked is None and own == ("rules",) and fields is None:
        priority = Priority.P3
    else:
        priority = asked or (Priority.P2 if seen else Priority.P0)
    if fields is not None:
        return Choice(priority, tuple(dict.fromkeys(fields)))
    if mapped and asked is None and role is None:
        return Choice(priority, ())
    if own is not None and priority is not Priority.P2:
        return Choice(priority, own)
    return Choice(priority, KEYS[priority])


def forbidden(keys: Sequence[str], allowed: Collection[str]) -> list[str]:
    """List the keys that a policy does not allow; a difference reveals the project."""
    return [key for key in keys if {DIFF: "project"}.get(key, key) not in allowed]
