"""An agent program without a model: for each of its runs for a task it does what a script says.

``fake_agent.py SCRIPT TASK PROMPT``: the file SCRIPT has JSON: by a task's id, or "*", a list of runs, each a list of
steps; the last run counts for all after it. Beside SCRIPT it keeps the prompts that it was given.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from waiting import wait_until

from rlm_client.client import Client
from rlm_ipc import process_identity
from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_requests import Ancestor, NoteHook
from rlm_ipc.errors import KernelError, ToolFailed


def main(script: Path, task: str, prompt: str) -> None:
    """Do the steps of this run."""
    told = json.loads(script.read_text())
    branch = re.search(r"`git merge (\S+)`", prompt)
    runs = told.get(task) or told["*"]
    number = _number(script, task)
    script.with_name(f"{task}.{number}.prompt").write_text(prompt)
    with Client() as client:
        for step in runs[min(number, len(runs)) - 1]:
            what, _, rest = step.partition(" ")
            _do(client, task, what, rest if branch is None else rest or branch[1])


def _number(script: Path, task: str) -> int:
    """Count the runs for a task: its lease keeps others from counting at once."""
    counter = script.with_name(f"{task}.runs")
    with counter.open("a") as file:
        file.write("run\n")
    return counter.read_text().count("\n")


def _do(client: Client, task: str, what: str, rest: str) -> None:
    if not _told(client, task, what, rest) and not _waited(task, what, rest):
        _acted(task, what, rest)


def _told(client: Client, task: str, what: str, rest: str) -> bool:
    """Tell the daemon of the task, if that is what is to be done."""
    match what:
        case "note":
            _again(lambda: client.work("renew", task, {"next_step": rest, "decisions": [f"{task} decided {rest}"]}))
        case "pass" | "fail" | "blocked":
            status = {"pass": "PASS", "fail": "FAIL", "blocked": "BLOCKED"}[what]
            data = {"status": status, "summary": rest or f"{task} went so.", "decisions": [f"{task} chose {what}"]}
            _again(lambda: client.handoff(task, {**data, "details": f"details of {task}"}))
        case "done":
            _again(lambda: client.work("done", task, {"summary": rest or f"{task} is done."}))
        case "release":
            _again(lambda: client.work("release", task))
        case _:
            return False
    return True


def _waited(task: str, what: str, rest: str) -> bool:
    """Wait for a test or another agent, if that is what is to be done."""
    match what:
        case "hang":
            print("hanging", flush=True)
            Path(rest).touch()
            signal.pause()
        case "wait":  # until a file is gone
            begun, gate = rest.split()
            Path(begun).touch()
            wait_until(lambda: not Path(gate).exists())
        case "await":
            Path(rest).read_text()  # a pipe that the test opens
        case "join":  # until so many agents have come here
            Path(f"{task}.joined").touch()
            wait_until(lambda: len(list(Path.cwd().glob("*.joined"))) >= int(rest))
        case _:
            return False
    return True


def _acted(task: str, what: str, rest: str) -> None:
    """Do something that the daemon does not hear of."""
    match what:
        case "write":
            path, _, text = rest.partition(" ")
            Path(path).write_text(text + "\n")
        case "pwd":
            Path(rest).write_text(os.environ["PWD"])
        case "commit":
            for command in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", task]):
                subprocess.run(["git", *command], check=True)
        case "merge":  # the branch that the prompt names
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            subprocess.run(["git", *who, "merge", "-q", "-X", "ours", rest], check=True)
        case "prime":  # what Claude Code reads after a compaction
            above = tuple(Ancestor(pid, 0) for pid in process_identity.ancestors(os.getpid()))
            Path(rest).write_text(_hook(task, "SessionStart", above, source="compact"))
        case "edit":  # as the plugin of opencode tells it, which knows its own process only
            given = {"tool_name": "Write", "tool_input": {"file_path": str(Path.cwd() / rest)}}
            _hook(task, "PostToolUse", (Ancestor(os.getpid(), 0),), **given)
        case "say":
            print(rest)
        case "exit":
            sys.exit(int(rest))
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill-launcher":
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        case _:
            raise ValueError(what)


def _hook(task: str, event: str, above: tuple[Ancestor, ...], **given: object) -> str:
    """Tell the daemon an event, as a hook does that has time to wait; returns what it is to print."""
    said = json.dumps({"cwd": str(Path.cwd()), "session_id": task, **given})
    return ask(NoteHook("claude-code", event, said, time.time(), f"{task}-{event}", above)).output


def _again(call: Callable[[], object]) -> None:
    """Make a call until the daemon answers: it may be killed under it."""
    while True:
        try:
            call()
            return
        except ToolFailed:
            raise
        except KernelError:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
