"""`rlm-kernel work` as a user types it: real processes, exit codes, lines and JSON; and what outlives the loop."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PROGRAM_SECONDS, wait_until

from rlm_client.client import Client

AGENT = Path(__file__).parents[2] / "support/fake_agent.py"
RUN = [sys.executable, "-P", "-m", "rlm_mcp", "work"]


class Shell:
    """A folder with a story, and the commands that are run there."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "script.json"
        with Client() as client:
            self.story = client.work("add", data={"goal": "story", "kind": "story"})["added"]
            self.task = client.work("add", data={"goal": "task", "parent": self.story})["added"]
        agent = f"{sys.executable} {AGENT} {self.script} {{task}} {{prompt}}"
        self.headless = ["--story", self.story, "--headless", "--agent-cmd", agent]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen([*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command, check its exit code, and return what it printed."""
        done = subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def shell(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Give a folder with a queue; the daemon is that of the module."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--headless", "--agent-cmd", "true"], "choose what to work on: --epic ID, --story ID, or --all"),
        (["--all", "--epic", "f1", "--headless", "--agent-cmd", "true"], "choose what to work on"),
        (["--all", "--headless"], "--headless needs --agent-cmd"),
        (["--all", "--agent-cmd", "true"], "--agent-cmd needs --headless"),
        (
            ["--all", "--headless", "--agent-cmd", "env bash -lc 'agent {prompt}'"],
            "a shell would run the text of a task",
        ),
        (["--all", "-n", "many"], "-n must be auto or a number from 1 to 64"),
        (["--epic", "STORY", "--headless", "--agent-cmd", "true"], "is a story: use --story"),
        (["--epic", "STORY"], "is a story: use --story"),
        (["--epic", "f1"], "f1 is a session: name a story or an epic"),
    ],
)
def test_a_scope_and_an_agent_have_to_be_named(shell: Shell, arguments: list[str], words: str) -> None:
    """E-12: nothing runs away: without a scope no agent is started. Each refusal says what to type instead."""
    assert words in shell.run(*[shell.story if one == "STORY" else one for one in arguments], code=2)


def test_a_scope_that_is_not_there_is_refused_before_an_agent_is_told_of_it(shell: Shell) -> None:
    """Else the agent in a terminal begins with a prompt that ends with a name which nothing has."""
    for name in ("sign-in", "f999", ""):
        assert "no frame" in shell.run("--epic", name, code=1)


def test_without_headless_the_prompt_of_work_is_printed(shell: Shell) -> None:
    """E-16: an agent in a terminal does the same by hand; -n and --parallel are one option."""
    said = shell.run("--story", shell.story, "--parallel", "2")
    assert '`work(do="next", data={"scope": …, "limit": 2})`' in said
    assert said.endswith(f"{shell.story}\n")


def test_events_are_lines_of_json_and_notifications_are_told(shell: Shell, tmp_path: Path) -> None:
    """E-12: a program can follow the loop; what goes badly and the end are told to a command of the user."""
    shell.script.write_text(json.dumps({"*": [["fail No way."]]}))
    notify = ["--notify", f"cat >> {tmp_path / 'told'}", "--json"]
    said = [json.loads(line) for line in shell.run("run", *shell.headless, *notify, code=1).splitlines()]
    assert [event["what"] for event in said] == ["first", "failed", "failed", "batch", "stuck", "ended"]
    assert said[0]["task"] == shell.task
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert sorted(event["what"] for event in told) == ["ended", "failed", "failed", "stuck"]


def test_a_loop_that_is_killed_is_gone_on_with_and_its_agent_is_not_started_again(shell: Shell, tmp_path: Path) -> None:
    """E-12, E-6: an agent outlives its loop, hands over cleanly, and `--continue` takes what it has left."""
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    gate.touch()
    shell.script.write_text(json.dumps({"*": [[f"wait {begun} {gate}", "pass"]]}))
    loop = shell.start(*shell.headless)
    wait_until(begun.exists)
    loop.kill()
    loop.communicate()
    refused = shell.run("--all", "--headless", "--continue", code=1)
    assert "no chain of this scope was interrupted" in refused
    gate.unlink()
    said = shell.run("--story", shell.story, "--headless", "--continue")
    assert f"{shell.task} passed" in said
    assert "(agent 2)" not in said
    assert "Tasks: 1 completed" in said


def test_ctrl_c_ends_the_agents_and_what_they_left_is_recovered(shell: Shell, tmp_path: Path) -> None:
    """E-12: a loop that is stopped leaves no process and no lease; the next agent is told of a crash."""
    begun = tmp_path / "begun"
    shell.script.write_text(json.dumps({"*": [["note half", f"hang {begun}"], ["pass"]]}))
    loop = shell.start(*shell.headless)
    wait_until(begun.exists)
    loop.send_signal(signal.SIGINT)
    said, _ = loop.communicate(timeout=60)
    assert "continue it with --continue" in said
    assert loop.returncode == 1
    with Client() as client:
        wait_until(lambda: client.work("next", data={"scope": shell.story})["next"], [shell.task].__eq__)
    said = shell.run("--story", shell.story, "--headless", "--continue")
    assert f"{shell.task} recovered" in said
    assert "attempt 2. The agent before you was cut short" in (tmp_path / f"{shell.task}.2.prompt").read_text()
