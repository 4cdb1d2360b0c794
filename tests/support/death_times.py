"""How long callers wait after deaths: a summary by who has died, and the longest waits with what they waited for."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

SLOWEST = 10


@dataclass(frozen=True, slots=True)
class Wait:
    """After these processes had died at ``at``, by the clock, a caller had its variables so many seconds later.

    ``cell`` says what ran, and ``behind`` what had to be started anew for it, empty if everything was there.
    """

    number: int
    victims: tuple[str, ...]
    mode: str
    at: float
    seconds: float
    cell: str
    behind: str

    @property
    def who(self) -> str:
        """Who has died."""
        return " and ".join(self.victims)


@dataclass
class Waits:
    """Every wait of a run, in order."""

    all: list[Wait] = field(default_factory=list)

    def add(self, wait: Wait) -> None:
        """Take note of one."""
        self.all.append(wait)

    def report(self) -> Iterator[str]:
        """Lines for a person: one death and two at once apart, then each kind of death, then the slowest."""
        alone = [wait for wait in self.all if len(wait.victims) == 1 and wait.victims != ("daemon",)]
        yield f"one death but for the daemon's: {figures(alone)}"
        yield f"two at once: {figures([wait for wait in self.all if len(wait.victims) > 1])}"
        kinds = defaultdict[str, list[Wait]](list)
        for wait in self.all:
            kinds[wait.who].append(wait)
        for who, waits in sorted(kinds.items()):
            yield f"  {who}: {figures(waits)}"
        yield "the slowest:"
        before = {wait.number: earlier for earlier, wait in itertools.pairwise(self.all)}
        for wait in sorted(self.all, key=lambda wait: -wait.seconds)[:SLOWEST]:
            why = f"{wait.behind}{_after(wait, before)}"
            yield f"  {wait.seconds:.2f} s: {wait.who} under {wait.mode} ({wait.cell}) {why}"


def _after(wait: Wait, before: dict[int, Wait]) -> str:
    """The death before it, whose damage may not have been made good yet."""
    if (earlier := before.get(wait.number)) is None:
        return ""
    return f", {wait.at - earlier.at:.2f} s after {earlier.who}"


def figures(waits: list[Wait]) -> str:
    """Median, 99th percentile and longest of some waits."""
    times = sorted(wait.seconds for wait in waits)
    if not times:
        return "none"
    return (
        f"{len(times)} kills, median {times[len(times) // 2]:.2f} s, 99 % {times[int(len(times) * 0.99)]:.2f} s, "
        f"longest {times[-1]:.2f} s"
    )
