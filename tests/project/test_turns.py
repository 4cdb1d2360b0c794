"""Which test files each commit takes in CI."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import long_files
import pytest
from long_files import TURNS


def test_the_turns_take_every_file_once() -> None:
    """What no turn took would never run in CI."""
    left = [long_files.left_out(str(turn)) for turn in range(TURNS)]
    for name in long_files.LONG:
        times = sum(long_files.TESTS / name not in one for one in left)
        assert times == (TURNS if name in long_files.EVERY_TURN else 1), name
    assert [long_files.left_out(str(turn)) for turn in range(TURNS, 2 * TURNS)] == left


@pytest.mark.parametrize("turn", [None, ""])
def test_without_a_turn_everything_runs(turn: str | None) -> None:
    """Whoever runs the tests by themselves runs all of them."""
    assert long_files.left_out(turn) == ()


def test_the_list_names_files_that_are_there() -> None:
    """A file that was renamed would run in every turn."""
    assert [name for name in long_files.LONG if not (long_files.TESTS / name).is_file()] == []
    assert len(set(long_files.LONG)) == len(long_files.LONG)
    assert set(long_files.LONG) > long_files.EVERY_TURN


def test_pushes_of_four_commits_do_not_all_take_one_quarter(root: Path, tmp_path: Path) -> None:
    """CI runs once for what is pushed. Counted commits gave such pushes one turn, and other files never ran."""
    chosen = "\n".join(re.findall(r"^RLM_\w+=.*", (root / ".ci/run").read_text("utf-8"), re.MULTILINE))
    who = {
        f"GIT_{role}_{what}": f"{what}@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    when = {f"GIT_{role}_DATE": "2026-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")}
    commit = "git commit -q --allow-empty -m change\n"
    script = f"set -eu\ngit init -q\n{(commit * 4 + chosen + chr(10) + 'echo $RLM_TESTS_TURN' + chr(10)) * 12}"
    turns = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **who, **when},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {int(turn) % TURNS for turn in turns} == set(range(TURNS))
