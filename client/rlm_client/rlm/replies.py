"""Parses a model's reply: code to run, or a final answer.

The newest form of the protocol is the session's dictionary ``answer``; ``FINAL(...)`` and ``FINAL_VAR(...)`` are older
forms, which models still write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlm_ipc.late_dataclasses import dataclass

__all__ = ["Final", "final_of", "has_open_block", "repl_blocks", "submitted"]

_BLOCK = re.compile(r"^[ \t]*```repl[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_OPEN = re.compile(r"^[ \t]*```repl[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_FINAL_VAR = re.compile(r"^[ \t]*FINAL_VAR\(\s*['\"]?(\w+)['\"]?\s*\)", re.MULTILINE)
_FINAL = re.compile(r"^[ \t]*FINAL\(", re.MULTILINE)
_NOT_READY = ("False", "0", "None", "")


@dataclass(frozen=True)
class Final:
    """A final answer: a text, or the name of the variable that holds it."""

    text: str | None = None
    variable: str | None = None


def repl_blocks(reply: str) -> list[str]:
    """Return the code of each block marked ``repl``, in their order."""
    return [match[1].strip("\n") for match in _BLOCK.finditer(reply) if match[1].strip()]


def has_open_block(reply: str) -> bool:
    """Tell whether a block is not closed, because the reply was cut."""
    return len(_OPEN.findall(reply)) > len(_BLOCK.findall(reply))


def final_of(reply: str) -> Final | None:
    """Return the final answer that a reply gives outside of its code, if any."""
    said = _FENCED.sub("", reply)
    if match := _FINAL_VAR.search(said):
        return Final(variable=match[1])
    if match := _FINAL.search(said):
        return Final(text=_until_closed(said, match.end()))
    return None


def _until_closed(text: str, start: int) -> str:
    """Return the text up to the parenthesis that closes the one before ``start``, or all when none does."""
    depth = 1
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return text[start:index].strip()
    return text[start:].strip()


def submitted(items: Iterable[str]) -> str | None:
    """Return the content of the session's dictionary ``answer`` once it is ready.

    ``items`` are read one by one, as ``key: value``: a line within a value does not count.
    """
    fields: dict[str, str] = {}
    for item in items:
        key, _, value = item.partition(": ")
        fields.setdefault(key, value)
    return None if fields.get("ready", "") in _NOT_READY else fields.get("content")
