"""What the output of a failed command says."""

from __future__ import annotations

from pathlib import Path

from rlm_ipc.chain_requests import Failure
from rlm_mcp.hook.runners import read_report

_LONGEST = 4_000
_READ = 400_000


def failure(command: str, status: int, log: Path) -> Failure:
    """Describe the failure of a command that exited with ``status``, from its output in ``log``."""
    output = tail(log, _READ)
    report = read_report(command, output) or read_report("run", output)
    if report is None:
        return Failure(command[:500], status, output=output[-_LONGEST:])
    return Failure(
        command[:500], status, report.runner, report.passed, report.failed, report.failing, output[-_LONGEST:]
    )


def tail(log: Path, most: int) -> str:
    """Return the end of an output."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
