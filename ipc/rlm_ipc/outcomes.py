"""How a cell ended, and what its session lost: the fields that code decides by.

The supervisor fills them in from what it has done and seen itself. Nothing here is read from the name or the text of an
exception, because session code may define a class of any name and raise it with any text. Text for people and models is
made from these fields where it is shown.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Ended", "Loss", "Lost"]


class Ended(enum.StrEnum):
    """What ended a cell."""

    BY_ITSELF = "by_itself"
    """Its code ran to the end, or raised."""
    INTERRUPTED = "interrupted"
    """A caller had it ended, maybe before it began."""
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    THREAD_LIMIT = "thread_limit"
    PROCESS_LIMIT = "process_limit"
    SCRATCH_LIMIT = "scratch_limit"
    QUERY_LIMIT = "query_limit"
    """The prompts that wait for answers were too long together."""
    WORKER_DIED = "worker_died"
    """The worker ended, in this cell or before it; `Loss` says what that has cost."""
    EXPELLED = "expelled"
    """The session was ended for what its code has tried."""
    FAULT = "fault"
    """The supervisor itself failed at this request."""

    @property
    def error_name(self) -> str:
        """The name that notebooks and agents see in the place of an exception's."""
        return _ERROR_NAMES[self]


_ERROR_NAMES = {
    Ended.BY_ITSELF: "Error",
    Ended.INTERRUPTED: "CellInterrupted",
    Ended.TIME_LIMIT: "CellTimeout",
    Ended.MEMORY_LIMIT: "MemoryLimit",
    Ended.THREAD_LIMIT: "ThreadLimit",
    Ended.PROCESS_LIMIT: "ProcessLimit",
    Ended.SCRATCH_LIMIT: "ScratchLimit",
    Ended.QUERY_LIMIT: "QueryLimit",
    Ended.WORKER_DIED: "KernelRolledBack",
    Ended.EXPELLED: "SessionExpelled",
    Ended.FAULT: "KernelError",
}


class Lost(enum.StrEnum):
    """What of a session's variables is lost."""

    NOTHING = "nothing"
    CELLS = "cells"
    """What the last completed cells did."""
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Loss:
    """What a session has lost with its worker.

    ``cells`` is how many completed cells are undone, when that is what is lost. ``in_cell`` says that a cell ran: what
    that one did is undone in any case.
    """

    what: Lost = Lost.NOTHING
    cells: int = 0
    in_cell: bool = False

    def __str__(self) -> str:
        """The loss in words, for callers."""
        if self.what is Lost.EVERYTHING:
            return "its variables are lost; loaded contexts are there again"
        if self.what is Lost.CELLS:
            return f"variables are as they were {self.cells} completed cell(s) earlier"
        return "variables are as they were before this cell" if self.in_cell else "no variable was lost"
