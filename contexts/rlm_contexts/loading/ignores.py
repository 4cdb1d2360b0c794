"""The rules of one ignore file: which names below its folder git would leave out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlm_ipc.regular_files import read_regular

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_LONGEST = 1 << 17
"""Maximum bytes read of an ignore file."""
_MOST_RULES = 2_000
"""Maximum number of rules of one file that count."""


class IgnoreRules:
    """The rules of one ignore file.  RE2 evaluates them: in time that does not explode, whatever they say.

    Attributes:
        count: the number of rules, which is what they cost.
    """

    __slots__ = ("_groups", "count")

    def __init__(self, groups: Sequence[GitIgnoreSpec]) -> None:
        self._groups = groups
        self.count = sum(map(len, groups))

    def excludes(self, name: str, *, is_folder: bool) -> bool | None:
        """Whether the rules exclude a name below their folder; None if they do not mention it."""
        # A name may hold bytes that are not UTF-8. RE2 refuses them as surrogates; no rule can name them anyway.
        text = os.fsencode(name).decode("utf-8", "replace") + ("/" if is_folder else "")
        found = (group.check_file(text).include for group in reversed(self._groups))  # the last rule that matches wins
        return next((said for said in found if said is not None), None)


def rules_in(folder: int, name: str) -> IgnoreRules | None:
    """Return the rules of a file in an open folder; None if there are none, or it is not a regular file."""
    content = read_regular(name, _LONGEST, folder=folder)
    if content is None:
        return None
    groups = _groups(content.decode("utf-8", "replace").splitlines()[:_MOST_RULES])
    return IgnoreRules(groups) if groups else None


def _groups(lines: list[str]) -> list[GitIgnoreSpec]:
    """Return the rules in as few sets as RE2 accepts: it refuses large ones, and git invalid rules."""
    if (spec := _spec(lines)) is not None:
        return [spec]
    half = len(lines) // 2
    return [*_groups(lines[:half]), *_groups(lines[half:])] if half else []


def _spec(lines: list[str]) -> GitIgnoreSpec | None:
    """Return the rules as one set; None if one of them is invalid, or they are too many for one."""
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines, backend="re2")
    except Exception:  # what pathspec raises on a hostile rule is not documented
        return None
