"""Decides what a loop does next, from rows alone. Nothing here does any I/O.

A task goes through runs of agents until it has ended:

    verdict of the last run       then
    ──────────────────────        ──────────────────────────────────────────────────────────
    (no run yet)                  a first run
    passed                        complete it
    failed, blocked               end it as the agent says
    partial                       continued by another agent, within the limit
    crashed                       recovered by another agent, within the limit
    faulty                        up to three fixes; a spike is not fixed: its failure is the result
    lost                          leave it to its new holder
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
"""How many agents may die on a task before it is blocked: the task may be what kills them."""
MOST_SILENT = 3
"""How many agents in a row may end without a hand-off or progress notes."""


@dataclass(frozen=True, slots=True)
class Run:
    """Start an agent."""

    kind: RunKind


@dataclass(frozen=True, slots=True)
class Complete:
    """The task is done and checked."""


@dataclass(frozen=True, slots=True)
class End:
    """The task ends without success."""

    status: Literal["failed", "blocked"]
    why: str
    learned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """This loop does no more for the task; ``limit`` if the continuation limit is the reason."""

    limit: bool = False


Action = Run | Complete | End | Leave


def by_task(runs: Iterable[AgentRun]) -> dict[str, list[AgentRun]]:
    """Map tasks to their runs, in their order."""
    found: defaultdict[str, list[AgentRun]] = defaultdict(list)
    for run in runs:
        found[run.task].append(run)
    return found


def links(runs: Iterable[AgentRun]) -> int:
    """Count the agents that continued another agent's work."""
    return sum(run.kind in LINKS for run in runs)


def judge(run: AgentRun, status: int | None, line: TaskLine, *, tested: bool) -> Verdict:
    """Return the verdict on a run that exited with ``status``; None: unknown, or ended by a signal.

    ``tested``: if the agent left no hand-off, the tests decide.
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
    """Return the next step for a task with these runs. Its row has precedence over them."""
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
                return End("blocked", f"{silent} agents have ended without a hand-off or progress notes")
            return Run(RunKind.CONTINUED) if links_left > 0 else Leave(limit=True)
        case Verdict.FAULTY:
            return _fix(runs, line, options)
        case Verdict.LOST:
            return Leave()
        case _:  # crashed, or never judged because the loop was killed
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
    """Describe in one line what went wrong in a run."""
    return "it failed" if run.failure is None else told(run.failure)


def told(failure: Failure) -> str:
    """Describe a failure in one line."""
    if failure.runner:
        names = ", ".join(failure.failing[:3]) or "no name"
        return f"{failure.failed} tests failed ({failure.runner}): {names}"
    last = next((line for line in reversed(failure.output.splitlines()) if line.strip()), "")
    return f"{failure.command} ended with {failure.status}" + (f": {last.strip()[:200]}" if last else "")


def _silent(runs: Sequence[AgentRun], line: TaskLine) -> int:
    """Count the agents at the end of the list that ended without progress notes."""
    count = 0
    for run in reversed(runs):
        if run.verdict is not Verdict.PARTIAL or (line.progress_at or 0.0) >= run.started_at:
            break
        count += 1
    return count


def _said(line: TaskLine) -> str:
    return line.handoff.summary if line.handoff is not None else ""


def due(lines: Sequence[TaskLine]) -> TaskLine | None:
    """Return the lowest story or epic that can be popped: everything below it completed, and nothing is leased."""
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
    """List the frames below a frame."""
    inside = {frame}
    found = []
    for line in lines:  # the highest first
        if line.parent in inside:
            inside.add(line.id)
            found.append(line)
    return found


def in_the_way(lines: Sequence[TaskLine]) -> list[str]:
    """Return what keeps the scope from being complete, one line for each frame."""
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    state: Mapping[str, str] = {line.id: line.status for line in lines}
    for line in lines:
        if line.status in {"waiting", "ready"}:
            for on in line.after:
                waiting[on].append(line.id)
    obstacles = []
    for line in lines:
        if line.status in {"failed", "blocked"}:
            wait = [frame for frame in waiting[line.id] if state[frame] == "waiting"]
            obstacles.append(f"{line.id} {line.status}" + (f"; tasks waiting for it: {len(wait)}" if wait else ""))
    unfinished = [line.id for line in lines if line.status not in ENDED and line.kind == "task"]
    return obstacles or [f"{', '.join(unfinished[:5])} not done"] if unfinished or obstacles else []


def batch_outcome(
    runs: Iterable[AgentRun], ends: Iterable[str]
) -> Literal["completed", "interrupted", "failed", "blocked"]:
    """Return the outcome of a batch, from the runs of its tasks and their final statuses."""
    statuses = set(ends)
    if "failed" in statuses:
        return "failed"
    if any(run.verdict in (Verdict.CRASHED, Verdict.PARTIAL, None) for run in runs):
        return "interrupted"
    return "blocked" if "blocked" in statuses else "completed"
