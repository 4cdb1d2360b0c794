"""A whole tree from a shell: its rows, its file, and that file run again."""

import json
from pathlib import Path

import pytest
from command_line import answer, cli


@pytest.fixture(autouse=True)
def place(daemon: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the commands share a real daemon, in a folder with a tree of its own."""
    monkeypatch.chdir(tmp_path)


def printed(*arguments: str, code: int = 0) -> str:
    """Run a command and check its exit code; returns what it printed."""
    done = cli(*arguments, code=code)
    return done.stdout + done.stderr


def test_a_tree_is_exported_and_every_goal_of_it_worked_for_again(tmp_path: Path) -> None:
    """F-2, F-11: rows, changes and cells in one file; the replay says what came out otherwise, and leaves nothing."""
    session = ("--session", "whole")
    cli("run", "n = 20", *session)
    story, read, write, drop = (
        line.split()[0] for line in answer("plan", "story", "read", "write", "drop", *session)["planned"]
    )
    cli("push", read, *session)
    cli("run", "n += 22; print('found', n)", "--session", read)
    cli("run", "1 / 0", "--session", read, code=1)
    cli("pop", read, "--summary", "It is 42.", "--hand-over", "n", "--decision", "add", *session)
    cli("push", write, "--no-fork", *session)
    cli("run", "print(n)", "--session", write)
    cli("pop", write, "--status", "failed", *session)
    cli("frame", drop, "--do", "invalidate", *session)

    told = answer("tree", *session)
    rows = {row["id"]: row for row in told["frames"]}
    assert [(rows[name]["status"], rows[name]["goal"]) for name in (story, read, write, drop)] == [
        ("in_progress", "story"), ("completed", "read"), ("failed", "write"), ("invalidated", "drop"),
    ]  # fmt: skip
    assert (rows[read]["parent"], rows[read]["summary"], rows[read]["handed_over"]) == (story, "It is 42.", ["n"])
    assert "cells" not in rows[read]
    part = answer("tree", story, *session)
    assert [line.split()[0] for line in part["tree"]] == [story, read, write, drop]

    file = tmp_path / "tree.json"
    assert "wrote 5 frames" in printed("tree", "--export", str(file), *session)
    held = {frame["id"]: frame for frame in json.loads(file.read_text())["frames"]}
    assert [cell["status"] for cell in held[read]["cells"]] == ["ok", "error"]
    assert [event["verb"] for event in held[read]["events"]] == ["plan", "start", "pop"]

    done = answer("replay", str(file))
    assert (done["same"], done["frames"], done["cells"], done["differences"]) == (True, 5, 4, [])
    assert [row["id"] for row in answer("tree", *session)["frames"]] == list(rows)  # nothing of it is left
    names = [row["session"] for row in answer("sessions")["sessions"]]
    assert not [name for name in names if name.startswith("replay-")]

    changed = file.read_text().replace("found 42", "found 43")
    file.write_text(changed)
    assert "output: was 'found 43', is 'found 42'" in printed("replay", str(file), code=1)


def test_what_is_no_tree_is_said(tmp_path: Path) -> None:
    """With what to name instead."""
    for text in ("{", "[]", '{"format": "rlm-kernel tree 1", "frame": 3}'):
        (tmp_path / "x.json").write_text(text)
        assert "rlm-kernel tree --export" in printed("replay", str(tmp_path / "x.json"), code=1)
    assert "rlm-kernel tree --export" in printed("replay", str(tmp_path / "none.json"), code=1)
    assert "no frame 'f99999'" in printed("tree", "f99999", "--export", "y.json", "--session", "whole", code=1)
