"""What a loop does next, from rows alone: nothing in here reads or writes anything.

A task goes through runs of agents until it has ended:

    verdict of the last run       then
    ──────────────────────        ──────────────────────────────────────────────────────────
    (no run yet)                  a first run
    passed                        complete it
    failed, blocked               end it as the agent says
    partial                       continued by another agent, while chains are left
    crashed                       recovered by another agent, while chains are left
    faulty                        a fix, three at most; a spike is not fixed: its failure is the result
    lost                          leave it to whoever has it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rlm_ipc.chain_requests import AgentRun, Failure, RunKind, TaskLine, Verdict
from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.loop.options import Options

ENDED = {"completed": Verdict.PASSED, "failed": Verdict.FAILED, "blocked": Verdict.BLOCKED, "invalidated": Verdict.LOST}
_HANDED_OFF = {"PASS": Verdict.PASSED, "FAIL": Verdict.FAILED, "BLOCKED": Verdict.BLOCKED}
NEVER_FIXED = frozenset({"spike"})
"""Types of tasks whose failure is a result."""
LINKS = frozenset({RunKind.CONTINUED, RunKind.RECOVERED})
MOST_CRASHES = 3
"""Agents that died over one task before it is blocked: it may be what kills them."""
MOST_SILENT = 3
"""Agents that ended, one after the other, without a hand-off and without a word about their progress."""


@dataclass(frozen=True, slots=True)
class Run:
    """Start an agent."""

    kind: RunKind


@dataclass(frozen=True, slots=True)
class Complete:
    """The task is done and checked."""


@dataclass(frozen=True, slots=True)
class End:
    """The task ends, and not well."""

    status: Literal["failed", "blocked"]
    why: str
    learned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing more is to be done for the task here; ``limit`` if it is for the number of chains."""

    limit: bool = False


Action = Run | Complete | End | Leave


def by_task(runs: Iterable[AgentRun]) -> dict[str, list[AgentRun]]:
    """Map tasks to their runs, in their order."""
    found: defaultdict[str, list[AgentRun]] = defaultdict(list)
    for run in runs:
        found[run.task].append(run)
    return found


def links(runs: Iterable[AgentRun]) -> int:
    """Count the agents that have gone on from another one."""
    return sum(run.kind in LINKS for run in runs)


def judge(run: AgentRun, status: int | None, line: TaskLine, *, tested: bool) -> Verdict:
    """Say what has become of a run that ended with ``status``; None: nobody knows, or a signal has ended it.

    ``tested`` says that tests decide where the agent has said nothing.
    """
    if line.status in ENDED:
        return ENDED[line.status]
    if line.fence != run.fence:
        return Verdict.LOST
    if line.handoff is not None and line.handoff.at >= run.started_at:
        return _HANDED_OFF[line.handoff.status]
    if status is None or status < 0:
        return Verdict.CRASHED
    if status > 0:
        return Verdict.FAULTY
    released = not line.held and line.status == "ready"
    said = released or (line.progress.get("next_step") and (line.progress_at or 0.0) >= run.started_at)
    return Verdict.PASSED if tested and not said else Verdict.PARTIAL


def after(runs: Sequence[AgentRun], line: TaskLine, options: Options, links_left: int) -> Action:
    """Say what is next for a task with those runs; its row tells more than they do."""
    if line.status in ENDED:
        return Leave()
    if not runs:
        return Run(RunKind.FIRST)
    match runs[-1].verdict:
        case Verdict.PASSED:
            return Complete()
        case Verdict.FAILED | Verdict.BLOCKED as said:
            return End("failed" if said is Verdict.FAILED else "blocked", _said(line))
        case Verdict.PARTIAL:
            silent = _silent(runs, line)
            if silent >= MOST_SILENT:
                return End("blocked", f"{silent} agents have ended without a hand-off")
            return Run(RunKind.CONTINUED) if links_left > 0 else Leave(limit=True)
        case Verdict.FAULTY:
            return _fix(runs, line, options)
        case Verdict.LOST:
            return Leave()
        case _:  # crashed, or never judged because the loop was killed, too
            crashes = sum(run.verdict in (Verdict.CRASHED, None) for run in runs)
            if crashes >= MOST_CRASHES:
                return End("blocked", f"{crashes} agents have died over it")
            return Run(RunKind.RECOVERED) if links_left > 0 else Leave(limit=True)


