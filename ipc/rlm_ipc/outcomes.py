"""How a cell ended, and what its session lost: the fields that code decides by.

The supervisor fills them in from what it did and saw itself. Nothing here is read from the name or text of an
exception, because session code may define a class with any name and raise it with any text. Text for people and models
is built from these fields where it is shown.
"""

from __future__ import annotations

import enum

from rlm_ipc.late_dataclasses import dataclass

KERNEL_STOPPED = "the kernel of this session was stopped. Restart it here to continue, if the session still exists."
NEW_POLICY = (
    "this session continues under another policy, without its variables. Choose its kernel again to continue here."
)
"""Like `session_ended`: the text for a front end whose kernel is gone."""


def session_ended(how: str) -> str:
    """Return the text for a front end whose session no longer exists."""
    return f"this session has ended ({how}). The output above is kept; open another session to continue."


class Ended(enum.StrEnum):
    """What ended a cell."""

    BY_ITSELF = "by_itself"
    """Its code ran to the end, or raised."""
    INTERRUPTED = "interrupted"
    """A caller interrupted it, perhaps before it started."""
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    THREAD_LIMIT = "thread_limit"
    PROCESS_LIMIT = "process_limit"
    SCRATCH_LIMIT = "scratch_limit"
    QUERY_LIMIT = "query_limit"
    """The prompts waiting for answers were too long in total."""
    WORKER_DIED = "worker_died"
    """The worker ended, in this cell or before it; `Loss` says what was lost."""
    EXPELLED = "expelled"
    """The session was ended because of what its code tried."""
    SKIPPED = "skipped"
    """It did not start: the previous cell of its batch did not succeed, or that is not known."""
    FAULT = "fault"
    """The supervisor itself failed at this request."""

    @property
    def error_name(self) -> str:
        """The name that notebooks and agents see in place of an exception's."""
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
    Ended.SKIPPED: "CellSkipped",
    Ended.FAULT: "KernelError",
}


class Lost(enum.StrEnum):
    """Which of a session's variables are lost."""

    NOTHING = "nothing"
    CELLS = "cells"
    """The effects of the last completed cells."""
    EVERYTHING = "everything"


class NoCopy(enum.StrEnum):
    """Why no checkpoint of a session could be taken."""

    THREAD_RUNS = "thread_runs"
    """One of its threads is at work, and would be cut off half-way in a copy."""
    LIBRARY_THREADS = "library_threads"
    """A library keeps threads that a copy would lack, and its calls would never return there."""
    REFUSED = "refused"
    """The system has no room for another process, or for its memory."""
    NO_ANSWER = "no_answer"


_WHY_NO_COPY = {
    NoCopy.THREAD_RUNS: "a thread of the session is running",
    NoCopy.LIBRARY_THREADS: "a library keeps threads that do not survive being copied",
    NoCopy.REFUSED: "the system refuses to copy the process",
    NoCopy.NO_ANSWER: "the process was too slow to be copied",
}


@dataclass(frozen=True, slots=True)
class Uncopied:
    """What no checkpoint holds: ``age`` completed cells, since none could be taken, for the ``reason``.

    ``detail`` names threads or libraries, or is the system's message.
    """

    age: int
    reason: NoCopy
    detail: str = ""

    @property
    def why(self) -> str:
        """The reason in words."""
        words = _WHY_NO_COPY[self.reason]
        return f"{words} ({self.detail})" if self.detail else words


@dataclass(frozen=True, slots=True)
class Loss:
    """What a session lost with its worker.

    ``cells`` is how many completed cells are undone, and ``uncopied`` why no checkpoint had them, if none could be
    taken. ``in_cell`` says that a cell was running: its effects are undone in any case. ``threads`` were running and no
    longer are.
    """

    what: Lost = Lost.NOTHING
    cells: int = 0
    in_cell: bool = False
    uncopied: Uncopied | None = None
    threads: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether the session is as it was, except for a running cell."""
        return self.what is Lost.NOTHING and not self.threads

    def __str__(self) -> str:
        """Return the loss in words, for callers."""
        told = self._of_variables()
        if self.what is not Lost.NOTHING and self.uncopied is not None:
            told += f", because no checkpoint could be taken: {self.uncopied.why}"
        if self.threads:
            several = "threads" if len(self.threads) > 1 else "thread"
            told += f"; {len(self.threads)} {several} did not come back: {', '.join(self.threads)}"
        return told

    def _of_variables(self) -> str:
        if self.what is Lost.EVERYTHING:
            return "its variables are lost; loaded contexts are available again"
        if self.what is Lost.CELLS:
            return f"variables are as they were {self.cells} completed cell(s) earlier"
        return "variables are as they were before this cell" if self.in_cell else "no variable was lost"
