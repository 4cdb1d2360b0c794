"""The prompts that clients show as slash commands: how to use the context kernel, and the verbs of goals."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.loop.prompts import INTERACTIVE
from rlm_memory.frames.prompts import completion, overflow

INSTRUCTIONS = (
    "Load large texts once with load_context and pass their names, never the text. scan before peek; "
    "eval_code to count, filter and compare; return insights, not data; unload when done. All agents of one "
    "task share one session; the argument `session` names another."
)
"""The text that clients may put into their system prompt. It is short because it is sent on every turn."""

CONTEXT_KERNEL = """\
You work with the context kernel: it keeps large texts in a shared Python session, and agents pass their names.

1. Load once, then pass the name. `load_context(name="prod_log", path="production.log", content_type="log")`;
   prefer a path to inline content. Spawn sub-agents with the variable's name and a question, not the text.
2. Scan before you peek. `scan("prod_log", "ERROR|FATAL", context_lines=2)` finds the lines;
   `peek("prod_log", offset=line, limit=20)` reads around them. Do not page through a whole text.
3. Use Python when you would count, filter, group or compare:
   `eval_code("errors = [l for l in prod_log['lines'] if 'ERROR' in l]; print(len(errors))")`. Variables
   persist between calls and are shared with the other agents of the session.
4. Sub-agents return insights, not data: "5 errors at lines 42, 105 and 237, mostly timeouts", never lines.
5. Code may ask you: `note = llm_query("Summarize these errors: …")` queues a question. When a result lists
   `pending_llm_queries`, answer with `answer_queries(answers={"q_000": "…"})`; in the next cell `note` is the
   answer and `llm_answers` holds all of them. Code that calls `llm_query("…", mode="blocking")` waits for you
   (status "waiting"): `answer_queries` then returns its result. `peek("q_000")` reads a prompt that is `cut`.
6. Code that runs longer than a call may block returns {"status": "running", "run": "r7"}: call `wait(run="r7")`.
7. To share a text with another session, `register_handle("prod_log")` returns a handle. It works there in place
   of a name.
8. Unload when done: `unload("prod_log")`. A session that nobody uses for hours is set aside, and later removed.

The session's policy limits loaded text, memory and the time of a cell: `status` shows them. Errors say what to do next.
"""

_PLAN = """\
Record the plan as goals before you begin: call `plan(goal=…, children=[…])`. A child is a string, or {"goal":
…, "children": […]}. Keep each goal small enough to be worked on separately. Nothing starts until you `push` a
goal by its id.

{goal}"""
_PUSH = """\
Start a goal: call `push(goal=…)` with a text, or with the id of a planned frame. The goal gets a fork of this
session with every variable. Work on it with `session` set to the returned id, or give a sub-agent only that id and
the `context` from the answer. When the work is finished, call `pop`.

{goal}"""
_POP = """\
End a goal: call `pop(summary=…)` for the current frame, or with its `id`. In the summary, state the
findings and decisions with the names, numbers and line numbers that others will need. If the goal failed, pass
status="failed" and say why. List files in `artifacts`, choices in `decisions`, and in `hand_over` the variables to
copy to the parent session. The frame's log keeps the cells and their output, so do not repeat them.

{goal}"""
_COMPLETION = completion("""\
Do this for the frame whose id is given below; if there is none, for the current frame. Read its record with
`frame(id=…, do="turns")`. Then end it with `pop(id=…, summary=…)`.

{id}""")
_OVERFLOW = overflow("""\
Save the text in the current frame before the conversation is cut: `frame(note=…)`. When you continue,
`frame(do="turns")` shows it with the latest cells.

{goal}""")
_STATUS = """\
Report the state of the work: call `frame()`. In a few lines, tell the user the path down to the current goal, which
goals have ended and with what result, what is in progress, and what is planned next. Change nothing."""
_FRAME = """\
Call `frame(id=…)` with the id given below; if there is none, without an id, for the current frame. Read its
`context` and continue from there. An open frame becomes the current one. Its `log` has every cell with its output.

{id}"""


@dataclass(frozen=True)
class _Prompt:
    """A prompt. ``argument`` is the name and meaning of the one argument of its text, if it has one."""

    title: str
    description: str
    text: str
    argument: tuple[str, str] | None = None


_PROMPTS = {
    "context-kernel": _Prompt(
        "Context kernel",
        "How to work on large texts by name: load once, scan, return insights, unload.",
        CONTEXT_KERNEL,
    ),
    "plan": _Prompt("Plan", "Record goals as a tree before work begins.", _PLAN, ("goal", "the goal to achieve")),
    "push": _Prompt(
        "Push", "Start a goal in a fork of the session.", _PUSH, ("goal", "the goal, or the id of a planned frame")
    ),
    "pop": _Prompt("Pop", "End a goal and record its result.", _POP, ("goal", "the result, or the frame's id")),
    "frame-completion": _Prompt(
        "Frame completion",
        "Summarize a goal that ends, for its parent and sibling goals.",
        _COMPLETION,
        ("id", "the frame, such as f7"),
    ),
    "overflow-compaction": _Prompt(
        "Overflow compaction",
        "Write down what is needed to continue a goal, before the conversation is cut.",
        _OVERFLOW,
        ("goal", "what to preserve"),
    ),
    "status": _Prompt("Status", "Report what is done, what is in progress and what is planned.", _STATUS),
    "work": _Prompt(
        "Work",
        "Work on the tasks of a story or an epic until none is ready.",
        INTERACTIVE,
        ("scope", "the story or epic, such as f7"),
    ),
    "frame": _Prompt("Frame", "Switch to a goal and continue it.", _FRAME, ("id", "the frame, such as f7")),
}


def list_prompts() -> list[Prompt]:
    """List the prompts."""
    return [_listed(name, prompt) for name, prompt in _PROMPTS.items()]


def get_prompt(name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult | None:
    """Return a prompt's text, or None if no prompt has that name. Unknown arguments are ignored."""
    prompt = _PROMPTS.get(name)
    if prompt is None:
        return None
    text = prompt.text
    if prompt.argument is not None:
        # One replacement, not a format string: an argument may contain braces.
        argument, _ = prompt.argument
        text = text.replace(f"{{{argument}}}", (arguments or {}).get(argument, "")).rstrip()
    message = PromptMessage(role="user", content=TextContent(text=text))
    return GetPromptResult(description=prompt.description, messages=[message])


def _listed(name: str, prompt: _Prompt) -> Prompt:
    arguments = None
    if prompt.argument is not None:
        argument, meaning = prompt.argument
        arguments = [PromptArgument(name=argument, description=meaning, required=False)]
    return Prompt(name=name, title=prompt.title, description=prompt.description, arguments=arguments)
