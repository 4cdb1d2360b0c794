"""A task as a tracker's file has it, in our words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject

State = Literal["open", "completed", "blocked", "invalidated"]
OPEN: State = "open"
"""Planned or worked on: who works on a task of another tracker has no lease here."""


class FileFault(Exception):
    """The file cannot be read as one of this tracker; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """One task. ``alias`` is its name in the file, ``parent`` and the targets of ``edges`` are such names, too.

    ``data`` is all that the file says of it, in the order in which it says that; ``why`` belongs to what has ended.
    """

    alias: str
    goal: str
    kind: Literal["task", "story", "epic"] = "task"
    type: str = "feature"
    priority: int = 500
    state: State = OPEN
    why: str = ""
    description: str = ""
    acceptance: str = ""
    parent: str | None = None
    edges: Sequence[tuple[str, str]] = ()
    data: JsonObject = field(default_factory=dict)


def joined(data: JsonObject, *names: str) -> str:
    """Return these fields of a task as one text: each is a paragraph, and empty ones are left out."""
    return "\n\n".join(text for name in names if (text := str(data.get(name) or "").strip()))


class Tracker(Protocol):
    """What each format can do."""

    def read(self, text: str) -> list[Tracked]:
        """Return the tasks of a file, in its order; raises FileFault."""

    def again(self, data: JsonObject, alias: str) -> Tracked:
        """Return the task that the data of an earlier `read` stand for."""

    def changed(self, data: JsonObject, ours: Tracked, base: Tracked, now: float) -> JsonObject:
        """Return the data with what differs between a task here and what they say; the rest stays."""

    def new(self, ours: Tracked, taken: Mapping[str, JsonObject], frame: str, now: float) -> tuple[str, JsonObject]:
        """Return name and data for a task that the file does not have yet."""

    def write(self, tasks: Sequence[tuple[str, JsonObject]]) -> str:
        """Return the file of these tasks, which have their names and data."""
