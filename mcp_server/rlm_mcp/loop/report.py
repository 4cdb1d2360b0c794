"""The report of a chain, from rows alone: completed tasks, failures, decisions and next steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlm_ipc.chain_requests import AgentRun, Chain, RunKind, TaskLine
from rlm_mcp.loop.planner import ENDED, by_task, in_the_way, what_failed

_SUMMARY = 400
_MOST_NEXT = 20


def summary(lines: Sequence[TaskLine]) -> str:
    """Summarize the state of a scope's tasks in a sentence."""
    counts = {status: len(found) for status in ENDED if (found := _tasks(lines, status))}
    open_ones = sum(line.kind == "task" and line.status not in ENDED for line in lines)
    said = [f"{number} {status}" for status, number in counts.items()] + ([f"{open_ones} open"] if open_ones else [])
    return f"Tasks: {', '.join(said) or 'none'}."


def decisions(line: TaskLine) -> Sequence[str]:
    """List the decisions of an ended frame."""
    return line.handoff.decisions if line.handoff is not None else ()


def report(
    chain: Chain, lines: Sequence[TaskLine], runs: Sequence[AgentRun], *, branch: str = "", unfit: Sequence[str] = ()
) -> str:
    """Return the report as Markdown. ``unfit`` maps stories and epics that are not complete to the reason."""
    kinds = {kind: sum(run.kind is kind for run in runs) for kind in RunKind}
    scope = next((line for line in lines if line.id == chain.scope), None)
    agents = (
        f"Agents: {len(runs)}, of which {kinds[RunKind.CONTINUED]} continued, {kinds[RunKind.RECOVERED]} recovered "
        f"from a crash and {kinds[RunKind.FIX]} fixed a failure. Outcome: {chain.outcome or 'not ended'}."
    )
    parts = [f"# Chain {chain.number}: {scope.title if scope else 'all tasks'}", f"{summary(lines)} {agents}"]
    if branch:
        parts.append(f"What is done is on the branch `{branch}`.")
    parts += _section("Completed", [_told(line) for line in _tasks(lines, "completed")])
    history = by_task(runs)
    badly = [line for status in ("failed", "blocked") for line in _tasks(lines, status)]
    parts += _section("Failed", [_whole(line, history.get(line.id, [])) for line in badly])
    decided = [f"- {line.id}: {one}" for line in lines if line.kind == "task" for one in decisions(line)]
    parts += _section("Decisions", decided)
    left = {run.task: run.left for run in runs}  # the latest run of each
    parts += _section("Not committed", [f"- {task}: {', '.join(files)}" for task, files in left.items() if files])
    parts += _section("Next steps", [f"- {said}" for said in (*unfit, *_next(lines))])
    return "\n\n".join(parts) + "\n"


def _tasks(lines: Iterable[TaskLine], status: str) -> list[TaskLine]:
    return [line for line in lines if line.kind == "task" and line.status == status]


def _told(line: TaskLine) -> str:
    said = " ".join(line.handoff.summary.split())[:_SUMMARY] if line.handoff is not None else ""
    return f"- {line.id} {line.title}" + (f": {said}" if said else "")


def _whole(line: TaskLine, runs: Sequence[AgentRun]) -> str:
    said = [f"- {line.id} {line.title} ({line.status})"]
    if line.handoff is not None:
        said.append(f"  {' '.join(line.handoff.summary.split())}")
    said += [f"  - agent {run.number} ({run.kind}): {what_failed(run)}" for run in runs if run.failure is not None]
    return "\n".join(said)


def _next(lines: Sequence[TaskLine]) -> list[str]:
    steps = in_the_way(lines)
    for line in lines:
        if line.kind == "task" and line.status not in ENDED and (step := line.progress.get("next_step")):
            steps.append(f"{line.id}: {step}")
    return steps[:_MOST_NEXT]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}\n\n" + "\n".join(lines)] if lines else []
