"""What the newest commits show: which files change together, and which change when a message has certain words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rlm_lock.listing.history import Commit
from rlm_lock.map.question import Sought, terms_of

_MOST_ALIKE = 60
"""Maximum number of commits with words of the question whose files are considered."""
_HALF = 800
"""The number of newer commits after which a commit counts half."""


class Past:
    """The newest commits of a project, ready for questions.

    Args:
        commits: newest first.
    """

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self._paths: list[tuple[bytes, ...]] = []
        self._with_term: dict[int, list[int]] = {}
        self._with_path: dict[bytes, list[int]] = {}
        for number, commit in enumerate(commits):
            self._paths.append(commit.paths)
            for path in commit.paths:
                self._with_path.setdefault(path, []).append(number)
            for each in terms_of(commit.subject):
                self._with_term.setdefault(each.term, []).append(number)

    def together(self, path: bytes) -> dict[bytes, float]:
        """Return the files that changed together with one: a commit of few files counts more."""
        score: dict[bytes, float] = defaultdict(float)
        for number in self._with_path.get(path, ()):
            paths = self._paths[number]
            gain = _age(number) / len(paths)
            for other in paths:
                score[other] += gain
        score.pop(path, None)
        return score

    def alike(self, sought: Sequence[Sought]) -> dict[bytes, float]:
        """Return the files of commits whose messages have words of a question; all of the words in a new one give 1."""
        whole: dict[int, float] = {}
        by_commit: dict[int, dict[int, float]] = defaultdict(dict)
        for each in sought:
            commits = self._with_term.get(each.term, ())
            value = each.weight * math.log(1 + len(self._paths) / max(len(commits), 1))
            whole[each.word] = max(whole.get(each.word, 0.0), value)
            for number in commits:
                own = by_commit[number]
                own[each.word] = max(own.get(each.word, 0.0), value)
        total = sum(whole.values()) or 1.0
        worth = {number: (sum(own.values()) / total) ** 2 * _age(number) for number, own in by_commit.items()}
        score: dict[bytes, float] = defaultdict(float)
        for number in sorted(worth, key=lambda number: (-worth[number], number))[:_MOST_ALIKE]:
            paths = self._paths[number]
            for path in paths:
                score[path] += worth[number] / len(paths) ** 0.5
        return score


def _age(number: int) -> float:
    return math.pow(0.5, number / _HALF)
