"""Parses the output of test runners: how many tests passed and failed, and which.

No client tells a hook whether tests passed, so their text is read: that of pytest, unittest, jest, vitest, go test and
cargo test. It may be anybody's. Each line is looked at a fixed number of times, and of a long text only its ends are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import field

from rlm_ipc.late_dataclasses import dataclass

_LONGEST = 200_000
"""How many characters are read at each end of a text."""
_LONGEST_LINE = 2_000
_MOST_FAILING = 20
_LONGEST_NAME = 200
_COLOR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_SEPARATORS = re.compile(r"&&|\|\||[;\n|&]")
_READERS = frozenset(
    "awk bat cat cd echo export find git grep head less ls more printf pwd rg sed set sort tail true wc".split()
)
"""Programs that only show other output: their output is not a test run."""


@dataclass(frozen=True, slots=True)
class RunnerReport:
    """A run of tests. ``failing`` names the first tests that failed, or the files that could not be loaded.

    ``go test`` tells of tests that passed only when asked to; then ``passed`` counts packages.
    """

    runner: str
    passed: int
    failed: int
    failing: tuple[str, ...]


@dataclass(slots=True)
class _Count:
    """The intermediate result for one runner."""

    seen: bool = False
    passed: int = 0
    failed: int = 0
    failing: dict[str, None] = field(default_factory=dict)

    def fails(self, name: str) -> None:
        if name and len(self.failing) < _MOST_FAILING:
            self.failing[name[:_LONGEST_NAME]] = None

    def report(self, runner: str) -> RunnerReport | None:
        names = tuple(self.failing)
        failed = max(self.failed, len(names))
        return RunnerReport(runner, self.passed, failed, names) if self.seen and (self.passed or failed) else None


def read_report(command: str, output: str) -> RunnerReport | None:
    """Return the test run in a shell command's output, or None; never raises."""
    if not runs_something(command):
        return None
    lines = _lines(output)
    found = [report for read in (_pytest, _unittest, _jest, _vitest, _go, _cargo) if (report := read(lines))]
    if len(found) < 2:
        return found[0] if found else None
    names = {name: None for report in found for name in report.failing}
    passed, failed = (sum(getattr(report, name) for report in found) for name in ("passed", "failed"))
    return RunnerReport(", ".join(report.runner for report in found), passed, failed, tuple(names)[:_MOST_FAILING])


def runs_something(command: str) -> bool:
    """Whether one of the commands of a line of shell is none that only shows text."""
    words = [part.split(maxsplit=1) for part in _SEPARATORS.split(command[:_LONGEST])]
    return any(part and part[0].rpartition("/")[2] not in _READERS for part in words)


def _lines(output: str) -> list[str]:
    if len(output) > 2 * _LONGEST:
        output = f"{output[:_LONGEST]}\n{output[-_LONGEST:]}"
    return [line[:_LONGEST_LINE].rstrip() for line in _COLOR.sub("", output).split("\n")]


def _numbers(parts: Iterable[str]) -> dict[str, int] | None:
    """Read ``2 failed, 3 passed``; None if a part is no number and word."""
    found: dict[str, int] = {}
    for part in parts:
        number, _, word = part.strip().partition(" ")
        if not (number.isascii() and number.isdigit() and len(number) < 10 and word):
            return None
        found[word] = int(number)
    return found


# --- one runner each ------------------------------------------------------------------------------

_SECONDS = re.compile(r"\d+(\.\d+)?s( \(\d[\d:, days]{0,30}\))?")
_PYTEST_WORDS = frozenset(
    "failed passed skipped deselected xfailed xpassed warning warnings error errors rerun subtests".split()
)


def _pytest(lines: list[str]) -> RunnerReport | None:
    count = _Count()
    for line in lines:
        said, _, taken = line.strip("= ").rpartition(" in ")
        if said and _SECONDS.fullmatch(taken):
            numbers = _numbers(said.split(", "))
            if numbers and all(word.split(" ")[0] in _PYTEST_WORDS for word in numbers):
                count.seen = True
                count.passed += numbers.get("passed", 0)
                count.failed += sum(numbers.get(word, 0) for word in ("failed", "error", "errors"))
        elif line.startswith(("FAILED ", "ERROR ")):
            name = line.partition(" ")[2].partition(" - ")[0]
            if "::" in name or name.endswith(".py"):
                count.fails(name)
    return count.report("pytest")


_RAN = re.compile(r"Ran (\d{1,9}) tests? in ")
_UNITTEST_END = re.compile(r"(OK|FAILED|NO TESTS RAN)( \([a-z =0-9,]{1,200}\))?")


