"""A run: what one call of an agent has its session run, from the call until nobody asks for it any more."""

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


@dataclass(eq=False)
class Run:
    """One cell, or a batch, on its way. ``outcome`` ends with the answer, or with the `ToolFault` that became of it."""

    id: str
    session: Session
    cells: Sequence[str]
    """Its code: one cell, or those of a batch."""
    batch: bool = False
    frame: int | None = None
    """What it is run for: the key of a frame."""
    terminal: bool = False
    """Whether a person runs it, at a terminal."""
    outcome: asyncio.Future[ToolAnswer] = field(init=False)
    answer: ToolAnswer | None = None
    """What came of it, unless that is a fault."""
    execution: Execution | None = None
    """The cell that runs now, or is the next one."""
    behind: Sequence[Execution] = ()
    """The cells of its batch that are queued behind that one."""
    began: bool = False
    ahead: tuple[tuple[str, str], ...] = ()
    """The session's runs that had not finished when it was queued: their ids and their code."""
    since: float = 0.0
    """When the cell began that runs now, or the run was queued."""
    listed: list[str] = field(default_factory=list)
    """The queries without an answer that its cells have asked."""
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
        """Whether its cell, or a notebook's cell before it, waits for answers of an agent."""
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
        """Stop it: a waiting run never starts, a running one gets KeyboardInterrupt."""
        for execution in reversed(tuple(self.behind)):  # cells may end meanwhile
            await execution.interrupt()
        if self.execution is not None:
            await self.execution.interrupt()
        else:
            self.outcome.cancel()

    def finish(self, task: asyncio.Future[ToolAnswer]) -> None:
        """Keep what came of it, and nothing of how: a session has dozens of runs that somebody may ask for again."""
        self.outcome = asyncio.get_running_loop().create_future()
        self.execution, self.behind = None, ()
        if task.cancelled():
            self.outcome.cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error.without_traceback() if isinstance(error, ToolFault) else error)
            self.outcome.exception()  # one that nobody waits for is not reported as forgotten
        else:
            self.answer = task.result()
            self.outcome.set_result(self.answer)

    def let_go(self) -> None:
        """Keep of an answer that somebody got only what it was rendered to: a cell may show a megabyte."""
        if (answer := self.answer) and answer.text:
            answer.fields, answer.parts = {}, ()
