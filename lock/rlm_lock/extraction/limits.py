"""A check of a file before a parser sees it: what would hold a parser forever is not parsed."""

from __future__ import annotations

import re

LARGEST = 1 << 20
"""Maximum bytes of a parsed file: longer ones are generated, or hostile."""
LONGEST_LINE = 20_000
"""Maximum bytes of a line: minified code has no names that anyone wants."""
DEEPEST = 2_000
"""Maximum depth of brackets: no real code nests deeper."""
_LOOKED_AT = 8_192

_BRACKETS = re.compile(rb"[(\[{]+|[)\]}]+")


def is_binary(data: bytes) -> bool:
    """Return whether a file is binary, by git's criterion."""
    return b"\0" in data[:_LOOKED_AT]


def reason_against(data: bytes) -> str:
    """Return why a text is not parsed, or an empty string."""
    if len(data) > LARGEST:
        return "large"
    if len(data) > LONGEST_LINE and max(map(len, data.splitlines())) > LONGEST_LINE:
        return "long lines"
    return "deep" if _is_deep(data) else ""


def _is_deep(data: bytes) -> bool:
    if data.count(b"(") + data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for found in _BRACKETS.finditer(data):
        run = found.group()
        depth = depth + len(run) if run[0] in b"([{" else max(0, depth - len(run))
        if depth > DEEPEST:
            return True
    return False
