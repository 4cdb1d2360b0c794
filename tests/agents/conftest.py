"""What real agent programs need: a model, and a repository of a user who has nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def turns(tmp_path: Path) -> Path:
    """Return the file into which the model writes what it was asked, one request a line."""
    return tmp_path / "turns.jsonl"


@pytest.fixture
def model(turns: Path) -> Iterator[str]:
    """Serve the scripted model; returns its URL."""
    command = [sys.executable, str(SUPPORT / "scripted_model.py"), str(turns)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a git repository, the folder of a user who has nothing else, and git's author."""
    folder, home = tmp_path / "repository", tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    for command in (["init", "-qb", "main", str(folder)], ["config", "--global", "user.name", "agent"]):
        subprocess.run(["git", *command], check=True)
    subprocess.run(["git", "config", "--global", "user.email", "agent@localhost"], check=True)
    subprocess.run(["git", "-C", folder, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    monkeypatch.chdir(folder)
    return folder
