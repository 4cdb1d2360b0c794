"""Runs: cells as the agent sees them. A call waits for its run for a while; then the run continues without it.

A run waits for its turn in the session, runs one cell, and keeps the result until it is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from rlm_ipc.errors import KernelDied, KernelError, SessionExpelled, SupervisorGone
from rlm_ipc.json_lines import TERMINAL
from rlm_ipc.kernel_reports import CellNote, CellResult, RunningCell
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.outcomes import Ended
from rlm_kernel.supervisor_client import Execution
from rlm_mcp.formats.pictures import pictures_in
from rlm_mcp.service.background import BackgroundTasks
from rlm_mcp.service.cells.cell_answers import (
    batch_answer,
    cell_answer,
    ended_answer,
    queued_answer,
    running_answer,
    told_of_loss,
    told_of_waiting,
    waiting_answer,
)
from rlm_mcp.service.cells.new_files import NewFiles
from rlm_mcp.service.cells.pictures import PictureStore
from rlm_mcp.service.cells.run import Run, wake
from rlm_mcp.service.cells.session_runs import SessionRuns
from rlm_mcp.service.errors import ToolFault, fault_from, run_not_found
from rlm_mcp.service.progress import Progress
from rlm_mcp.service.queries.answering import QueryService
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_mcp.service.unchanged import Unchanged
from rlm_memory import inherited_queries, queries
from rlm_memory.errors import DiskFull
from rlm_memory.queries import Asker, QueryRow, QueryState
from rlm_memory.store import Store

_MOST_WAITING = 32
"""How many cells of one session may wait for their turn."""
_LAST_WORD_SECONDS = 10.0
"""How long to wait for the end of a cell whose session ends."""
CLAIMED = "an earlier daemon started this code, and ended while the code ran"
_NUMBERS_TAKEN = 100
"""Run numbers reserved in the database at once, so that a cell costs no write."""


@dataclass(frozen=True)
class Waiting:
    """How long a call waits for its run, and how often it reports progress (seconds)."""

    longest: float = 45.0
    progress: float = 1.0


class Runs:
    """All runs of the daemon, by session."""

    def __init__(
        self, store: Store, clock: Callable[[], float], waiting: Waiting, journal: Journal, given: QueryService
    ) -> None:
        self._store = store
        self._rows = Unchanged(store)
        self._queries, self._journal, self._clock, self._waiting = given, journal, clock, waiting
        self._runs: dict[int, SessionRuns] = {}
        self.pictures, self._files = PictureStore(), NewFiles()
        self._numbers = iter(range(0))
        self._stopping = BackgroundTasks()
        self.daemon_ends = False
        """Whether calls are cancelled because the daemon ends: their cells keep running in their kernels."""

    @property
    def longest(self) -> float:
        """Seconds for which a call may block."""
        return self._waiting.longest

    def start(
        self, session: Session, code: str | Sequence[str], frame: int | None = None, *, terminal: bool = False
    ) -> Run:
        """Queue a cell or a batch, for ``frame`` or for a person at a ``terminal``.

        Raises:
            ToolFault: too many cells of the session are already queued.
        """
        active = self.active(session)
        if len(active) >= _MOST_WAITING:
            raise ToolFault(
                "busy",
                f"{_MOST_WAITING} cells of this session are queued already",
                "wait for one of them, or interrupt the running one",
                active=[run.id for run in active],
            )
        cells, batch = ((code,), False) if isinstance(code, str) else (code, True)
        ahead = tuple((one.id, one.code) for one in active)
        run = self._enter(Run(self._next_id(), session, cells, batch, frame, terminal, ahead=ahead))
        run.task = asyncio.create_task(self._drive(run, None))
        return run

    def claim(self, session: Session, cell: RunningCell, execution: Execution) -> Run:
        """Take over a cell that an earlier daemon started, as the session's latest run."""
        terminal = cell.author == TERMINAL
        run = Run(self._next_id(), session, (cell.code,), terminal=terminal, execution=execution, began=True)
        run.first_query = queries.next_in_code(self._store, session.row.id)
        run.task = asyncio.create_task(self._drive(self._enter(run), execution))
        return run

    def ended(self, session: Session, cell: CellNote) -> None:
        """Keep the result of a cell that ended while no daemon ran: its caller may ask for it."""
        self._enter(Run(self._next_id(), session, (cell.code,), began=True)).end(ended_answer(cell))

    def active(self, session: Session) -> list[Run]:
        """List the session's runs that have not finished, the oldest first."""
        return self._of(session).active()

    def find(self, session: Session, run: str | None) -> Run:
        """Return the run of that id, or the session's latest.

        Raises:
            ToolFault: there is none.
        """
        held = self._of(session)
        if (found := held.find(run)) is None:
            raise run_not_found(run or "", [known.id for known in held.active()])
        return found

    async def follow(
        self, run: Run, progress: Progress, *, longest: float | None = None, patient: bool = False
    ) -> ToolAnswer:
        """Wait for the run, but only as long as a call may block; then answer that it is running.

        If the run waits for answers to queries, return at once with the queries. So does a run behind such a cell,
        unless the caller is ``patient``: the caller may be the one who has to answer them.
        """
        limit = min(longest if longest is not None else self._waiting.longest, self._waiting.longest)
        loop = asyncio.get_running_loop()
        began = loop.time()
        kernel = run.session.kernel
        while not run.outcome.done():
            if run.suspended:
                return await self._suspended(run)
            if run.state == "queued" and kernel.queries.of_agent and not patient:
                before = self.suspended(run.session)
                return queued_answer(run.id, before.id if before else None, self._listed(run.session))
            left = limit - (loop.time() - began)
            if left <= 0:
                printed = await run.stdout_so_far()
                return running_answer(run.id, printed, kernel.queries.of_agent, queued=run.state == "queued")
            until = loop.time() + min(left, self._waiting.progress)
            if not await _something_happens(run, until) and loop.time() - began < limit:
                await progress(loop.time() - began, f"{run.id} is {run.state}")
        return _result_of(run)

    def suspended(self, session: Session) -> Run | None:
        """Return the run that waits for answers to queries, if there is one."""
        return next((run for run in self.active(session) if run.suspended), None)

    async def _suspended(self, run: Run) -> ToolAnswer:
        return waiting_answer(run.id, await run.stdout_so_far(), self._listed(run.session))

    def _listed(self, session: Session) -> list[QueryRow]:
        """Return the queries that the session's cell waits for; answers without ids are for these."""
        waiting = session.kernel.queries.of_agent
        held = queries.of_session(self._store, session.key, QueryState.PENDING) if waiting else []
        asked = [row for row in held if row.id in waiting]
        session.listed = tuple(row.id for row in asked)
        return asked

    def abandon(self, run: Run) -> None:
        """Interrupt a run whose call was cancelled, in the background, because the call cannot wait."""
        if not run.outcome.done() and not self.daemon_ends:
            task = self._stopping.start(run.interrupt())
            # Retrieve its exception, so that the event loop does not report it.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def interrupt(self, session: Session) -> list[str]:
        """Interrupt every active run of the session, the waiting ones first; return their ids.

        Wait for the end of one that waits for answers: else the next call would be asked for these answers.
        """
        stopped = self.active(session)
        asking = [run.outcome for run in stopped if run.suspended]
        for run in reversed(stopped):
            await run.interrupt()
        if asking:
            await asyncio.wait(asking, timeout=_LAST_WORD_SECONDS)
        return [run.id for run in stopped]

    def drop(self, session: int) -> None:
        """Forget the session's runs; queued ones never start."""
        self.pictures.drop(session)
        self._files.drop(session)
        for run in self._runs.pop(session, SessionRuns()):
            run.cancel()

    async def finished(self, session: Session) -> None:
        """Wait for the end of the session's active runs."""
        if outcomes := [run.outcome for run in self.active(session)]:
            await asyncio.wait(outcomes, timeout=_LAST_WORD_SECONDS)

    async def aclose(self) -> None:
        """Drop every run; running cells continue in their kernels."""
        runs = [run for held in self._runs.values() for run in held]
        tasks = [run.task for run in runs if run.task is not None]
        self._runs.clear()
        for run in runs:
            run.cancel()
        await asyncio.gather(*tasks, self._stopping.wait(), return_exceptions=True)

    # --- one run ----------------------------------------------------------------------------------

    async def _drive(self, run: Run, claimed: Execution | None) -> None:
        """Bring a run to its outcome."""
        try:
            run.end(await (self._work(run) if claimed is None else self._go_on(run, claimed)))
        except asyncio.CancelledError:
            run.end(None)
            raise
        except Exception as error:
            run.end(error)

    async def _work(self, run: Run) -> ToolAnswer:
        kernel, queued, answers = run.session.kernel, asyncio.get_running_loop().time(), list[ToolAnswer]()
        run.since = self._journal.now()
        try:
            async with kernel.turn:
                seconds = asyncio.get_running_loop().time() - queued
                waited, run.ahead = told_of_waiting(run.ahead, seconds), ()
                run.first_query = self._rows.read(queries.next_in_code, run.session.row.id)
                await self._run_cells(run, waited, answers)
        except KernelError as error:
            fault = self._died(run, run.cells[len(answers)], error)
            if not run.batch:
                raise fault from error
            answers.append(ToolAnswer({"success": False, **fault.answer()}))
        return batch_answer(answers, len(run.cells)) if run.batch else answers[0]

    async def _run_cells(self, run: Run, waited: str, answers: list[ToolAnswer]) -> None:
        """Run the cells in order, up to the first that fails, and append the answer of each."""
        kernel, left = run.session.kernel, deque(run.cells)
        self._files.begin(run.session)
        while left:
            attachment = TERMINAL if run.terminal else ""
            executions, run.began = deque(await kernel.execute(*left, attachment=attachment)), True
            while executions:
                run.execution, run.behind = executions.popleft(), executions
                notice, kernel.notice, waited = "; ".join(filter(None, (kernel.notice, waited))), "", ""
                run.since = self._journal.now()
                try:
                    with kernel.watched:
                        result = await run.execution.result()
                finally:
                    kernel.queries.write_all()
                if result.ended is Ended.SKIPPED:  # a new supervisor does not know the cells before it
                    kernel.notice = notice
                    break
                _raise_if_died(result, kernel.expelled)
                self._journal.ran(run.session.key, left.popleft(), run.since, result, run.frame, terminal=run.terminal)
                answers.append(await self._resolve(run, result, notice))
                if result.status != "ok":
                    return

    def _died(self, run: Run, code: str, error: KernelError) -> ToolFault:
        """Record that the kernel died with a cell, and return the fault. The cell's queries are cancelled."""
        kernel = run.session.kernel
        if isinstance(error, KernelDied | SupervisorGone):
            kernel.notice = ""  # the error says it
        rows = queries.of_session(self._store, run.session.key)
        asked = [row for row in rows if row.asked_by is Asker.CODE and row.number >= run.first_query]
        ids = [row.id for row in asked]
        self._journal.died(run.session.key, code, run.since, str(error), ids, run.frame, terminal=run.terminal)
        cancelled = [row.id for row in asked if row.state in {QueryState.PENDING, QueryState.CANCELLED}]
        queries.cancel_pending(self._store, run.session.key, self._clock(), among=cancelled)
        inherited_queries.pass_on(self._store, run.session.key, cancelled)
        fault = fault_from(error)
        fault.fields |= {"cancelled_llm_queries": cancelled} if cancelled else {}
        return fault

    async def _go_on(self, run: Run, execution: Execution) -> ToolAnswer:
        """Wait for a running cell, which the supervisor reports to the journal, because no call waited for it."""
        kernel = run.session.kernel
        try:
            async with kernel.turn, kernel.watched:
                result = await execution.result()
            _raise_if_died(result, kernel.expelled)
            return await self._resolve(run, result, CLAIMED)
        except KernelError as error:
            raise fault_from(error) from error

    async def _resolve(self, run: Run, result: CellResult, notice: str) -> ToolAnswer:
        """Record the cell's changes, and build its answer."""
        session = run.session
        notices = [notice, session.kernel.finished(result)]
        if result.given:
            notices.append(await self._queries.given(session, result.given))
        notices.append(told_of_loss(result))
        unanswered = self._unanswered(session, result)
        if unanswered:
            run.listed += [query.id for query in unanswered]
            session.listed = tuple(run.listed)
        answer = cell_answer(result, "; ".join(filter(None, notices)), unanswered, self._files.look(session))
        room = session.policy.limits.image_bytes - self.pictures.size(session.key, run.id)
        if shown := pictures_in(result.data, room):
            self.pictures.keep(session.key, run.id, shown)
            answer.fields["images"] = f"{len(shown)}, shown by wait(run={run.id!r})"
        return answer

    def _unanswered(self, session: Session, result: CellResult) -> list[QueryRow]:
        """Return the cell's queries that were not answered while it waited."""
        asked = set(result.queries)
        return [row for row in queries.pending(self._store, session.key) if row.id in asked] if asked else []

    def _of(self, session: Session) -> SessionRuns:
        return self._runs.get(session.key) or SessionRuns()

    def _enter(self, run: Run) -> Run:
        self._runs.setdefault(run.session.key, SessionRuns()).add(run)
        return run

    def _next_id(self) -> str:
        number = next(self._numbers, None)
        if number is None:
            first = self._take_numbers() + 1
            self._numbers = iter(range(first, first + _NUMBERS_TAKEN))
            number = next(self._numbers)
        return f"r{number}"

    def _take_numbers(self) -> int:
        try:
            return self._store.count("run", _NUMBERS_TAKEN)
        except DiskFull:  # code must run anyway
            with self._store.spare():
                return self._store.count("run", _NUMBERS_TAKEN)


