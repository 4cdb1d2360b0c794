"""From a hook to the rows and back: real daemons, real fronts, hooks as clients run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from rlm_ipc.daemon_connection import DaemonConnection, ask, start_daemon
from rlm_ipc.daemon_requests import ShowPrime, ShowStatus
from rlm_mcp.hook.blocks import Installation

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
FAILED = "FAILED tests/test_a.py::test_sums - assert 1 == 2\n1 failed, 3 passed in 0.10s\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository as an agent works in it."""
    folder = tmp_path / "repo"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture
def running(isolation: Any) -> Iterator[int]:
    """A daemon of this test's own; returns its process."""
    start_daemon().close()
    with DaemonConnection(ShowStatus()) as daemon:
        yield daemon.pid
    end_daemon()


def end_daemon() -> None:
    """End the daemon in order, and what it has started."""
    subprocess.run([sys.executable, "-P", "-m", "rlm_mcp", "daemon", "stop", "--all"], capture_output=True, check=True)


def edit(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "session_id": "s",
        "cwd": str(path.parent),
        "tool_name": "Edit",
        "tool_input": {"file_path": str(path)},
    } | more


def ran(folder: Path, command: str, output: str, **more: Any) -> dict[str, Any]:
    given = {"session_id": "s", "cwd": str(folder), "tool_name": "Bash", "tool_input": {"command": command}}
    return given | {"tool_response": {"stdout": output, "stderr": ""}} | more


def shown(folder: Path) -> str:
    return ask(ShowPrime(str(folder))).text


def test_work_that_hooks_see_is_there_after_a_crash(
    installed: Installation, running: int, run_hook: Run, repository: Path, gone: Any
) -> None:
    """E-5, E-6: edits, tests, a commit; then the daemon is killed, more is done meanwhile, and another one starts."""
    assert run_hook("claude-code", "PostToolUse", edit(repository / "src.py"), cwd=repository).stdout == b""
    made = "[main 1a2b3c4] Begin\n 1 file changed\n"
    run_hook("claude-code", "PostToolUse", ran(repository, "git commit -am Begin", made), cwd=repository)
    wait_until(lambda: shown(repository), lambda text: "last commit: 1a2b3c4" in text)
    with DaemonConnection(ShowStatus()) as daemon:
        os.kill(running, signal.SIGKILL)
        daemon.wait_for_end()
    run_hook("claude-code", "PostToolUse", edit(repository / "tests" / "test_a.py"), cwd=repository)
    failure = {"tool_response": None, "error": f"Exit code 1\n{FAILED}"}
    run_hook("claude-code", "PostToolUseFailure", ran(repository, "pytest -q", "", **failure), cwd=repository)
    start_daemon().close()
    text = wait_until(lambda: shown(repository), lambda text: "Resuming" in text)
    assert "Resuming f1 from: testing, next: fix the failing test tests/test_a.py::test_sums" in text
    assert "files: src.py, tests/test_a.py (not committed)" in text
    assert "tests: 3 passed, 1 failed: tests/test_a.py::test_sums" in text
    assert "last commit: 1a2b3c4" in text
    begun = run_hook("claude-code", "SessionStart", {"cwd": str(repository), "source": "compact"}, cwd=repository)
    assert json.loads(begun.stdout)["hookSpecificOutput"]["additionalContext"] == text
