"""What test runners print, read: recorded outputs of the real ones, and texts of somebody who means harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_mcp.hook.runners import RunnerReport, read_report

RECORDED = Path(__file__).with_name("runners")
TOTALS = ("test_rounds_half_up", "TestTotals::test_each[2]", "test_needs_database")
PYTEST = RunnerReport("pytest", 3, 3, tuple(f"test_totals.py::{name}" for name in TOTALS))
CASES = ("test_breaks (cases.Totals.test_breaks)", "test_each (cases.Totals.test_each) (n=2)",
         "test_rounds (cases.Totals.test_rounds)")  # fmt: skip
UNITTEST = RunnerReport("unittest", 3, 3, CASES)
ROUNDS, IN_FILE = "totals \u203a rounds half up", "totals.test.js > totals > rounds half up"
REPORTS: dict[str, RunnerReport | None] = {
    "cargo_does_not_compile": None,
    "cargo_failures": RunnerReport("cargo test", 3, 1, ("tests::doubles_negative",)),
    "cargo_passed": RunnerReport("cargo test", 1, 0, ()),
    "cargo_quiet": RunnerReport("cargo test", 2, 1, ("tests::doubles_negative",)),
    "go_does_not_compile": RunnerReport("go test", 1, 1, ("totals",)),
    "go_failures": RunnerReport("go test", 1, 1, ("TestSigns/negative",)),
    "go_json": RunnerReport("go test", 3, 1, ("TestSigns/negative",)),
    "go_one": RunnerReport("go test", 1, 0, ()),
    "go_passed": RunnerReport("go test", 1, 0, ()),
    "go_verbose": RunnerReport("go test", 3, 1, ("TestSigns/negative",)),
    "jest_broken_suite": RunnerReport("jest", 2, 2, (ROUNDS, "broken.test.js")),
    "jest_failures": RunnerReport("jest", 2, 1, (ROUNDS,)),
    "jest_none": None,
    "jest_passed": RunnerReport("jest", 1, 0, ()),
    "jest_verbose": RunnerReport("jest", 1, 1, (ROUNDS,)),
    "pytest_collect_only": None,
    "pytest_collection_error": RunnerReport("pytest", 0, 1, ("test_broken.py",)),
    "pytest_color": PYTEST,
    "pytest_deselected": None,
    "pytest_failures": PYTEST,
    "pytest_first_failure": RunnerReport("pytest", 1, 1, ("test_totals.py::test_rounds_half_up",)),
    "pytest_no_file": None,
    "pytest_passed_quiet": RunnerReport("pytest", 2, 0, ()),
    "pytest_quiet": PYTEST,
    "pytest_verbose": PYTEST,
    "pytest_version": None,
    "pytest_xdist": PYTEST,
    "unittest_failures": UNITTEST,
    "unittest_missing": RunnerReport("unittest", 0, 1, ("Missing (unittest.loader._FailedTest.Missing)",)),
    "unittest_none": None,
    "unittest_passed": RunnerReport("unittest", 2, 0, ()),
    "unittest_verbose": UNITTEST,
    "vitest_broken_suite": RunnerReport("vitest", 2, 2, ("broken.test.js", IN_FILE)),
    "vitest_failures": RunnerReport("vitest", 2, 1, (IN_FILE,)),
    "vitest_none": None,
    "vitest_passed": RunnerReport("vitest", 1, 0, ()),
    "vitest_verbose": RunnerReport("vitest", 1, 1, (IN_FILE,)),
}


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text("utf-8")


def test_every_recording_is_expected_to_say_something() -> None:
    """A file that no case names would prove nothing."""
    assert {path.stem for path in RECORDED.iterdir()} == REPORTS.keys()


@pytest.mark.parametrize("name", REPORTS)
def test_a_run_of_tests_is_read_as_its_runner_counts_it(name: str) -> None:
    """E-5: how many passed and failed, and which, of what each runner has really printed."""
    assert read_report("make check", recorded(name)) == REPORTS[name]


def test_runs_of_one_command_are_added_up() -> None:
    """`pytest; npm test` is one run of the shell."""
    both = read_report("pytest; npx jest", recorded("pytest_quiet") + recorded("jest_failures"))
    assert both == RunnerReport("pytest, jest", 5, 4, (*PYTEST.failing, ROUNDS))


@pytest.mark.parametrize(
    "command", ["cat log.txt", "cd app && tail -n 40 /tmp/log | grep passed", "git show; echo done"]
)
def test_a_report_that_is_only_shown_is_no_run(command: str) -> None:
    """An agent that reads an old log has tested nothing."""
    assert read_report(command, recorded("pytest_quiet")) is None
    assert read_report(f"{command}; ./check", recorded("pytest_quiet")) == PYTEST


def test_the_end_of_a_long_output_counts() -> None:
    """A runner sums up at its end, however much the tests have printed before."""
    assert read_report("pytest", "x" * 5_000_000 + "\n" + recorded("pytest_quiet")) == PYTEST


HOSTILE = [
    "=" * 3_000_000,
    "1 passed, " * 300_000 + "in 1.0s",
    "9" * 2_000_000 + " passed in 1s",
    "--- FAIL: " * 300_000,
    '{"Output":' * 200_000,
    "[" * 1_000_000,
    '{"a":' * 40_000,
    "\x1b[" + "1;" * 1_000_000,
    "FAIL: x\n" * 200_000,
    "● a \u203a b\n" * 200_000,
    "Ran 1 test in 1s\nFAILED (" + "failures=1, " * 200_000,
    "\0\ud800\x85\u2028" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_read_to_its_end(text: str) -> None:
    """Whoever prints decides what is read: no text takes a time that grows faster than it."""
    report = read_report("x" + text, text)
    assert report is None or len(report.failing) <= 20


LINES = [line for name in REPORTS for line in recorded(name).splitlines()]


@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=60)), max_size=30), st.text(max_size=40))
def test_any_text_is_read_without_an_error(lines: list[str], command: str) -> None:
    """Parts of real reports in any order, and anything between."""
    report = read_report(f"x {command}", "\n".join(lines))
    if report is not None:
        assert report.passed >= 0
        assert report.failed >= len(report.failing)
