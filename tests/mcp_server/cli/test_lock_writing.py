"""``rlm-kernel lock --write``: the folder `.memory` of a project, through the real daemon and scanner."""

import json
from pathlib import Path

import pytest
from command_line import answer, cli, run
from project_folders import git, write

from rlm_client.client import Client

pytestmark = pytest.mark.usefixtures("shared_processes")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a small repository."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    write(root, {"AGENTS.md": "Test first.", "pyproject.toml": "[project]\nname = 'p'\ndependencies = ['httpx']\n"})
    git(root, "add", ".")
    return root


def test_the_folder_is_written_when_asked_for_and_a_pop_adds_a_line(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-1, L-5: nothing is written before; a second write changes nothing; each end of a goal is a line of history."""
    place = project / ".memory"
    cli("lock", str(project), "--wait")
    assert not place.exists()
    written = answer("lock", str(project), "--wait", "--write")["written"]
    assert ".memory/project/structure.json" in written
    assert "written" not in answer("lock", str(project), "--wait", "--write")
    structure = json.loads((place / "project/structure.json").read_text())
    assert (structure["files"]["count"], structure["dependencies"]["total"]) == (2, 1)
    assert "Test first." in (place / "rules/global.rules.yaml").read_text()
    monkeypatch.chdir(project)
    with Client("writing") as client:
        client.lock()
        with client.push("Add `auth`") as goal:
            goal.pop(summary="It is there.")
    (line,) = (place / "history/sessions.jsonl").read_text().splitlines()
    session = json.loads(line)
    assert (session["task"], session["result"], session["iteration"]) == ("Add `auth`", "DELIVER", 1)
    assert session["end"] >= session["start"]
    assert answer("lock", str(project), "--wait", "--refresh")["version"] == 1  # the folder is no part of the project


def test_a_folder_that_is_not_ours_is_refused_with_advice(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """L-1: a link out of the project is not followed."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (project / ".memory").symlink_to(elsewhere)
    refused = run(["lock", str(project), "--wait", "--write"])
    assert refused.returncode != 0
    assert "is a link" in refused.stderr
    assert "move it away" in refused.stderr
    assert list(elsewhere.iterdir()) == []
