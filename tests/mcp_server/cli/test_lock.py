"""The project lock from the command line: real processes, text and JSON."""

import subprocess
from pathlib import Path

import pytest
from command_line import answer, cli

pytestmark = pytest.mark.usefixtures("daemon")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a small repository, whose name is a hostile one."""
    root = tmp_path / "pro\u202eject"
    root.mkdir()
    (root / "app.py").write_text("def main():\n    return 1\n")
    (root / "bad\nname.py").write_text("x = 1\n")
    (root / "AGENTS.md").write_text("Run the tests first.\n")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    monkeypatch.chdir(root)
    return root


def test_a_person_sees_structure_rules_and_what_has_changed(project: Path) -> None:
    """Names are escaped; a version is compared with the newest; JSON has the sections."""
    shown = cli("lock", "--wait").stdout
    assert "version 1, 3 files" in shown
    assert "\u202e" not in shown
    assert "Run the tests first." in shown
    (project / "more.py").write_text("x = 1\n")
    assert answer("lock", "--refresh", "--wait")["version"] == 2
    changes = cli("lock", "--since", "1").stdout
    assert changes.splitlines() == ["version 1 to 2: 1 files changed", "  added     more.py  +x"]
    assert "that version is not kept; the latest is 2" in cli("lock", "--since", "77").stdout
    found = answer("lock", "--wait")
    assert found["sections"]["project"]["files"] == {"count": 3, "untracked": 1, "by_extension": {".py": 2, ".md": 1}}
    assert "app.py" in cli("lock", "--wait", "--map", "500", "--about", "what is main").stdout


def test_a_repository_without_a_file_in_git_has_no_line_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is not is not listed."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "app.log").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    assert cli("lock", "--wait").stdout == f"{tmp_path}: version 1, 0 files and 1 untracked\n"


def test_a_new_repository_has_no_map_and_never_will_without_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'There is no map yet' had whoever read it ask again for what does not come."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    done = cli("lock", "--wait", "--map", "500")
    assert done.stdout == f"{tmp_path}: version 1, 0 files\n"
    assert done.stderr == "missing: there is no map, as the project has no files\n"
    assert cli("lock", "--wait").stderr == ""
    (tmp_path / "app.py").write_text("def main(): pass\n")
    assert cli("lock", "--refresh", "--wait", "--map", "500").stdout == "app.py: main:1\n\n"


def test_a_folder_that_is_none_is_told(project: Path) -> None:
    """1: nothing can be shown."""
    refused = cli("lock", "missing", code=1)
    assert "there is no folder" in refused.stderr
