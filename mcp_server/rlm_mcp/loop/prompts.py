"""What an agent of the loop is told: its task, where to look for more, where the one before stopped, how to end.

Hand-offs of what its task waited for are named and not repeated: whoever needs one reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlm_ipc.chain_requests import AgentRun, Failure, RunKind, TaskLine, Verdict

INTERACTIVE = """\
Work on the tasks of this repository's queue until none is ready, below the story or epic that is named at the end. If
none is, ask which is meant before you begin.

1. `work(do="next", data={"scope": …, "limit": 2})` lists what may be worked on side by side. Begin with two; after a
   batch that went well take one more, four at most, and after one that did not take one less.
2. `work(do="claim", id=…)`, or give a sub-agent the id. The answer says what the task is, and where the one before
   stopped. `handoff(id=…)` shows what a task that came before has left: read what you need, and no more.
3. `work(do="renew", id=…, data={"phase": …, "next_step": …, "decisions": […]})` keeps what others need to know.
4. Run the tests. If they fail, mend what failed and run them again, three times at most; a spike is not mended. Then
   end it as blocked, and say what you have learned.
5. `handoff(id=…, data={"status": "PASS", "summary": …, "files": […], "decisions": […], "details": …})`, then
   `work(do="done", id=…, data={"summary": …})`, with `"status": "failed"` or `"blocked"` if it went so.
6. When an answer says that a story has completed, look whether it has, and `work(do="done", id=…)` it.

When your context is nearly full, release what you have claimed, with its next step: whoever calls /work again goes on
with it. When nothing is ready and the answer names what is stuck, tell the user and end.

{scope}"""
"""What `/work` tells an agent that works on the queue in its own conversation."""

_OUTPUT = 2_000
"""Characters of the output of what failed, from its end."""
_PROGRESS = 3_000
_LONGEST_CONTEXT = 8_000
_END = """\
Work on this task only, and only in the folder {folder}. Keep what others need to know while you work:
  rlm-kernel work renew {task} --phase PHASE --next-step "WHAT COMES NEXT" --decision "WHAT YOU DECIDED, AND WHY"
When it is done, commit what you changed if this is a repository, write the hand-off, and end:
  rlm-kernel work handoff {task} --summary "TWO OR THREE SENTENCES" --file CHANGED --decision TAKEN
With --status FAIL if it cannot be done, with --status BLOCKED if something else is needed first: say what.
If you cannot finish now, run the first command with the next step, and end without a hand-off: another agent goes on.
(The MCP tools `work` with do="renew" and `handoff` do the same.) The task is tested and ended after you.{tests}"""


def interactive(scope: str) -> str:
    """Return what `/work` tells an agent, for a scope or none."""
    return INTERACTIVE.replace("{scope}", scope).rstrip()


def prompt(
    line: TaskLine,
    lines: Mapping[str, TaskLine],
    runs: Sequence[AgentRun],
    kind: RunKind,
    *,
    context: str = "",
    tests: Sequence[str] = (),
    folder: str = "",
) -> str:
    """Return the prompt of an agent. ``runs`` are those of its task so far, ``context`` is what surrounds it."""
    parts = [_task(line), _before(line, lines)]
    if kind is RunKind.FIX:
        parts.append(_fix(runs))
    elif runs or line.fence > 1:
        parts.append(_going_on(line, runs, kind))
    if context and kind is not RunKind.FIX:
        parts.append(f"What surrounds it:\n{context[:_LONGEST_CONTEXT]}")
    told = "" if not tests else " These commands must succeed: " + "; ".join(tests)
    parts.append(_END.format(task=line.id, folder=folder, tests=told))
    return "\n\n".join(part for part in parts if part)


def _task(line: TaskLine) -> str:
    said = [f"You work on the task {line.id} ({line.type}) of this repository: {line.title}"]
    said.append(f"How tasks of that type are done: rlm-kernel skills show --type {line.type}")
    said += [line.description] if line.description else []
    said += [f"It is done when: {line.acceptance}"] if line.acceptance else []
    said += [f"It is going to write: {', '.join(line.paths)}. Others write elsewhere."] if line.paths else []
    return "\n".join(said)


def _before(line: TaskLine, lines: Mapping[str, TaskLine]) -> str:
    known = [lines[frame] for frame in line.after if frame in lines and lines[frame].handoff is not None]
    if not known:
        return ""
    told = [f"  {one.id} {one.handoff.status if one.handoff else ''}: {one.title[:100]}" for one in known]
    return "\n".join([f"Done before it; read with `rlm-kernel work handoff {known[0].id}` what you need:", *told])


def _going_on(line: TaskLine, runs: Sequence[AgentRun], kind: RunKind) -> str:
    number = len(runs) + 1
    crashed = kind is RunKind.RECOVERED or not runs
    how = (
        "The agent before you was cut short: look at what is there before you go on. It may be half done."
        if crashed
        else "The agent before you ended by itself and left the rest to you."
    )
    said = [f"You are agent {number} for this task, attempt {line.fence}. {how}"]
    if line.progress:
        kept = json.dumps(line.progress, ensure_ascii=False)
        said.append(f"What it has left: {kept[:_PROGRESS]}")
    if runs and runs[-1].log:
        said.append(f"The output of the agent before you: {Path(runs[-1].log)}")
    return "\n".join(said)


def _fix(runs: Sequence[AgentRun]) -> str:
    """Tell of the last failure all, and of those before a line each, so that nobody tries the same again."""
    failed = [run for run in runs if run.verdict is Verdict.FAULTY and run.failure is not None]
    if not failed:
        return "The work on this task failed. Find the fault and mend it, and nothing else."
    last = failed[-1].failure
    assert last is not None
    said = [f"The work is there, but `{last.command}` ended with {last.status}. Mend that, and nothing else."]
    if last.runner:
        names = ", ".join(last.failing) or "unnamed"
        said.append(f"{last.runner}: {last.passed} passed, {last.failed} failed: {names}")
    said.append(f"The end of its output:\n{last.output[-_OUTPUT:]}")
    said += [f"Tried before: {_short(run.failure)}" for run in failed[:-1] if run.failure is not None]
    return "\n".join(said)


def _short(failure: Failure) -> str:
    return f"`{failure.command}` ended with {failure.status}, failing: {', '.join(failure.failing[:3]) or 'no test'}"
