"""Derives fields of the work in progress from an event: files, tests, commits and errors."""

from __future__ import annotations

import re
from typing import NotRequired, TypedDict

from rlm_mcp.hook.events import Edited, Event, ShellRan
from rlm_mcp.hook.runners import RunnerReport, read_report, runs_something

_COMMITTED = re.compile(r"^\[[^\]\n]{1,200} ([0-9a-f]{7,40})\] ", re.MULTILINE)
_MESSAGE = 300
_COMMAND = 120
_PLACE = re.compile(
    r"^(?:  File \"(?P<file>[^\"\n]{1,300})\", line (?P<line>\d{1,7})"
    r"|(?P<path>[^\s:]{1,300}):(?P<at>\d{1,7})(?::\d{1,7})?: (?:fatal )?(?:error|Error)\b)",
    re.MULTILINE,
)
_RAISED = re.compile(r"^(?:[\w.]{1,100}\.)?([A-Z]\w{0,100}(?:Error|Exception|Interrupt)): ", re.MULTILINE)
_EXIT_LINES = re.compile(r"^(Exit code -?\d+|Exit Code: .*|Error: \(none\)|Signal: .*|Process Group PGID: .*|"
                         r"Command: .*|Directory: .*|<shellId: .*|</?untrusted_context>)$")  # fmt: skip
_TAIL = 20_000


class Results(TypedDict):
    """The result of a test run. E-4 names one failing test; None removes that of an earlier run."""

    ran: bool
    passed: int | None
    failed: int | None
    failing_test: str | None
    failing_tests: list[str] | None


class Failure(TypedDict):
    """A failure: the kind and the place of the last named error, and the last lines."""

    type: str
    message: str
    file: NotRequired[str]
    command: str


class Observed(TypedDict, total=False):
    """Fields of work in progress."""

    files_modified: list[str]
    uncommitted_changes: bool
    last_commit: str
    test_results: Results
    errors: list[Failure]


def observed(event: Event) -> Observed:
    """Return the fields of work in progress that an event changes, with absolute paths; usually none."""
    if isinstance(event, Edited) and event.paths:
        return {"files_modified": list(event.paths), "uncommitted_changes": True}
    return _of_shell(event) if isinstance(event, ShellRan) else {}


def _of_shell(ran: ShellRan) -> Observed:
    found: Observed = {}
    if "commit" in ran.command and (made := _COMMITTED.findall(ran.output[-_TAIL:])):
        found = {"last_commit": made[-1], "uncommitted_changes": False}
    if (report := read_report(ran.command, ran.output)) is not None:
        found["test_results"] = _results(report)
    elif ran.status and runs_something(ran.command):
        found["errors"] = [_error(ran)]
    return found


def _results(report: RunnerReport) -> Results:
    return {
        "ran": True,
        "passed": report.passed,
        "failed": report.failed,
        "failing_test": report.failing[0] if report.failing else None,
        "failing_tests": list(report.failing) if len(report.failing) > 1 else None,
    }


def _error(ran: ShellRan) -> Failure:
    output = ran.output[-_TAIL:]
    lines = [line for line in output.splitlines() if line.strip() and not _EXIT_LINES.match(line)]
    message = "\n".join(line[:_MESSAGE] for line in lines[-3:])[-_MESSAGE:]
    raised, places = _RAISED.findall(output), list(_PLACE.finditer(output))
    error: Failure = {
        "type": raised[-1] if raised else f"exit {ran.status}",
        "message": message,
        "command": " ".join(ran.command.split())[:_COMMAND],
    }
    if places:
        last = places[-1]
        error["file"] = f"{last['file'] or last['path']}:{last['line'] or last['at']}"
    return error
