"""Summaries without a model, and the input of a model that writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from rlm_memory.transcripts.masking import unmask
from rlm_memory.transcripts.messages import Message, blocks, functions_of
from rlm_memory.transcripts.turn import Turn

HEADER = "[Context Summary]\n"
_SHORTEST = 20
_LONGEST = 300
_LISTED = 10
_LONGEST_SECTION = 2000
_GOAL, _CHOICE = 200, 500
_SAID = 120
"""Characters of each message in a turn's line."""
_GAP = "(the lines before this one are in the record)"


def simple_summary(messages: Sequence[Message]) -> str:
    """Return the heads of the last ten messages that are not short, as documented; "" for no messages."""
    if not messages:
        return ""
    heads = []
    for message in messages:
        content = str(message.get("content", ""))
        if len(content) < _SHORTEST:
            continue
        if len(content) > _LONGEST:
            content = content[:_LONGEST] + "..."
        heads.append(f"[{message.get('role', '')}]: {content}")
    return f"Summarized {len(messages)} messages:\n" + "\n".join(heads[-_LISTED:])


class Step(TypedDict, total=False):
    """A message as a summarizer gets it: a goal has its content, a decision the other fields."""

    type: Required[Literal["goal", "decision"]]
    content: str
    title: str
    context: str
    choice: str
    rationale: str
    alternatives: list[str]


def trajectory_of(messages: Iterable[Message]) -> list[Step]:
    """Return messages as steps: a user's message is a goal, an assistant's reply a decision."""
    steps: list[Step] = []
    for number, message in enumerate(messages):
        content = str(message.get("content") or "")
        if message.get("role") == "user":
            steps.append({"type": "goal", "content": content[:_GOAL]})
        elif message.get("role") == "assistant":
            steps.append(
                {
                    "type": "decision",
                    "title": f"Step {number // 2 + 1}",
                    "context": "",
                    "choice": content[:_CHOICE],
                    "rationale": "Assistant response",
                    "alternatives": [],
                }
            )
    return steps


def section_of(markdown: str) -> str:
    """Return the text under ``## Summary`` and the headings under ``## Decision Path``, in one line."""
    section, found = "", []
    for line in markdown.split("\n"):
        if line.startswith("## "):
            section = line[3:].strip()
        elif section == "Summary" and line.strip():
            found.append(line.strip())
        elif section == "Decision Path" and line.startswith("###"):
            found.append(f"  - {line.replace('###', '').strip()}")
    return " ".join(found)[:_LONGEST_SECTION]


def extended(summary: str | None, text: str) -> str:
    """Return one summary: the old one, unchanged, and the new text after it."""
    if not summary or summary == text:
        return text
    return f"{summary}\n{text}"


def condensed(summary: str, weigh: Callable[[str], int], room: int) -> str | None:
    """Return the summary's last lines that fit, after a line that says that there were more; None if none fits."""
    lines = summary.split("\n")
    first, left = len(lines), room - weigh(HEADER + _GAP)
    while first > 0 and weigh("\n" + lines[first - 1]) <= left:
        first -= 1
        left -= weigh("\n" + lines[first])
    return "\n".join([_GAP, *lines[first:]]) if first < len(lines) else None


def line_of(turn: Turn, number: int, kept: Mapping[str, Any]) -> str:
    """Return a turn in one line: who said what, and which tools were called. Masked content is read from ``kept``."""
    asked, replied = turn.user_message, turn.assistant_message
    said = [f"{message['role']}: {_head(unmask(message, kept))}" for message in (asked, replied) if message is not None]
    tools = [name for step in turn.steps for name in _tools(step)]
    if tools:
        said.insert(1, f"tools: {', '.join(dict.fromkeys(tools))}")
    return f"turn {number}: " + " | ".join(said)


def _head(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(block.get("text", "")) for block in blocks(message, "text"))
    words = " ".join(str(content or "").split())
    return words if len(words) <= _SAID else words[:_SAID] + "..."


def _tools(message: Message) -> list[str]:
    called = [*functions_of(message), *blocks(message, "tool_use")]
    return [str(call.get("name", "?"))[:60] for call in called]
