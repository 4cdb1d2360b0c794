"""Compares what a case showed on plain CPython and behind the wall."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cases import Case, Outcome, Step

IDENTICAL = "identical"
REFUSED = "refused by a rule"
DIFFERENT = "different"
UNSTABLE = "unstable"
"""Two runs on plain CPython differ, or the case runs into the time limit there: it cannot be compared."""
BROKEN = "broken"
"""Nothing in it runs on plain CPython: it shows nothing."""

RULES: Final = {
    "import": "a module that the policy's language.imports does not list",
    "builtin": "a builtin that the policy's language.blocked_names lists",
    "files": "a path outside the policy's files.read and files.write",
    "system": "a process, the network, or text that a library compiles: the audit rules",
    "private": "a name that starts with an underscore and belongs to a library",
    "interpreter": "an attribute that leads to frames, code, globals or raw memory: names.DENIED_ATTRIBUTES",
    "cell": "what a session's compiler refuses: a blocked builtin, or an attribute that leads to the interpreter",
    "module part": "a part of an admitted module that the tables of modules_data leave out",
}
"""The rules that refuse on purpose. What fails under none of them counts as different."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


@dataclass(frozen=True)
class Verdict:
    """One case's class and, unless it is identical, the rule that refused it and one line that says why."""

    case: str
    kind: str
    reason: str = ""
    rule: str = ""


def judge(case: Case, plain: Outcome, again: Outcome, walled: Outcome) -> Verdict:
    """The class of a case from two plain runs and one behind the wall."""
    if plain.fate != "ran" or not same(plain, again):
        return Verdict(case.name, UNSTABLE)
    if all(step.error for step in plain.steps[case.setup :]):
        return Verdict(case.name, BROKEN)
    if same(plain, walled):
        return Verdict(case.name, IDENTICAL)
    if walled.fate != "ran":
        return Verdict(case.name, DIFFERENT, walled.fate)
    return _explain(case, plain, walled)


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two runs showed the same."""
    return (
        one.fate == other.fate
        and len(one.steps) == len(other.steps)
        and all(_shown(a) == _shown(b) for a, b in zip(one.steps, other.steps, strict=True))
    )


def _shown(step: Step) -> tuple[str, str]:
    return _ADDRESS.sub("0x", step.output), step.error


def _explain(case: Case, plain: Outcome, walled: Outcome) -> Verdict:
    """The first step that differs says why; a refusal of a step before it explains what follows from it."""
    pairs = list(zip(plain.steps, walled.steps, strict=False))
    first = next((pair for pair in pairs if _shown(pair[0]) != _shown(pair[1])), None)
    if first is None:
        return Verdict(case.name, DIFFERENT, f"{len(plain.steps)} steps on plain Python, {len(walled.steps)} here")
    expected, found = first
    if found.refusal in RULES:
        return Verdict(case.name, REFUSED, _line(found.detail), found.refusal)
    if found.error != expected.error:
        was = expected.detail or "no exception"
        return Verdict(case.name, DIFFERENT, f"{_line(found.detail) or 'no exception'}; plain Python: {_line(was)}")
    return Verdict(case.name, DIFFERENT, _first_difference(expected.output, found.output))


def _first_difference(expected: str, found: str) -> str:
    for one, other in zip([*expected.splitlines(), ""], [*found.splitlines(), ""], strict=False):
        if one != other:
            return f"prints {other[:90]!r}; plain Python: {one[:90]!r}"
    return "prints more or less than plain Python"


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
