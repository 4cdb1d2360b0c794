"""The skill that agents load is short, and names what exists."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlm_mcp.cli.clients import CLIENTS

LINES_A_SKILL_MAY_HAVE = 50


@pytest.fixture(scope="module")
def skill(root: Path) -> str:
    """Return the text of the skill."""
    return (root / "skills/context-kernel/SKILL.md").read_text()


def test_the_skill_fits_in_fifty_lines(skill: str) -> None:
    """K-27: what every agent has to read is short."""
    assert len(skill.splitlines()) <= LINES_A_SKILL_MAY_HAVE


def test_the_skill_says_when_to_use_it(skill: str) -> None:
    """K-27: a client shows name and description, and decides by them."""
    header = yaml.safe_load(skill.split("---")[1])
    assert header["name"] == "context-kernel"
    assert "Use when" in header["description"]


@pytest.mark.parametrize("advice", ["insights, not data", "before `peek", "unload"])
def test_the_skill_tells_the_habits_that_keep_prompts_small(advice: str, skill: str) -> None:
    """K-26: insights instead of data, scan before peek, unload when done."""
    assert advice in skill


def _skill(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "rlm_mcp", "skill", *arguments]
    environment = {**os.environ, "HOME": str(folder / "home")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("client", "user"), [*((name, False) for name in CLIENTS), ("codex", True)])
def test_it_is_installed_where_the_client_looks(client: str, user: bool, skill: str, tmp_path: Path) -> None:
    """K-27: of the project, or of the user for all projects."""
    place = {"claude-code": ".claude", "qwen-code": ".qwen"}.get(client, ".agents")
    file = (tmp_path / "home" if user else tmp_path) / place / "skills/context-kernel/SKILL.md"
    done = _skill("--install", client, *["--user"] * user, "--json", folder=tmp_path)
    assert (json.loads(done.stdout), done.returncode) == ({"installed": str(file)}, 0)
    assert file.read_text() == skill


def test_it_is_printed_and_installed_in_any_folder(skill: str, tmp_path: Path) -> None:
    """For a client that we do not know."""
    assert _skill(folder=tmp_path).stdout == skill
    (tmp_path / "mine").mkdir()
    assert _skill("--install", "mine", folder=tmp_path).returncode == 0
    assert (tmp_path / "mine/context-kernel/SKILL.md").read_text() == skill
    assert "unchanged" in _skill("--install", "mine", folder=tmp_path).stdout
    (tmp_path / "mine/context-kernel/SKILL.md").unlink()
    (tmp_path / "mine/context-kernel").rmdir()
    (tmp_path / "mine/context-kernel").write_text("in the way")
    assert _skill("--install", "mine", folder=tmp_path).returncode == 4


def test_a_changed_file_is_replaced_only_when_told_so(skill: str, tmp_path: Path) -> None:
    """What somebody has written there is not lost."""
    file = tmp_path / ".agents/skills/context-kernel/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("my own")
    refused = _skill("--install", "codex", folder=tmp_path)
    assert (refused.returncode, file.read_text()) == (1, "my own")
    assert refused.stderr.startswith("rlm-kernel: ")
    assert "--force" in refused.stderr
    replaced = _skill("--install", "codex", "--force", folder=tmp_path)
    assert (replaced.returncode, file.read_text()) == (0, skill)
    assert "replaced" in replaced.stdout


@pytest.mark.parametrize(
    "arguments", [("--install",), ("--install", "emacs"), ("codex",), ("--user",), ("--install", ".", "--user")]
)
def test_wrong_usage_writes_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code 2, and what to name instead."""
    done = _skill(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
