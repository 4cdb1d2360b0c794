"""How the work goes, from the command line."""

import subprocess
from pathlib import Path

import pytest
from command_line import answer, cli

pytestmark = pytest.mark.usefixtures("daemon")


def test_the_table_has_targets_and_what_it_rests_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-15: for people and as JSON; what has not happened has no number."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    task = answer("work", "add", "a task")["added"]
    token = answer("work", "claim", "--ttl", "60")["token"]
    answer("work", "done", task, "--lease", token, "--summary", "It is done.")
    found = {line["name"]: line for line in answer("metrics")}
    agents = found["tasks per agent"]
    assert (agents["value"], agents["events"], agents["of"], agents["met"]) == (1.0, 1, "agents", False)
    assert (found["batches completed"]["value"], found["batches completed"]["events"]) == (None, 0)
    lines = [line.split() for line in cli("metrics").stdout.splitlines()]
    assert "tasks per agent 1.0 8 or more missed 1 agents".split() in lines
    assert "batches completed no data 95 % or more 0 batches".split() in lines
