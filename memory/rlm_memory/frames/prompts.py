"""The two prompts that have a model condense what was said: of a frame that has ended, and of a goal that goes on.

They ask for different things. A frame that has ended is read by others, who need to know what came of it. A
conversation that overflows is read by the model that goes on with it, which needs to know where it stands.
"""

from __future__ import annotations

COMPLETION = """\
A frame has ended: a goal in a tree of goals. Write its summary. In the contexts of the goals above it and beside it
the summary takes the place of everything that was said and run for it.

Say in this order, in at most 120 words of plain text:
1. what came of the goal: reached, failed or blocked, and the result itself;
2. what others need to go on: names, numbers, paths, line numbers, exactly as they are in the record;
3. decisions, each with its reason, and what was tried in vain.
Leave out how it was done: the log of the frame has every cell with its output. Say nothing that the record does not
show. Reply with the summary alone.

{record}"""

OVERFLOW = """\
A conversation is about to be cut, in the midst of a goal that goes on. Write down what is needed to go on with it:
the model that continues sees this text and the latest turns, and nothing else of what was said before.

Say under these headings, in plain text:
- Goal: what is to be reached, and by what it is known to be.
- State: what is done, what is half done, which files are changed and not saved or committed.
- Next: the very next step.
- Facts: names, paths, variables, ids, commands that work, errors with their exact text.
- Decisions: each with its reason, and what was tried in vain.
- Open: what nobody has answered yet.
Nothing has ended: draw no conclusion, and end no goal. Reply with this text alone.

{record}"""


def completion(record: str) -> str:
    """Return the prompt for the summary of a frame that has ended."""
    return _filled(COMPLETION, record)


def overflow(record: str) -> str:
    """Return the prompt for what a conversation needs that goes on."""
    return _filled(OVERFLOW, record)


def _filled(template: str, record: str) -> str:
    # One replacement, no format string: what was said in a session is nobody's template.
    return template.replace("{record}", record).rstrip()
