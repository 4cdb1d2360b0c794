"""A run: the code of one agent call, from the call until its result is no longer needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rlm_ipc.errors import KernelError
from rlm_kernel.supervisor_client import Execution
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import ToolAnswer


def wake(waiting: asyncio.Future[None], _: object = None) -> None:
    """End a wait, unless it has ended."""
    if not waiting.done():
        waiting.set_result(None)


@dataclass(eq=False)
class Run:
    """One cell, or a batch. ``outcome`` ends with the answer, or with a `ToolFault`."""

    id: str
    session: Session
    cells: Sequence[str]
    """Its code: one cell, or those of a batch."""
    batch: bool = False
    frame: int | None = None
    """The key of the frame that it runs for."""
    terminal: bool = False
    """Whether a person runs it at a terminal."""
    outcome: asyncio.Future[ToolAnswer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    task: asyncio.Task[None] | None = None
    """What works on it until it has its outcome."""
    followers: set[asyncio.Future[None]] = field(default_factory=set)
    """Ended when it has its outcome."""
    answer: ToolAnswer | None = None
    """Its answer, unless it ended with a fault."""
    execution: Execution | None = None
    """The running or next cell."""
    behind: Sequence[Execution] = ()
    """The cells of its batch behind that one."""
    began: bool = False
    ahead: tuple[tuple[str, str], ...] = ()
    """The session's unfinished runs at the time it was queued: their ids and code."""
    since: float = 0.0
    """When the running cell began, or when the run was queued."""
    listed: list[str] = field(default_factory=list)
    """The unanswered queries of its cells."""
    first_query: int = 0
    """The number from which on code's queries are its own."""

    @property
    def code(self) -> str:
        """Its code as one text."""
        return "\n".join(self.cells)

    @property
    def state(self) -> str:
        """``queued``, ``running`` or ``finished``."""
        if self.outcome.done():
            return "finished"
        return "queued" if self.execution is None else "running"

    @property
    def suspended(self) -> bool:
        """Whether its cell, or a notebook's cell before it, waits for an agent's answers."""
        return self.state == "running" and bool(self.session.kernel.queries.of_agent)

    async def stdout_so_far(self) -> str:
        """Return what the cell has printed until now."""
        if self.execution is None:
            return ""
        with suppress(KernelError):
            out, _ = await self.execution.output_so_far()
            return out
        return ""

    async def interrupt(self) -> None:
        """Stop the run: a queued one never starts, a running one gets KeyboardInterrupt."""
        for execution in reversed(tuple(self.behind)):  # cells may end meanwhile
            await execution.interrupt()
        if self.execution is not None:
            await self.execution.interrupt()
        else:
            self.cancel()

    def cancel(self) -> None:
        """Give up the run; what executes goes on in its kernel."""
        if self.task is not None:
            self.task.cancel()
        self.end(None)

    def end(self, outcome: ToolAnswer | Exception | None) -> None:
        """Keep only the outcome, because a session has dozens of runs that may be asked for again.

        None: the run was given up.
        """
        if self.outcome.done():
            return
        self.execution, self.behind, self.task = None, (), None
        if outcome is None:
            self.outcome.cancel()
        elif isinstance(outcome, ToolAnswer):
            self.answer = outcome
            self.outcome.set_result(outcome)
        else:
            self.outcome.set_exception(outcome.without_traceback() if isinstance(outcome, ToolFault) else outcome)
            self.outcome.exception()  # avoid the event loop's report of an unretrieved exception
        for follower in self.followers:
            wake(follower)

    def let_go(self) -> None:
        """Keep only the rendered text of a delivered answer: a cell may display a megabyte."""
        if (answer := self.answer) and answer.text:
            answer.fields, answer.parts = {}, ()