def _raise_if_died(result: CellResult, expelled: str) -> None:
    """Raise if the process of a cell died.

    The supervisor's field decides, never the name of an error: code may raise errors of any name.
    """
    if expelled:
        raise SessionExpelled(expelled)
    if result.ended is Ended.WORKER_DIED:
        raise KernelDied(result.reason, result.loss)


async def _something_happens(run: Run, until: float) -> bool:
    """Wait until a run ends, or a cell of its session begins to wait for answers. Return False when it is too late."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    suspension, told = run.session.kernel.queries.next_suspension(), partial(wake, waiting)
    timer = loop.call_at(until, told)
    run.followers.add(waiting)
    suspension.add_done_callback(told)
    try:
        await waiting
        return run.outcome.done() or suspension.done()
    finally:
        timer.cancel()
        run.followers.discard(waiting)
        suspension.remove_done_callback(told)


def _result_of(run: Run) -> ToolAnswer:
    if run.outcome.cancelled():
        if run.began:
            message, hint = "was aborted because its session ended", "run the code again in a new session"
        else:
            message, hint = "was stopped before it began", "run the code again"
        raise ToolFault("interrupted", f"run {run.id} {message}", hint, run=run.id)
    error = run.outcome.exception()
    if isinstance(error, Exception):
        raise fault_from(error).without_traceback()
    return run.outcome.result()