def _unittest(lines: list[str]) -> RunnerReport | None:
    count, ran, before = _Count(), 0, ""
    for line in lines:
        if line.startswith(("FAIL: ", "ERROR: ")) and before.startswith("====="):
            count.fails(line.partition(": ")[2])
        elif found := _RAN.match(line):
            ran = int(found[1])
        elif ran and (ended := _UNITTEST_END.fullmatch(line)):
            pairs = [part.partition("=") for part in (ended[2] or "").strip(" ()").split(", ")]
            told = {name: int(value) for name, _, value in pairs if value.isdigit()}
            failed = sum(told.get(name, 0) for name in ("failures", "errors", "unexpected successes"))
            other = sum(told.get(name, 0) for name in ("skipped", "expected failures"))
            count.seen, count.failed = True, count.failed + failed
            count.passed += max(0, ran - failed - other)
            ran = 0
        before = line
    return count.report("unittest")


_JEST_ARROW = " \u203a "


def _jest(lines: list[str]) -> RunnerReport | None:
    count, file = _Count(), ""
    for line in lines:
        text = line.strip()
        if text.startswith("FAIL "):
            file = text.removeprefix("FAIL ").partition(" (")[0].strip().removeprefix("./")
        elif text.startswith("● "):
            name = text.removeprefix("● ")
            if name == "Test suite failed to run":
                count.fails(file)
            elif name != "Console" and (_JEST_ARROW in name or file):
                count.fails(name)
        elif line.startswith("Tests:"):
            numbers = _numbers(line.removeprefix("Tests:").split(", "))
            if numbers and "total" in numbers:
                count.seen = True
                count.passed += numbers.get("passed", 0)
                count.failed += numbers.get("failed", 0)
    return count.report("jest")


def _vitest(lines: list[str]) -> RunnerReport | None:
    count = _Count()
    for line in lines:
        text = line.strip()
        if text.startswith("FAIL  "):
            count.fails(text.removeprefix("FAIL  ").partition(" [ ")[0])
        elif text.startswith(("Tests  ", "Test Files  ")):
            numbers = _numbers(text.removeprefix("Tests").removeprefix("Test Files").partition(" (")[0].split("|"))
            if numbers and text.startswith("Tests"):
                count.passed += numbers.get("passed", 0)
                count.failed += numbers.get("failed", 0)
            count.seen = count.seen or bool(numbers)
    return count.report("vitest")


_GO_TEST = re.compile(r"--- (PASS|FAIL): (\S+) \([0-9.]+s\)")
_GO_PACKAGE = re.compile(r"(ok  |FAIL)\t(\S+)\t?\s*([\d.]+s|\(cached\)|\[[a-z ]+ failed\])")


def _go(lines: list[str]) -> RunnerReport | None:
    tests: dict[str, bool] = {}
    packages: dict[str, bool] = {}
    for line in lines:
        text = _go_output(line) if line.startswith('{"') else line
        if found := _GO_TEST.match(text.lstrip()):
            tests[found[2]] = found[1] == "PASS"
        elif found := _GO_PACKAGE.match(text):
            packages[found[2]] = found[1] == "ok  "
            if found[3].startswith("["):
                tests[found[2]] = False
    upper = {name.rpartition("/")[0] for name in tests}
    leaves = {name: passed for name, passed in tests.items() if name not in upper}
    count = _Count(seen=bool(packages))
    for name, passed in leaves.items():
        if not passed:
            count.failed += 1
            count.fails(name)
    count.passed = sum(leaves.values()) or sum(packages.values())
    if not count.failed:  # a package may fail without a failing test
        count.failed = sum(not passed for passed in packages.values())
    return count.report("go test")


def _go_output(line: str) -> str:
    """Return what a line of ``go test -json`` has printed."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    printed = said.get("Output") if isinstance(said, dict) else None
    return printed.rstrip("\n") if isinstance(printed, str) else ""


_CARGO = re.compile(r"test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed;")


def _cargo(lines: list[str]) -> RunnerReport | None:
    count = _Count()
    for line in lines:
        if found := _CARGO.match(line):
            count.seen = True
            count.passed += int(found[1])
            count.failed += int(found[2])
        elif line.startswith("test ") and line.endswith(" ... FAILED"):
            count.fails(line.removeprefix("test ").removesuffix(" ... FAILED").removesuffix(" - should panic"))
        elif line.endswith(" --- FAILED"):
            count.fails(line.removesuffix(" --- FAILED"))
    return count.report("cargo test")
