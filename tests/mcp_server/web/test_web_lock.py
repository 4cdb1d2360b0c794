"""Locks on the page's wire: which projects there are, one of them with what changed, and what is refused."""

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from rlm_client import Client


def test_a_project_is_shown_once_somebody_has_asked_for_its_lock(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Structure, map and differences, for who has the key; no folder can be named that has no lock."""
    (tmp_path / "a<b>.py").write_text("x = 1\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    asked = f"/api/project?{urlencode({'root': str(tmp_path), 'since': 1})}"
    assert page.told("GET", "/api/projects", Authorization=None)[0] == 401
    assert page.told("GET", asked)[0] == 400
    with Client("page") as client:
        client.lock()
    _, listed = page.told("GET", "/api/projects")
    assert str(tmp_path) in [one["root"] for one in listed["projects"]]
    status, shown = page.told("GET", asked)
    assert (status, shown["version"], shown["difference"]["count"]) == (200, 1, 0)
    assert shown["sections"]["project"]["files"]["untracked"] == 1
    assert page.told("GET", f"/api/project?{urlencode({'root': str(tmp_path), 'since': 'x'})}")[0] == 400
    with page.ask("GET", asked) as answer:
        assert b"<b>" not in answer.read()
