"""The queue and the files of other trackers from the command line: real processes, exit codes, text and JSON."""

import json
import subprocess
from pathlib import Path

import pytest
from command_line import cli

ISSUE = '{"id":"bd-1","title":"do it","status":"open","priority":0,"x":{"y":[]}}\n'


@pytest.fixture(autouse=True)
def repository(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository of its own, and so a queue of its own."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)


def test_a_file_goes_into_the_queue_and_out_again(tmp_path: Path) -> None:
    """Claimed and done here, it is closed there; what nobody here knows is as it was."""
    (tmp_path / "issues.jsonl").write_text(ISSUE)
    assert cli("work", "import", "issues.jsonl").stdout == "added: 1, changed: 0, the same: 0\n"
    assert cli("work", "export", "--to", "beads").stdout == ISSUE
    (task,) = json.loads(cli("work", "next", "--json").stdout)["next"]
    shown = json.loads(cli("work", "list", task, "--fields", "full", "--json").stdout)
    assert (shown["title"], shown["aliases"]) == ("do it", ["beads:bd-1"])
    cli("work", "claim", "--ttl", "60")
    cli("work", "done", task, "--force", "--summary", "It is done.")
    assert cli("work", "export", "--to", "beads", "-o", "out").stdout == "written: out\n"
    written = json.loads((tmp_path / "out").read_text())
    assert (written["status"], written["close_reason"], written["x"]) == ("closed", "It is done.", {"y": []})


def test_what_cannot_be_imported_or_exported_is_said(tmp_path: Path) -> None:
    """A file of no known kind, one that is none, one that cannot be written, and one that names what it has not."""
    (tmp_path / "tasks.txt").write_text("")
    assert "pass --from" in cli("work", "import", "tasks.txt", code=2).stderr
    assert cli("work", "export", "--to", "beads", "-o", "no/such", code=1).stderr == (
        "rlm-kernel: no/such cannot be written (No such file or directory); name another file\n"
    )
    assert "is not JSON" in cli("work", "import", "tasks.txt", "--from", "task-master", code=1).stderr
    (tmp_path / "tasks.json").write_text('{"tasks":[{"id":1,"title":"x","dependencies":[2]}]}')
    said = cli("work", "import", "tasks.json", code=1).stderr
    assert "1 names 2" in said
    assert "--skip-missing" in said
    assert json.loads(cli("work", "import", "tasks.json", "--skip-missing", "--json").stdout)["added"] == 2
