"""A short description of what changed between two texts, for a source that was loaded again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from rlm_contexts.text.lines import Lines
from rlm_contexts.text.text import Text
from rlm_ipc.late_dataclasses import dataclass

_PIECE = 1 << 20
_LONGEST = 500  # characters of a line of the difference
_MOST_LINES = 1000  # on either side, the maximum compared line by line: difflib is quadratic


@dataclass(frozen=True, slots=True)
class Changes:
    """How a text differs from an earlier one.

    Attributes:
        added, removed: lines; in the order they stand in when the difference is small, else as a multiset.
        first_line: the first line (0-based) that differs.
        appended: the old text is the beginning of the new one.
        diff: in unified form without context, up to `lines` lines of it; empty when too much differs.
    """

    added: int
    removed: int
    first_line: int
    appended: bool
    diff: tuple[str, ...]


def changes(old: Text, new: Text, lines: int = 40) -> Changes:
    """Compare two texts.  Args: lines, of the unified difference to return."""
    first = old.index.line_of(_common_start(old.view, new.view)) if old.size and new.size else 0
    tail = _common_last_lines(old, new, first)
    before = Lines(old)[first : old.line_count - tail]
    after = Lines(new)[first : new.line_count - tail]
    appended = first == old.line_count and tail == 0
    if len(before) + len(after) > _MOST_LINES:
        gone, come = Counter(before), Counter(after)
        return Changes((come - gone).total(), (gone - come).total(), first, appended, ())
    found = list(_hunks(list(before), list(after), first))
    added = sum(line.startswith("+") for line in found)
    removed = sum(line.startswith("-") for line in found)
    return Changes(added, removed, first, appended, tuple(line[:_LONGEST] for line in found[:lines]))


def _hunks(before: list[str], after: list[str], first: int) -> Iterator[str]:
    """Yield the unified form without context; line numbers count from 1, as diff's do."""
    for kind, low, high, new_low, new_high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        old_at, new_at = first + low + (high > low), first + new_low + (new_high > new_low)
        yield f"@@ -{old_at},{high - low} +{new_at},{new_high - new_low} @@"
        yield from ("-" + line for line in before[low:high])
        yield from ("+" + line for line in after[new_low:new_high])


def _common_start(old: memoryview, new: memoryview) -> int:
    """Return the number of equal bytes at the beginning."""
    low, most = 0, min(len(old), len(new))
    while low < most and bytes(old[low : low + _PIECE]) == bytes(new[low : low + _PIECE]):
        low = min(low + _PIECE, most)
    high = min(low + _PIECE, most)
    while low < high:  # the first difference lies in [low, high): halve it
        middle = (low + high + 1) // 2
        if bytes(old[low:middle]) == bytes(new[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _common_last_lines(old: Text, new: Text, first: int) -> int:
    """Return the number of equal lines at the end, after line `first`."""
    most = min(old.line_count, new.line_count) - first
    same = 0
    for one, other in zip(reversed(Lines(old)), reversed(Lines(new)), strict=False):
        if same == most or one != other:
            break
        same += 1
    return max(same, 0)
