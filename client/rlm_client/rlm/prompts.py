"""The messages to the model: how to work, the variables, the output of its code."""

from __future__ import annotations

from rlm_client.rlm.workspace import CodeOutcome

__all__ = [
    "COPIES",
    "LAST_TURN",
    "SETUP",
    "TASK",
    "first_message",
    "is_set_up",
    "output_of",
    "outputs",
    "question_in",
    "system_prompt",
    "task_of_child",
]

SETUP = """\
answer = {"content": "", "ready": False}
final_variable = ""
def FINAL(value):
    answer.update(content=value, ready=True)
def FINAL_VAR(value):
    global final_variable
    answer.update(content=value, ready=True)
    final_variable = value
"""
"""What a session gets before the first turn. ``final_variable`` is what FINAL_VAR was last called with: the name of the
variable whose value is the answer, in a variable of its own, since a printed dictionary can hold any line."""


def is_set_up(code: str) -> bool:
    """Tell whether a cell is the preparation of a run, which the model did not write."""
    return code.strip() == SETUP.strip()


_SYSTEM = """\
You answer a question about data that is too long to read. The data are variables of a Python session; you work on \
them with code, in turns, until you have the answer. You see only what your code prints.

Write code in a block that is marked repl; it runs, and its output comes back in the next turn. Variables stay.
```repl
print(context["line_count"], context["content"][:500])
```

In the session there are:
- {variables}
- llm_query(prompt) asks a language model and returns its answer as a string. It sees only the prompt, so put the \
passage into it (up to {chars:,} characters). Use it to understand text: summarize, extract, classify, judge.
- llm_query_batched(prompts) asks many at once and returns the list of answers; much faster than one after the other.
{recursion}- answer, a dictionary. Submit with answer["content"] = ... and answer["ready"] = True, in a repl block. \
What content holds is what the user gets, as text.

How to work:
1. Look first: sizes, the first lines, the format. Never submit in the first turn.
2. Find with code what code can find (search, regular expressions, counting); ask llm_query about what needs \
understanding. Pack prompts well: a few large ones cost less than many small ones.
3. Print little. Long output is cut to a head and a tail. Keep intermediate results in variables.
4. Check the answer against the data before you submit it. Write a short plan, then one repl block, in each turn.
The session is a sandbox: no network, no other programs, and files only where its policy permits."""

_RECURSION = """\
- rlm_query(prompt) gives a part of the task to a model with a session of its own, a copy of this one, which works in \
turns as you do; returns its answer. rlm_query_batched(prompts) does several at once. For parts that need several steps.
"""
_NOTHING_YET = ". Nothing has been run yet: look at the data first."
_SHOWN_TASK = 4000
TASK = "task, a loaded text: task['content'] is your whole task"
COPIES = "copies of all variables of the session that asks"
LAST_TURN = (
    "There are no more turns, and code is not run any more. Reply with the final answer alone, as plain text, from "
    "what you know now."
)


def system_prompt(variables: list[str], *, recursion: bool, chars: int) -> str:
    """Return the first message, which says how to work."""
    listed = "; ".join(variables) or "no variables yet"
    return _SYSTEM.format(variables=listed, recursion=_RECURSION if recursion else "", chars=chars)


def first_message(question: str, turns: int) -> str:
    """Return the question, as the message that opens the first turn."""
    return f"{question}\n\nTurn 1 of {turns}{_NOTHING_YET}"


def question_in(message: str) -> str:
    """Return the question that `first_message` has put into a message."""
    question, turn, rest = message.rpartition("\n\nTurn 1 of ")
    return question if turn and rest.endswith(_NOTHING_YET) else message


def task_of_child(prompt: str) -> str:
    """Return the question of a child, whose whole prompt is its variable ``task``."""
    if len(prompt) <= _SHOWN_TASK:
        return prompt
    half = _SHOWN_TASK // 2
    return (
        f"{prompt[:half]}\n…[{len(prompt):,} characters; all of it is in task['content']]…\n{prompt[-half:]}\n"
        "You have all variables of the session that asks, as copies."
    )


def outputs(outcomes: list[CodeOutcome], *, cut: bool, turn: int, turns: int) -> str:
    """Return the output of a turn's code, and announce the next turn if there is one."""
    several = len(outcomes) > 1
    parts = [
        f"Output of block {number}:\n{output_of(outcome)}" if several else f"Output:\n{output_of(outcome)}"
        for number, outcome in enumerate(outcomes, 1)
    ]
    if cut:
        parts.append("Your reply was cut before its code block ended; that block was not run. Write it shorter.")
    elif not outcomes:
        parts.append(
            'Nothing was run. Write code in a ```repl block, or submit: set answer["content"] and answer["ready"].'
        )
    left = turns - turn
    if not left:
        return "\n\n".join(parts)
    hint = " Submit what you have before the turns end." if left < 3 else ""
    return "\n\n".join([*parts, f"Turn {turn + 1} of {turns}.{hint}"])


def output_of(outcome: CodeOutcome) -> str:
    """Return what a block has printed, its value and its error."""
    said = [outcome.stdout.rstrip("\n"), outcome.stderr.rstrip("\n"), outcome.result or "", outcome.error or ""]
    if outcome.answered_later:
        said.append(f"(answered now: {', '.join(outcome.answered_later)}; the values are in place)")
    return "\n".join([part for part in said if part] or ["(no output)"])
