"""From a hook to the rows and back: real daemons, real fronts, hooks as clients run them."""

from __future__ import annotations

import contextlib
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
from rlm_ipc.daemon_requests import ShowPrime, ShowStatus, StopDaemon
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


AGENT = """
import json, os, subprocess, sys
front = subprocess.Popen([sys.executable, "-P", "-m", "rlm_mcp", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def ask(number, method, params):
    line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    front.stdin.write(json.dumps(line).encode() + b"\\n"); front.stdin.flush()
    while True:
        answer = json.loads(front.stdout.readline())
        if answer.get("id") == number:
            return answer
for number, line in enumerate(sys.stdin):
    kind, given, *more = json.loads(line)
    if kind == "hook":
        done = subprocess.run(["/bin/sh", "-c", given], input=json.dumps(more[0]).encode(), capture_output=True)
        said = [done.returncode, done.stdout.decode()]
    else:
        if number == 0:
            client = {"name": "agent", "version": "1"}
            ask("i", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        said = json.loads(ask(number, "tools/call", {"name": kind, "arguments": given})["result"]["content"][0]["text"])
    print(json.dumps(said), flush=True)
"""
"""An agent program: it starts our server and runs our hooks, each by `sh`, as the real ones do."""


class AgentProgram:
    """A process that does what a client does, when it is told to."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", AGENT]
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, kind: str, given: Any, *more: Any) -> Any:
        """Call a tool, or run the command of a hook with an event."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([kind, given, *more]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End it, and the server with it."""
        self.process.communicate()


@pytest.fixture
def program(repository: Path) -> Iterator[Callable[[], AgentProgram]]:
    """Start an agent program in the repository."""
    with contextlib.ExitStack() as stack:

        def start() -> AgentProgram:
            started = AgentProgram(repository)
            stack.callback(started.close)
            return started

        yield start


def test_an_agent_writes_what_it_has_claimed_and_others_do_not(
    installed: Installation, running: int, repository: Path, program: Callable[[], AgentProgram]
) -> None:
    """E-5: by the processes above the hook, with nothing that a client or a model has to say."""
    one, two = program(), program()
    task = one("work", {"do": "add", "data": {"goal": "rewrite src", "paths": ["src/"]}})["added"]
    assert one("work", {"do": "claim", "id": task})["claimed"] == task
    two("frame", {})
    before = installed.command("claude-code", "PreToolUse")
    path = edit(repository / "src" / "a.py")
    # On a busy machine an answer may come late, and then the write goes on.
    said = wait_until(lambda: two("hook", before, path), lambda answer: answer[1])
    decision = json.loads(said[1])["hookSpecificOutput"]
    assert (said[0], decision["permissionDecision"]) == (0, "deny")
    assert f"src/a.py was not written: {task}, on which" in decision["permissionDecisionReason"]
    assert [one("hook", before, path) for _ in range(5)] == [[0, ""]] * 5
    assert two("hook", before, edit(repository / "free.py")) == [0, ""]
    one("hook", installed.command("claude-code", "PostToolUse"), path)
    text = wait_until(lambda: shown(repository), lambda text: "files: src/a.py" in text)
    assert f"Resuming {task} from: implementing" in text
    assert f"Only those working on these frames may write to: src/ ({task})." in text


def test_outside_git_hooks_mean_the_queue_that_agents_mean(
    installed: Installation, running: int, tmp_path: Path
) -> None:
    """E-5: folders outside git share one queue, that of the folder in which it was begun."""
    begun, other = tmp_path / "begun", tmp_path / "other"
    begun.mkdir()
    other.mkdir()
    with contextlib.closing(AgentProgram(begun)) as one, contextlib.closing(AgentProgram(other)) as two:
        task = one("work", {"do": "add", "data": {"goal": "rewrite src", "paths": ["src/"]}})["added"]
        assert one("work", {"do": "claim", "id": task})["claimed"] == task
        assert two("work", {"do": "list"})["frames"][0]["id"] == task
        assert f"Only those working on these frames may write to: src/ ({task})." in shown(other)
        before = installed.command("claude-code", "PreToolUse")
        said = wait_until(lambda: two("hook", before, edit(begun / "src" / "a.py")), lambda answer: answer[1])
        assert f"src/a.py was not written: {task}, on which" in said[1]
        assert two("hook", before, edit(other / "src" / "a.py")) == [0, ""]


def test_work_after_a_restart_of_the_daemon_goes_to_what_the_agent_has_claimed(
    installed: Installation, running: int, repository: Path, program: Callable[[], AgentProgram]
) -> None:
    """E-5: the current frame was in the memory of the daemon; the claim is in the rows, and the agent still lives."""
    one = program()
    one("push", {"goal": "somebody else's goal", "fork": False})
    task = one("work", {"do": "add", "data": {"goal": "the task"}})["added"]
    assert one("work", {"do": "claim", "id": task})["claimed"] == task
    with DaemonConnection(StopDaemon()) as daemon:
        daemon.wait_for_end()
    one("hook", installed.command("claude-code", "PostToolUse"), edit(repository / "later.py"))
    start_daemon().close()
    text = wait_until(lambda: shown(repository), lambda text: "files: later.py" in text)
    assert f"Resuming {task} from: implementing" in text
