"""Masks: a line that says where a tool's full output is kept, in place of the output. A mask can be undone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, MutableMapping
from typing import Any

from rlm_memory.transcripts.messages import Message

KEPT_AT = "_kept_at"
"""Key of a message whose content is output, whatever its role: where the full text is, in words for the model."""
LONGEST_PLACE = 100
"""Characters that a place may have in the line of a mask."""
SHORTEST_OUTPUT = 200
"""Characters of output below which a mask could be just as long."""
_POINTER = "_pointer"
"""Key of a masked message: the id under which its content is kept."""


def outputs_at_least(message: Message, characters: int) -> bool:
    """Return whether a message is output of at least this many characters, and not masked yet."""
    if _POINTER in message:
        return False
    return _output_size(message) >= characters


def mask(message: Message, kept: MutableMapping[str, Any]) -> Message:
    """Return the message with its output masked; the full content goes into ``kept``."""
    content = message["content"]
    pointer = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
    kept[pointer] = content
    where = message.get(KEPT_AT) or f"kept output {pointer}"
    masked = [_masked_block(part, where) for part in content] if isinstance(content, list) else _line(content, where)
    return {**message, "content": masked, _POINTER: pointer}


def unmask(message: Message, kept: Mapping[str, Any]) -> Message:
    """Return the message as it was before `mask`; one that is not masked is returned as it is."""
    pointer = message.get(_POINTER)
    if pointer is None:
        return message
    whole = {**message, "content": kept[pointer]}
    del whole[_POINTER]
    return whole


def _output_size(message: Message) -> int:
    content = message.get("content")
    if isinstance(content, list):
        return max((len(str(part["content"])) for part in content if _is_result(part)), default=0)
    is_output = message.get("role") in ("tool", "function") or KEPT_AT in message or "tool_result" in message
    return len(content) if is_output and isinstance(content, str) else 0


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result" and "content" in part


def _masked_block(part: Any, where: str) -> Any:
    if not _is_result(part):
        return part
    line = _line(str(part["content"]), where)
    return {**part, "content": line} if len(line) < len(str(part["content"])) else part


def _line(text: str, where: str) -> str:
    return f"[{len(text):,} characters of output, no longer shown; full text: {where[:LONGEST_PLACE]}]"
