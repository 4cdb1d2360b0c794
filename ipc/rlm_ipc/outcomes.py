"""How a cell ended, and what its session lost: the fields that code decides by.

The supervisor fills them in from what it has done and seen itself. Nothing here is read from the name or the text of an
exception, because session code may define a class of any name and raise it with any text. Text for people and models is
made from these fields where it is shown.
"""

from __future__ import annotations

import enum

from rlm_ipc.late_dataclasses import dataclass

KERNEL_STOPPED = "the kernel of this session was stopped; restart it here to go on, if the session is still there"
NEW_POLICY = "this session goes on under another policy, without its variables; choose its kernel again to go on here"
"""Like `session_ended`, what a front end reads whose kernel is gone, in the words of a front end."""


def session_ended(how: str) -> str:
    """What a front end reads whose session is no more."""
    return f"this session has ended: {how}; what is shown here stays, open another session to go on"


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
    SKIPPED = "skipped"
    """It did not begin: the cell before it in its batch has not ended well, or nobody knows."""
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
    Ended.SKIPPED: "CellSkipped",
    Ended.FAULT: "KernelError",
}


class Lost(enum.StrEnum):
    """What of a session's variables is lost."""

    NOTHING = "nothing"
    CELLS = "cells"
    """What the last completed cells did."""
    EVERYTHING = "everything"


class NoCopy(enum.StrEnum):
    """Why no checkpoint of a session could be taken."""

    THREAD_RUNS = "thread_runs"
    """A thread of its own does something, which would stay half done in a copy."""
    LIBRARY_THREADS = "library_threads"
    """A library keeps threads that a copy would not have, and its calls would never return there."""
    REFUSED = "refused"
    """The system has no room for one more process, or for its memory."""
    NO_ANSWER = "no_answer"


_WHY_NO_COPY = {
    NoCopy.THREAD_RUNS: "a thread of the session runs",
    NoCopy.LIBRARY_THREADS: "a library keeps threads that do not survive being copied",
    NoCopy.REFUSED: "the system refuses to copy the process",
    NoCopy.NO_ANSWER: "the process was too slow to be copied",
}


@dataclass(frozen=True, slots=True)
class Uncopied:
    """What no checkpoint holds: ``age`` completed cells, since none could be taken, for the ``reason``.

    ``detail`` names threads or libraries, or is the system's word for it.
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
    """What a session has lost with its worker.

    ``cells`` is how many completed cells are undone, and ``uncopied`` why no checkpoint had them, if none could be
    taken. ``in_cell`` says that a cell ran: what that one did is undone in any case. ``threads`` ran before and do not
    now.
    """

    what: Lost = Lost.NOTHING
    cells: int = 0
    in_cell: bool = False
    uncopied: Uncopied | None = None
    threads: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether the session is as it was, but for a running cell."""
        return self.what is Lost.NOTHING and not self.threads

    def __str__(self) -> str:
        """The loss in words, for callers."""
        told = self._of_variables()
        if self.what is not Lost.NOTHING and self.uncopied is not None:
            told += f", because no checkpoint could be taken: {self.uncopied.why}"
        if self.threads:
            several = "threads" if len(self.threads) > 1 else "thread"
            told += f"; {len(self.threads)} {several} did not come back: {', '.join(self.threads)}"
        return told

    def _of_variables(self) -> str:
        if self.what is Lost.EVERYTHING:
            return "its variables are lost; loaded contexts are there again"
        if self.what is Lost.CELLS:
            return f"variables are as they were {self.cells} completed cell(s) earlier"
        return "variables are as they were before this cell" if self.in_cell else "no variable was lost"
