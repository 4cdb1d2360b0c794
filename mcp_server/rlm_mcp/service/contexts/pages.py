"""Lines that fit into an answer: whole if there is room, else with the longest ones cut."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_contexts.shares import ShownShare, fair_share
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.tool_answers import encoded_length

MAX_CHARS = 1_000_000
"""The most characters that a caller can request for a page, unless the policy allows more."""
_LEAST_PIECE = 40
"""The fewest characters to which a line is cut, including the mark with its length."""
_NEWLINE = 2
"""Characters that a newline takes in JSON."""
_LONGEST_ESCAPE = 6
"""The most characters that one character takes in JSON."""


def fitting(lines: Sequence[str], room: int) -> list[str]:
    """Return the first lines, all whole, that take at most ``room`` characters in JSON."""
    if encoded_length("\n".join(lines)) <= room:
        return list(lines)
    for number, line in enumerate(lines):
        room -= encoded_length(line) + _NEWLINE * (number > 0)
        if room < 0:
            return list(lines[:number])
    return list(lines)


def pieces(lines: Sequence[ShownShare], room: int) -> list[ShownShare]:
    """Return every line, with the longest cut so that all take at most ``room`` characters in JSON.

    Raises:
        ToolFault: almost nothing of each line would be left.
    """
    share = fair_share((encoded_length(str(line)) for line in lines), room - _NEWLINE * (len(lines) - 1))
    if share < _LEAST_PIECE:
        fits = max(room // (_LEAST_PIECE + _NEWLINE), 1)
        raise ToolFault(
            "page_too_long",
            f"{len(lines):,} lines of this text do not fit into one answer",
            f"ask for at most {fits:,} at a time; without limit you get as many whole lines as fit, "
            f"and max_chars (up to {MAX_CHARS:,}) gives more room",
            limit=fits,
        )
    return [_piece(line, share) for line in lines]


def _piece(line: ShownShare, room: int) -> ShownShare:
    """Return the line, or its beginning with a mark, in at most ``room`` characters in JSON."""
    while line.text and (excess := encoded_length(str(line)) - room) > 0:
        length = len(line.text)
        at_least = -(-excess // _LONGEST_ESCAPE)
        line = line.shorter(max(min(length - at_least, length * room // (room + excess)), 0))
    return line
