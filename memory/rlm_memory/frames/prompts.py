"""The two prompts that ask a model to condense a conversation: of an ended frame, and of a goal that continues.

They ask for different things. Others read the summary of an ended frame, and need to know its result. The model that
continues an overflowing conversation reads the other one, and needs to know where it stands.
"""

from __future__ import annotations

COMPLETION = """\
A frame, which is a goal in a tree of goals, has ended. Write its summary. In the contexts of the goals above and
beside it, the summary replaces everything that was said and run for it.

Write at most 120 words of plain text, in this order:
1. the outcome of the goal: completed, failed or blocked, and the result itself;
2. what others need to continue: names, numbers, paths, line numbers, exactly as they are in the record;
3. decisions, each with its reason, and what was tried without success.
Leave out how it was done: the log of the frame has every cell with its output. State nothing that the record does not
show. Reply with only the summary.

{record}"""

OVERFLOW = """\
A conversation is about to be cut while work on its goal continues. Write down what is needed to continue:
the next model sees this text and the latest turns, and nothing else of the conversation.

Use these headings, in plain text:
- Goal: what to achieve, and how to tell that it is achieved.
- State: what is done, what is half done, which changed files are not saved or committed.
- Next: the immediate next step.
- Facts: names, paths, variables, ids, commands that work, errors with their exact text.
- Decisions: each with its reason, and what was tried without success.
- Open: questions without an answer.
Nothing has ended: draw no conclusions, and end no goal. Reply with only this text.

{record}"""


def completion(record: str) -> str:
    """Return the prompt for the summary of an ended frame."""
    return _filled(COMPLETION, record)


def overflow(record: str) -> str:
    """Return the prompt for what a continuing conversation needs."""
    return _filled(OVERFLOW, record)


def _filled(template: str, record: str) -> str:
    # One replacement, not a format string: text from a session must never act as a template.
    return template.replace("{record}", record).rstrip()
