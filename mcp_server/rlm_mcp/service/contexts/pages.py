"""Lines that fit into an answer: whole ones where there is room, pieces of the longest where there is not."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_contexts.shares import ShownShare, fair_share
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.tool_answers import encoded_length

MAX_CHARS = 1_000_000
"""Most characters of a page that its caller can ask for, where the policy does not give more anyway."""
_LEAST_PIECE = 40
"""Characters that are left of a line at least, with the mark that says how long it is."""
_NEWLINE = 2
"""Characters that a newline takes in JSON."""
_LONGEST_ESCAPE = 6
"""Most characters that one takes in JSON."""


def fitting(lines: Sequence[str], room: int) -> list[str]:
    """The first lines that take at most ``room`` characters inside JSON, all of them whole."""
    for number, line in enumerate(lines):
        room -= encoded_length(line) + _NEWLINE * (number > 0)
        if room < 0:
            return list(lines[:number])
    return list(lines)


def pieces(lines: Sequence[ShownShare], room: int) -> list[ShownShare]:
    """Every line, the longest of them cut so that all take at most ``room`` characters inside JSON.

    Raises:
        ToolFault: then not much would be left of each.
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
    """The line, or as much of it as takes ``room`` characters inside JSON with the mark behind it."""
    while line.text and (excess := encoded_length(str(line)) - room) > 0:
        length = len(line.text)
        at_least = -(-excess // _LONGEST_ESCAPE)
        line = line.shorter(max(min(length - at_least, length * room // (room + excess)), 0))
    return line
