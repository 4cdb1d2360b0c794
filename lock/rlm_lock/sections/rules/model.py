"""A rule: one file of the repository that says how to work on it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.names import shown

LONGEST_DESCRIPTION = 200
_LONGEST_LINE = 10_000
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)")
_MARKS = "#>*-+=_`| \t"


class RuleSet(enum.StrEnum):
    """Which rules are active."""

    FULL = "full"
    """All."""
    SAFE = "safe"
    """Those of tools, and those that the policy calls most severe."""
    LIGHT = "light"
    """Those in the project's top folder."""
    FAST = "fast"
    """Those that name commands to run."""


class Severity(enum.StrEnum):
    """How severe a violation of a rule is."""

    P0 = "P0"
    """The policy says so; no file of the repository can."""
    P1 = "P1"


class RuleKind(enum.StrEnum):
    """What a rule consists of."""

    TEXT = "text"
    """Prose for agents and people."""
    TOOL = "tool"
    """The configuration of a tool that checks the sources."""
    COMMANDS = "commands"
    """Commands that test or check the project."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One file of rules.

    Attributes:
        id: ``R``, a number, and its path in few letters.
        enabled: false if a file of the same name nearer to the requested folder replaces it.
        severity: P1, or P0 where the policy says so.
        description: its first sentence, as the repository has it.
        applies_to: patterns of the paths that it is for.
        source: the file; ``includes`` are the files that it includes.
        kind: what it consists of.
        text: its text as the repository has it, escaped line by line, and cut where it is too long.
    """

    id: str
    enabled: bool
    severity: Severity
    description: str
    applies_to: tuple[str, ...]
    source: str
    kind: RuleKind
    text: str
    includes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The section `rules`: the rules of the active set, and what was left out, as sentences."""

    rules: tuple[Rule, ...]
    active_set: RuleSet
    missing: tuple[str, ...] = ()


def in_set(rule: Rule, active: RuleSet) -> bool:
    """Return whether a rule belongs to a set."""
    return {
        RuleSet.FULL: True,
        RuleSet.SAFE: rule.kind is RuleKind.TOOL or rule.severity is Severity.P0,
        RuleSet.LIGHT: "/" not in rule.source,
        RuleSet.FAST: rule.kind is RuleKind.COMMANDS,
    }[active]


def safe_text(data: bytes) -> str:
    """Return a file's text with uniform line ends, and nothing in it that moves a cursor or hides."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    return "\n".join(shown(line[:_LONGEST_LINE].expandtabs(4)) for line in text.split("\n"))


def first_sentence(text: str) -> str:
    """Return the first sentence of prose in a Markdown text, otherwise its first heading."""
    heading = ""
    for line in _prose(text):
        words = line.strip(_MARKS)
        if line.lstrip().startswith("#"):
            heading = heading or words
        elif words and not words.startswith(("<!--", "@", "![", "[!")):
            match = _SENTENCE.match(words[:1000])
            return _cut(match[1] if match else words)
    return _cut(heading)


def _prose(text: str) -> Iterator[str]:
    """Yield the lines outside of front matter and code."""
    lines = text.split("\n")
    start = 0
    if lines[0].rstrip() == "---":
        start = next((at + 1 for at, line in enumerate(lines[1:200], 1) if line.rstrip() == "---"), 0)
    is_code = False
    for line in lines[start : start + 2000]:
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code:
            yield line


def _cut(text: str) -> str:
    return shown(text if len(text) <= LONGEST_DESCRIPTION else text[: LONGEST_DESCRIPTION - 1] + "…")