def _fix(runs: Sequence[AgentRun], line: TaskLine, options: Options) -> Action:
    last = runs[-1].failure
    said = what_failed(runs[-1])
    if line.type in NEVER_FIXED:
        return End("failed", said, () if last is None else last.failing)
    tries = sum(run.kind is RunKind.FIX for run in runs)
    if options.fix and tries < options.max_retries:
        return Run(RunKind.FIX)
    learned = [f"try {number}: {what_failed(run)}" for number, run in enumerate(runs, 1) if run.failure is not None]
    return End("blocked", f"{said}, after {tries} fixes" if tries else said, tuple(learned))


def what_failed(run: AgentRun) -> str:
    """Say in a line what has gone wrong in a run."""
    return "it failed" if run.failure is None else told(run.failure)


def told(failure: Failure) -> str:
    """Say a failure in a line."""
    if failure.runner:
        names = ", ".join(failure.failing[:3]) or "no name"
        return f"{failure.failed} tests failed ({failure.runner}): {names}"
    last = next((line for line in reversed(failure.output.splitlines()) if line.strip()), "")
    return f"{failure.command} ended with {failure.status}" + (f": {last.strip()[:200]}" if last else "")


def _silent(runs: Sequence[AgentRun], line: TaskLine) -> int:
    """Count the agents at the end of the list that ended without a word about their progress."""
    count = 0
    for run in reversed(runs):
        if run.verdict is not Verdict.PARTIAL or (line.progress_at or 0.0) >= run.started_at:
            break
        count += 1
    return count


def _said(line: TaskLine) -> str:
    return line.handoff.summary if line.handoff is not None else ""


def due(lines: Sequence[TaskLine]) -> TaskLine | None:
    """Return the lowest story or epic that can be popped: all below it has ended well, and nothing is leased."""
    above = {line.id: line.parent for line in lines}
    held: set[str | None] = set()
    for line in lines:
        upper = line.parent if line.held else None
        while upper in above:
            held.add(upper)
            upper = above[upper]
    with_children = {line.parent for line in lines}
    for line in reversed(lines):  # from below
        is_open = line.kind in {"story", "epic"} and line.status not in ENDED
        if is_open and line.id in with_children and not line.open_children and not line.badly and line.id not in held:
            return line
    return None


def below(lines: Sequence[TaskLine], frame: str) -> list[TaskLine]:
    """List what is below a frame."""
    inside = {frame}
    found = []
    for line in lines:  # the highest first
        if line.parent in inside:
            inside.add(line.id)
            found.append(line)
    return found


def in_the_way(lines: Sequence[TaskLine]) -> list[str]:
    """Say what keeps the scope from being complete, a line for each frame."""
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    state: Mapping[str, str] = {line.id: line.status for line in lines}
    for line in lines:
        if line.status in {"waiting", "ready"}:
            for on in line.after:
                waiting[on].append(line.id)
    said = []
    for line in lines:
        if line.status in {"failed", "blocked"}:
            wait = [frame for frame in waiting[line.id] if state[frame] == "waiting"]
            said.append(f"{line.id} {line.status}" + (f", {len(wait)} wait for it" if wait else ""))
    open_ones = [line.id for line in lines if line.status not in ENDED and line.kind == "task"]
    return said or [f"{', '.join(open_ones[:5])} not done"] if open_ones or said else []


def batch_outcome(
    runs: Iterable[AgentRun], ends: Iterable[str]
) -> Literal["completed", "interrupted", "failed", "blocked"]:
    """Say how a batch went, by the runs of its tasks and the statuses with which these have ended."""
    statuses = set(ends)
    if "failed" in statuses:
        return "failed"
    if any(run.verdict in (Verdict.CRASHED, Verdict.PARTIAL, None) for run in runs):
        return "interrupted"
    return "blocked" if "blocked" in statuses else "completed"
