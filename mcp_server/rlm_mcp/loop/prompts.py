"""The prompt of an agent of the loop: its task, where to find more, where the previous agent stopped, how to end.

It names the hand-offs of the tasks that came before and does not repeat them: an agent reads those that it needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlm_ipc.chain_requests import AgentRun, Failure, RunKind, TaskLine, Verdict

INTERACTIVE = """\
Work on the tasks of this repository's queue until none is ready. The story or epic named at the end is the scope. If
none is named, ask the user which one to work on before you begin.

1. `work(do="next", data={"scope": …, "limit": 2})` lists tasks that can be worked on in parallel. Start with two at a
   time. After a successful batch, take one more (up to four); after a failed one, take one fewer.
2. `work(do="claim", id=…)`, or give a sub-agent the id. The answer describes the task and says where the previous
   agent stopped. `handoff(id=…)` shows the result of an earlier task: read only what you need.
3. `work(do="renew", id=…, data={"phase": …, "next_step": …, "decisions": […]})` records what others need to know.
4. Run the tests. If they fail, fix the failures and run them again, up to three times; do not fix a spike. If they
   still fail, end the task as blocked and say what you have learned.
5. `handoff(id=…, data={"status": "PASS", "summary": …, "files": […], "decisions": […], "details": …})`, then
   `work(do="done", id=…, data={"summary": …})`; add `"status": "failed"` or `"blocked"` if the task did not succeed.
6. When an answer says that all below a story has completed, check that the story is really done, then call
   `work(do="done", id=…)`.

When your context is nearly full, release the tasks that you have claimed, each with its next step: the next agent that
calls /work continues them. When nothing is ready and the answer names a task that is stuck, tell the user and stop.

{scope}"""
"""The prompt of `/work`, for an agent that works on the queue in its own conversation."""

_OUTPUT = 2_000
"""Characters from the end of a failed command's output."""
_PROGRESS = 3_000
_LONGEST_CONTEXT = 8_000
_END = """\
Work on this task only, and only in the folder {folder}. Keep what others need to know while you work:
  rlm-kernel work renew {task} --phase PHASE --next-step "WHAT COMES NEXT" --decision "WHAT YOU DECIDED, AND WHY"
When it is done, commit your changes if this is a repository, write the hand-off, and exit:
  rlm-kernel work handoff {task} --summary "TWO OR THREE SENTENCES" --file CHANGED --decision TAKEN
Add --status FAIL if it cannot be done, or --status BLOCKED if something else is needed first, and say what.
If you cannot finish, run the first command with the next step and exit without a hand-off: another agent continues.
(The MCP tools `work` with do="renew" and `handoff` do the same.) The task is tested and ended after that.{tests}"""


def interactive(scope: str) -> str:
    """Return the prompt of `/work`, for a scope or for none."""
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
    """Return the prompt of an agent. ``runs`` are the runs of its task so far, ``context`` is that of its frame."""
    parts = [_task(line), _before(line, lines)]
    if kind is RunKind.FIX:
        parts.append(_fix(runs))
    elif runs or line.fence > 1:
        parts.append(_going_on(line, runs, kind))
    if context and kind is not RunKind.FIX:
        parts.append(f"Context of the task:\n{context[:_LONGEST_CONTEXT]}")
    condition = "" if not tests else " These commands must succeed: " + "; ".join(tests)
    parts.append(_END.format(task=line.id, folder=folder, tests=condition))
    return "\n\n".join(part for part in parts if part)


def _task(line: TaskLine) -> str:
    text = [f"You work on the task {line.id} ({line.type}) of this repository: {line.title}"]
    text.append(f"For how to do tasks of this type, run: rlm-kernel skills show --type {line.type}")
    text += [line.description] if line.description else []
    text += [f"It is done when: {line.acceptance}"] if line.acceptance else []
    text += [f"It will write: {', '.join(line.paths)}. Other agents write elsewhere."] if line.paths else []
    return "\n".join(text)


def _before(line: TaskLine, lines: Mapping[str, TaskLine]) -> str:
    earlier = [lines[frame] for frame in line.after if frame in lines and lines[frame].handoff is not None]
    if not earlier:
        return ""
    titles = [f"  {task.id} {task.handoff.status if task.handoff else ''}: {task.title[:100]}" for task in earlier]
    return "\n".join([f"Earlier tasks; read what you need, with `rlm-kernel work handoff {earlier[0].id}`:", *titles])


def _going_on(line: TaskLine, runs: Sequence[AgentRun], kind: RunKind) -> str:
    number = len(runs) + 1
    crashed = kind is RunKind.RECOVERED or not runs
    how = (
        "The agent before you was cut short: check what it left before you continue. It may be half done."
        if crashed
        else "The agent before you ended by itself and left the rest to you."
    )
    text = [f"You are agent {number} for this task, attempt {line.fence}. {how}"]
    if line.progress:
        progress = json.dumps(line.progress, ensure_ascii=False)
        text.append(f"Its progress: {progress[:_PROGRESS]}")
    if runs and runs[-1].log:
        text.append(f"The output of the agent before you: {Path(runs[-1].log)}")
    return "\n".join(text)


def _fix(runs: Sequence[AgentRun]) -> str:
    """Describe the last failure in full and each earlier one in a line, so that no agent tries the same again."""
    failed = [run for run in runs if run.verdict is Verdict.FAULTY and run.failure is not None]
    if not failed:
        return "The work on this task failed. Find the cause and fix it, and nothing else."
    last = failed[-1].failure
    assert last is not None
    text = [f"The work is there, but `{last.command}` exited with {last.status}. Fix that, and nothing else."]
    if last.runner:
        names = ", ".join(last.failing) or "unnamed"
        text.append(f"{last.runner}: {last.passed} passed, {last.failed} failed: {names}")
    text.append(f"The end of its output:\n{last.output[-_OUTPUT:]}")
    text += [f"Tried before: {_short(run.failure)}" for run in failed[:-1] if run.failure is not None]
    return "\n".join(text)


def _short(failure: Failure) -> str:
    return f"`{failure.command}` exited with {failure.status}, failing: {', '.join(failure.failing[:3]) or 'no test'}"
