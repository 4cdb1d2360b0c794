"""The prompts that clients show as slash commands: how to work with the context kernel, and the verbs of goals."""

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
"""The text that clients may put into their system prompt; short, because it is sent on every turn."""

CONTEXT_KERNEL = """\
You work with the context kernel: large texts live in a shared Python session, and agents pass their names.

1. Load once, reference many. `load_context(name="prod_log", path="production.log", content_type="log")`;
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

Limits: 100 MB of loaded text per session, 60 seconds and 1 MB of output per cell. Errors say what to do next.
"""

_PLAN = """\
Write the plan down as goals before you begin: call `plan(goal=…, children=[…])`. A child is a text, or {"goal":
…, "children": […]}. Keep goals so small that each can be worked on by itself. Nothing starts until you `push` a
goal by its id.

{goal}"""
_PUSH = """\
Start a goal: call `push(goal=…)` with a text, or with the id of a planned frame. It gets a fork of this session
with every variable. Work on it with `session` set to its id, or give a sub-agent that id and the `context` of
the answer, and no more. When it has ended, call `pop`.

{goal}"""
_POP = """\
End a goal: call `pop(summary=…)` for the current frame, or with its `id`. Say in the summary what was found and
what was decided, with names, numbers and line numbers that others will need; say what failed, with
status="failed". Name files in `artifacts`, choices in `decisions`, and in `hand_over` the variables that the
session above is to have. The cells and their output stay in the log of the frame, so do not repeat them.

{goal}"""
_COMPLETION = completion("""\
Do this for the frame with the id below, or without one for the current frame. Read its record with `frame(id=…,
do="turns")`. Then end it: `pop(id=…, summary=…)`.

{id}""")
_OVERFLOW = overflow("""\
Keep the text with the current frame before the conversation is cut: `frame(note=…)`. When you go on,
`frame(do="turns")` shows it with the latest cells.

{goal}""")
_STATUS = """\
Show where we are: call `frame()`. Tell the user in a few lines the way down to the current goal, what has ended
and what came of it, what runs, and what is planned next. Change nothing."""
_FRAME = """\
Call `frame(id=…)` with the id below, or without one for the current frame. Read its `context` and go on from
there; an open frame becomes the current one. Its `log` has every cell with its output.

{id}"""


@dataclass(frozen=True)
class _Prompt:
    """A prompt, and the name and meaning of the one argument that its text takes, if it takes one."""

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
    "plan": _Prompt(
        "Plan", "Write goals down as a tree, before work begins.", _PLAN, ("goal", "what is to be reached")
    ),
    "push": _Prompt("Push", "Start a goal in a fork of the session.", _PUSH, ("goal", "a text, or the id of a frame")),
    "pop": _Prompt("Pop", "End a goal and keep what came of it.", _POP, ("goal", "what came of it, or the frame's id")),
    "frame-completion": _Prompt(
        "Frame completion",
        "Write the summary of a goal that ends, for the goals above it and beside it.",
        _COMPLETION,
        ("id", "the frame, such as f7"),
    ),
    "overflow-compaction": _Prompt(
        "Overflow compaction",
        "Write down what is needed to go on with a goal, before the conversation is cut.",
        _OVERFLOW,
        ("goal", "what must not be lost"),
    ),
    "status": _Prompt("Status", "Tell what has been reached, what runs, what is planned.", _STATUS),
    "work": _Prompt(
        "Work",
        "Work on the tasks of a story or an epic until none is ready.",
        INTERACTIVE,
        ("scope", "the story or epic, such as f7"),
    ),
    "frame": _Prompt("Frame", "Go to a goal and go on with it.", _FRAME, ("id", "the frame, such as f7")),
}


def list_prompts() -> list[Prompt]:
    """List the prompts."""
    return [_listed(name, prompt) for name, prompt in _PROMPTS.items()]


def get_prompt(name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult | None:
    """Return a prompt's text, or None when there is none of that name. Arguments that it does not know are left out."""
    prompt = _PROMPTS.get(name)
    if prompt is None:
        return None
    text = prompt.text
    if prompt.argument is not None:
        # One replacement, no format string: the text of an argument is nobody's template.
        argument, _ = prompt.argument
        text = text.replace(f"{{{argument}}}", (arguments or {}).get(argument, "")).rstrip()
    message = PromptMessage(role="user", content=TextContent(text=text))
    return GetPromptResult(description=prompt.description, messages=[message])


def _listed(name: str, prompt: _Prompt) -> Prompt:
    taken = None
    if prompt.argument is not None:
        argument, meaning = prompt.argument
        taken = [PromptArgument(name=argument, description=meaning, required=False)]
    return Prompt(name=name, title=prompt.title, description=prompt.description, arguments=taken)
