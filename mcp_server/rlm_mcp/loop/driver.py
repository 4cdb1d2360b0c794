"""Carries out the planner's decisions: starts agents, judges their work, writes every step into the daemon's rows.

A chain works on one batch of tasks at a time, each in its own coroutine with a launcher that holds its lease. It first
takes over the runs of an earlier loop: it waits for agents that still run, and judges the others by their results.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rlm_ipc import discovery
from rlm_ipc.chain_requests import AgentRun, Chain, ChainOpened, Failure, RunKind, TaskLine, Verdict
from rlm_ipc.errors import ToolFailed
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import read
from rlm_mcp.loop import planner
from rlm_mcp.loop.daemon_rows import Rows
from rlm_mcp.loop.failures import failure, tail
from rlm_mcp.loop.launching import Launcher, command, end_adopted, ended, status_of
from rlm_mcp.loop.options import Options
from rlm_mcp.loop.prompts import prompt
from rlm_mcp.loop.report import decisions, report, summary
from rlm_mcp.loop.worktrees import Place, Worktrees

_MOST_REFUSALS = 5
"""How often a task may be lost before this loop gives it up."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event for the display: its kind, its task, and a line for people."""

    what: str
    text: str
    task: str = ""


class Driver:
    """Works on the scope of one chain until nothing more can be done."""

    def __init__(
        self,
        rows: Rows,
        chain: Chain,
        runs: Sequence[AgentRun],
        options: Options,
        place: Place,
        folder: Path,
        tell: Callable[[Event], None],
    ) -> None:
        self._rows, self.chain, self._options, self._place, self._folder = rows, chain, options, place, folder
        self._tell = tell
        self.runs = {run.number: run for run in runs}
        self._active: dict[str, asyncio.Task[None]] = {}
        self._limited: set[str] = set()
        """Tasks that must not be continued: the continuation limit is reached."""
        self._refusals: Counter[str] = Counter()
        self._unfit: dict[str, str] = {}
        """Why stories and epics are not complete although everything below them is done."""

    async def work(self) -> Chain:
        """Work until the scope is complete, stuck, or at its limit; returns the chain as it ended.

        However it ends, no agent of this loop is left running.
        """
        try:
            self._take_up()
            while True:
                self._raise_faults()
                await self._fill()
                if self._active:
                    await asyncio.wait(self._active.values(), return_when=asyncio.FIRST_COMPLETED)
                    continue
                if outcome := await self._conclude():
                    return await self._end(outcome)
        finally:
            for task in self._active.values():
                task.cancel()
            await asyncio.gather(*self._active.values(), return_exceptions=True)

    def _raise_faults(self) -> None:
        for task, working in list(self._active.items()):
            if working.done():
                del self._active[task]
                working.result()

    # --- what is next -----------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Wait for the agents that an earlier loop started, and judge their work."""
        for run in list(self.runs.values()):
            if run.verdict is None:
                self._active[run.task] = asyncio.create_task(self._adopt(run))

    async def _fill(self) -> None:
        """Claim ready tasks, up to the size of the batch, and start agents on them."""
        room = self.chain.size - len(self._active)
        if room <= 0:
            return
        said = await self._rows.next(room + len(self._limited))
        for task in said["next"]:
            if room > 0 and task not in self._active and task not in self._limited and await self._begin(task):
                room -= 1

    async def _begin(self, task: str) -> bool:
        """Claim a task and work on it. Return False if someone else was faster, or if it must not be continued."""
        line = await self._rows.look(task)
        action = self._after(line)
        if isinstance(action, planner.Leave):
            if action.limit or line.status == "ready":
                self._limited.add(task)
            return False
        launcher = await Launcher.start()
        fence = None
        try:
            fence = await self._rows.claim(task, launcher.pid, launcher.identity)
        finally:
            if fence is None:
                await launcher.close()
        if fence is None:
            return False
        self._active[task] = asyncio.create_task(self._go_on(task, launcher))
        return True

    def _after(self, line: TaskLine) -> planner.Action:
        left = self._options.max_continuations - planner.links(self.runs.values())
        return planner.after(self._of(line.id), line, self._options, left)

    def _of(self, task: str) -> list[AgentRun]:
        return [run for run in self.runs.values() if run.task == task]

    async def _conclude(self) -> str:
        """Pop completed stories and epics. Return the outcome of the chain, or an empty string to continue."""
        lines = (await self._rows.survey()).frames
        if (found := planner.due([line for line in lines if line.id not in self._unfit])) is not None:
            if await self._audit(found):
                await self._pop(found, lines)
            return ""
        if all(line.status in planner.ENDED for line in lines):
            return "failed" if planner.in_the_way(lines) else "completed"
        if self._limited:
            return "limit"
        held = any(line.held for line in lines)
        said = await self._rows.next(1, wait=held)
        return "" if said["next"] or said.get("in_progress") or held else "stuck"

    async def _audit(self, frame: TaskLine) -> bool:
        """Run the tests again where all work of a story or epic is merged. If they fail, it is not complete."""
        failed = await self._test(self._place.whole(), self._folder / f"{frame.id}.log", None)
        if failed is not None:
            said = f"{frame.kind} {frame.id} is not complete: {planner.told(failed)}"
            self._unfit[frame.id] = said
            self._tell(Event("stuck", said, frame.id))
        return failed is None

    async def _pop(self, frame: TaskLine, lines: Sequence[TaskLine]) -> None:
        """Complete a story or an epic, after writing the report: details below it are deleted then."""
        inside = planner.below(lines, frame.id)
        decided = list(dict.fromkeys(said for line in inside for said in decisions(line)))
        text = self._report(lines)
        self._write(text)
        said = summary(inside)
        given = {"summary": said, "decisions": decided[:20]}
        if frame.id == self.chain.scope:
            await self._rows.hand_off(frame.id, {**given, "details": text})
        await self._rows.done(frame.id, given, None)
        self._tell(Event("completed", f"{frame.kind} {frame.id} completed: {frame.title}", frame.id))

    # --- a task -----------------------------------------------------------------------------------

    async def _go_on(self, task: str, launcher: Launcher) -> None:
        """Run agents on a claimed task until it has ended, or this loop can do no more for it."""
        try:
            while launcher.lives():
                line = await self._rows.look(task)
                match self._after(line):
                    case planner.Run(kind):
                        if not line.held and not await self._rows.claim(task, launcher.pid, launcher.identity):
                            return
                        await self._agent(task, kind, launcher)
                        if self._of(task)[-1].verdict is Verdict.CRASHED:
                            return  # the lease ends with the launcher, and the next holder sees an earlier attempt
                    case planner.Complete():
                        await self._complete(line, launcher)
                    case planner.End(status, why, learned):
                        await self._end_badly(line, status, why, learned, launcher)
                    case planner.Leave(limit):
                        if limit:
                            self._limited.add(task)
                        if line.status in planner.ENDED:
                            await self._count(task)
                        return
        except ToolFailed as refused:
            self._was_refused(task, refused)
        finally:
            await launcher.close()

    async def _agent(self, task: str, kind: RunKind, launcher: Launcher) -> None:
        """Run an agent and judge its work."""
        folder = await self._place.folder(task)
        survey = {line.id: line for line in (await self._rows.survey()).frames}
        line = survey[task]
        context = "" if kind is RunKind.FIX else await self._rows.context(task)
        number = max(self.runs, default=0) + 1
        log = self._folder / f"{number}-{task}.log"
        run = AgentRun(number, task, kind, time.time(), line.fence, launcher.identity, folder, str(log))
        text = prompt(line, survey, self._of(task), kind, context=context, tests=self._options.tests, folder=folder)
        file = log.with_suffix(".prompt")
        file.write_text(text, encoding="utf-8")
        await self._keep(run)
        self._tell(Event(kind, f"{task} {kind}: {line.title} (agent {number})", task))
        status = await launcher.run(command(self._options.agent, text, task, folder, file), folder, log)
        await self._judge(run, status, launcher)

    async def _judge(self, run: AgentRun, status: int | None, launcher: Launcher | None) -> None:
        """Judge a run, after running the tests, and store the verdict."""
        log = Path(run.log)
        line = await self._rows.look(run.task)
        verdict = planner.judge(run, status, line, tested=bool(self._options.tests))
        failed = None
        if verdict is Verdict.FAULTY:
            failed = failure(self._options.agent[0], status or 0, log)
        elif verdict is Verdict.PASSED and line.type not in planner.NEVER_FIXED:
            failed = await self._check(run, launcher)
        if failed is not None:
            verdict = Verdict.FAULTY
            if line.status in planner.ENDED:  # the agent ended too soon
                await self._rows.reopen(run.task)
        left = await self._place.left(run.task)
        ended_at = time.time()
        await self._keep(replace(run, status=status, verdict=verdict, failure=failed, left=left, ended_at=ended_at))
        said = f": {planner.what_failed(self.runs[run.number])}" if failed else ""
        self._tell(Event(verdict, f"{run.task} {verdict}{said}", run.task))

    async def _check(self, run: AgentRun, launcher: Launcher | None) -> Failure | None:
        """Run the user's tests in the folder of a task, then merge its commits."""
        failed = await self._test(run.folder, Path(run.log), launcher)
        return failed or await self._place.take(run.task)

    async def _test(self, folder: str, log: Path, launcher: Launcher | None) -> Failure | None:
        """Run the tests of the user in a folder, each with its output beside ``log``; returns the first failure."""
        if not self._options.tests:
            return None
        own = launcher if launcher is not None and launcher.lives() else await Launcher.start()
        try:
            for number, test in enumerate(self._options.tests, 1):
                output = log.with_name(f"{log.name}.test{number}")
                output.unlink(missing_ok=True)
                status = await own.run(["/bin/sh", "-c", test], folder, output)
                if status != 0:
                    return failure(test, -1 if status is None else status, output)
        finally:
            if own is not launcher:
                await own.close()
        return None

    async def _complete(self, line: TaskLine, launcher: Launcher) -> None:
        """End a completed task. Its result is that of its hand-off, or else the end of the output."""
        last = self._of(line.id)[-1]
        left = line.handoff
        text = left.summary if left is not None else tail(Path(last.log), most=600).strip()
        given = {
            "summary": text,
            "files": [*left.files] if left else [],
            "decisions": [*left.decisions] if left else [],
        }
        await self._rows.done(line.id, given, launcher.pid)
        await self._place.drop(line.id)
        self._tell(Event("completed", f"{line.id} completed: {line.title}", line.id))

    async def _end_badly(
        self, line: TaskLine, status: str, why: str, learned: Sequence[str], launcher: Launcher
    ) -> None:
        text = " ".join(filter(None, [why, f"Learned: {'; '.join(learned)}" if learned else ""]))
        await self._rows.done(line.id, {"status": status, "summary": text}, launcher.pid)
        self._tell(Event(status, f"{line.id} {status}: {why}", line.id))

    async def _adopt(self, run: AgentRun) -> None:
        """Wait for an agent that an earlier loop started, and judge it by its results."""
        try:
            await ended(run.process)
        except asyncio.CancelledError:
            end_adopted(run.process)
            raise
        self._tell(Event("adopted", f"{run.task}: agent {run.number} has ended", run.task))
        try:
            await self._judge(run, status_of(Path(run.log)), None)
        except ToolFailed as refused:
            self._was_refused(run.task, refused)

    def _was_refused(self, task: str, refused: ToolFailed) -> None:
        """Continue without a task whose lease was lost. A few times, its rows then decide again."""
        self._refusals[task] += 1
        if self._refusals[task] >= _MOST_REFUSALS:
            self._limited.add(task)
        self._tell(Event("lost", f"{task} was lost: {refused}", task))

    # --- rows -------------------------------------------------------------------------------------

    async def _keep(self, run: AgentRun) -> None:
        self.runs[run.number] = run
        await self._rows.note_run(self.chain.number, run)

    async def _count(self, task: str) -> None:
        """Record that a task has ended. At the end of a batch, record its outcome, which sets the next size."""
        self.chain = replace(self.chain, over=tuple(dict.fromkeys((*self.chain.over, task))))
        if len(self.chain.over) >= self.chain.size:
            await self._end_batch()
        else:
            await self._rows.note(self.chain)

    async def _end_batch(self) -> None:
        batch, size, over = self.chain.batch, self.chain.size, self.chain.over
        runs = [run for run in self.runs.values() if run.task in over]
        ends = {line.id: line.status for line in (await self._rows.survey()).frames if line.id in over}
        outcome = planner.batch_outcome(runs, ends.values())
        torn = sum(run.verdict in (Verdict.CRASHED, Verdict.PARTIAL, None) for run in runs)
        self.chain = replace(self.chain, batch=batch + 1, over=())
        following = await self._rows.note(
            self.chain, batch_outcome=outcome, batch_size=size, tasks=len(over), interrupted=torn
        )
        self.chain = replace(self.chain, size=self._options.size or following)
        self._tell(Event("batch", f"batch {batch} of {size} {outcome}; the next has {self.chain.size}"))
        await self._rows.note(self.chain)

    async def _end(self, outcome: str) -> Chain:
        """Record how the chain has ended."""
        if self.chain.over:
            await self._end_batch()
        lines = (await self._rows.survey()).frames
        over = outcome != "limit"  # a chain at its limit can still be continued
        self.chain = replace(self.chain, outcome=outcome, ended_at=time.time() if over else None)
        text = self._report(lines)
        path = self._write(text)
        self.chain = replace(self.chain, report=str(path))
        await self._rows.note(self.chain)
        await self._rows.load(f"chain_{self.chain.number}_report", text)
        for said in planner.in_the_way(lines) if outcome != "completed" else []:
            self._tell(Event("stuck", said))
        self._tell(Event("ended", f"chain {self.chain.number} {outcome}. {summary(lines)} Report: {path}"))
        return self.chain

    def _report(self, lines: Sequence[TaskLine]) -> str:
        unfit = list(self._unfit.values())
        return report(self.chain, lines, list(self.runs.values()), branch=self._place.branch, unfit=unfit)

    def _write(self, text: str) -> Path:
        path = self._folder / f"chain-{self.chain.number}-report.md"
        path.write_text(text, encoding="utf-8")
        return path


async def work_on(opened: ChainOpened, session: str | None, folder: str, tell: Callable[[Event], None]) -> Chain:
    """Work on a chain, in a folder, until it ends. Its options are stored with it; ``session`` opened it."""
    chain, options = opened.chain, read(Options, opened.chain.options)
    own = Path(discovery.state_folder()) / "chains" / str(chain.number)
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    rows, place = Rows(session, opened.top, chain.scope), Place(folder)
    if options.worktrees:
        place = Worktrees(folder, chain.number)
    try:
        await place.begin()
        ended = await Driver(rows, chain, opened.runs, options, place, own, tell).work()
        if ended.ended_at is not None:
            await place.end()
        return ended
    finally:
        await rows.aclose()
