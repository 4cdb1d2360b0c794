"""The work that `bench/frames.py` measures: what an agent writes and what its code prints, of realistic sizes.

It is the same in every run. Facts are planted on any line of any cell's output, by dice; nothing else tells them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Cell", "Fact", "Step", "Work", "log_investigation", "repository_task"]

_WORDS = (
    "cache session parser retry queue token socket index schema worker bucket router digest cursor replica timer "
    "config handler buffer lookup commit branch checksum payload stream gateway budget limit cluster metric"
).split()


@dataclass(frozen=True)
class Cell:
    """A turn: what the model says and runs, and what that prints."""

    thought: str
    code: str
    output: str


@dataclass(frozen=True)
class Step:
    """A goal with its turns; ``story`` is the number of the goal above it."""

    goal: str
    story: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Fact:
    """What will be asked: its ``name`` and ``value`` stand on one line of a cell's output in that step."""

    name: str
    value: str
    step: int


@dataclass(frozen=True)
class Work:
    """A whole task, with its facts."""

    title: str
    steps: tuple[Step, ...]
    stories: tuple[str, ...]
    facts: tuple[Fact, ...]


def repository_task() -> Work:
    """Sixty steps in twelve stories: files are read, searched, changed and tested."""
    dice = random.Random(60)
    stories = tuple(f"Rework the {word}" for word in dice.sample(_WORDS, 12))
    kinds = (_listing, _source, _tests, _search)
    steps = [
        _step(dice, f"Step {n + 1}: change the {_word(dice)} {_word(dice)}", n // 5, kinds, (4, 7)) for n in range(60)
    ]
    return _planted(dice, Work("60-step repository task", tuple(steps), stories, ()), 20)


def log_investigation() -> Work:
    """Two hundred questions about a log, in twenty groups: lines are counted, filtered and read."""
    dice = random.Random(200)
    stories = tuple(f"Explain the failures of the {dice.choice(_WORDS)}, part {n + 1}" for n in range(20))
    kinds = (_log, _log, _counts)
    steps = [
        _step(dice, f"Question {n + 1}: why did the {_word(dice)} {_word(dice)} fail?", n // 10, kinds, (2, 4))
        for n in range(200)
    ]
    return _planted(dice, Work("200-question log investigation", tuple(steps), stories, ()), 20)


def _step(
    dice: random.Random,
    goal: str,
    story: int,
    kinds: tuple[Callable[[random.Random], str], ...],
    cells: tuple[int, int],
) -> Step:
    return Step(goal, story, tuple(_cell(dice, dice.choice(kinds)) for _ in range(dice.randint(*cells))))


def _cell(dice: random.Random, kind: Callable[[random.Random], str]) -> Cell:
    size = dice.choice((400, 900, 1500, 2500, 4000, 6000))
    lines: list[str] = []
    while sum(map(len, lines)) < size:
        lines.append(kind(dice))
    thought = "I look at " + ", then at ".join(
        f"the {_word(dice)} of the {_word(dice)}" for _ in range(dice.randint(3, 12))
    )
    code = "\n".join(f"{_word(dice)} = find({_word(dice)!r}, {_word(dice)!r})" for _ in range(dice.randint(2, 10)))
    return Cell(thought + ".", code, "\n".join(lines))


def _planted(dice: random.Random, work: Work, count: int) -> Work:
    """Put each fact on a line of its own into some output."""
    steps = list(work.steps)
    facts = []
    for number, at in enumerate(sorted(dice.sample(range(len(steps)), count))):
        fact = Fact(f"seal of the {_word(dice)} {_word(dice)} no. {number + 1}", f"{dice.getrandbits(40):010x}", at)
        cells = list(steps[at].cells)
        chosen = dice.randrange(len(cells))
        lines = cells[chosen].output.split("\n")
        lines.insert(dice.randint(0, len(lines)), f"note: the {fact.name} is {fact.value}")
        cells[chosen] = replace(cells[chosen], output="\n".join(lines))
        steps[at] = replace(steps[at], cells=tuple(cells))
        facts.append(fact)
    return replace(work, steps=tuple(steps), facts=tuple(facts))


def _word(dice: random.Random) -> str:
    return dice.choice(_WORDS)


def _listing(dice: random.Random) -> str:
    return f"-rw-r--r-- 1 dev dev {dice.randrange(100, 90_000):>6} src/{_word(dice)}/{_word(dice)}_{_word(dice)}.py"


def _source(dice: random.Random) -> str:
    return f"    {_word(dice)} = self._{_word(dice)}.{_word(dice)}({_word(dice)}, {_word(dice)}={dice.randrange(99)})"


def _tests(dice: random.Random) -> str:
    outcome = dice.choice(("PASSED", "PASSED", "PASSED", "FAILED"))
    return f"tests/test_{_word(dice)}.py::test_{_word(dice)}_{_word(dice)} {outcome} [{dice.randrange(100):>3}%]"


def _search(dice: random.Random) -> str:
    return (
        f"src/{_word(dice)}.py:{dice.randrange(900)}: def {_word(dice)}_{_word(dice)}(self) -> {_word(dice).title()}:"
    )


def _log(dice: random.Random) -> str:
    moment = f"{dice.randrange(24):02}:{dice.randrange(60):02}:{dice.randrange(60):02}"
    level = dice.choice(("INFO", "INFO", "WARNING", "ERROR"))
    what = f"{_word(dice)}: {_word(dice)} {dice.getrandbits(24)} {_word(dice)}"
    return f"{moment} {level} {what} after {dice.randrange(9000)} ms"


def _counts(dice: random.Random) -> str:
    return f"{_word(dice):<12}{_word(dice):<12}{dice.randrange(10_000):>8}{dice.randrange(100):>6} %"
