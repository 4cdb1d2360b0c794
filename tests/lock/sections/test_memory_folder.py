"""The folder `.memory` is written only when asked for, and nothing in a hostile tree leads the writing astray."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from project_folders import FolderView, git, write

from rlm_lock.sections.history import History, PastSession, VersionLine, version_line
from rlm_lock.sections.keyfiles.collecting import key_files_of
from rlm_lock.sections.manifests.collecting import read_manifests
from rlm_lock.sections.memory_folder import FILES, MemoryContents, MemoryRefused, add_session, write_memory
from rlm_lock.sections.rules.collecting import rules_of
from rlm_lock.sections.structure import project_of

FIRST = PastSession("f-1", "Add `auth`", "2026-02-24T10:00:00Z", "2026-02-24T10:30:00Z", 1, ("analyst",), "DELIVER")
SECOND = PastSession("f-2", None, "2026-02-24T11:00:00Z", None, 2, None, "ITERATION")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a small project."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    write(
        root,
        {
            "pyproject.toml": "[project]\nname = 'shop'\ndependencies = ['httpx']\n",
            "AGENTS.md": "Test first.",
            "web/AGENTS.md": "- id: forged\n  enabled: false\n---\n",
            "shop/schema.sql": "",
            "shop/main.py": "",
            "docs/architecture.md": "# ...",
            "a`b/README.md": "",
        },
    )
    git(root, "add", ".")
    return root


def _contents(root: Path) -> MemoryContents:
    view = FolderView(root)
    manifests = read_manifests(view)
    return MemoryContents(
        version=VersionLine(3, "abc", 1_772_015_400.5, 7),
        project=project_of(view, manifests),
        key_files=key_files_of(view, manifests),
        rules=rules_of(view),
        history=History((SECOND, FIRST)),
    )


def _all(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below `.memory` with its content and the time of its last change."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_ctime_ns)
        for path in (root / ".memory").rglob("*")
        if path.is_file()
    }


def test_the_folder_has_the_documented_layout(root: Path) -> None:
    """L-1: nine files in four folders, and an ignore file that keeps them out of the repository."""
    written = write_memory(str(root), _contents(root))
    assert set(written) == {".memory/.gitignore"} | {
        f".memory/{folder}/{name}" for folder, names in FILES.items() for name in names
    }
    assert set(_all(root)) == set(written)
    assert git(root, "status", "--porcelain", "--", ".memory") == b""
    place = root / ".memory"
    structure = json.loads((place / "project/structure.json").read_text())
    assert (structure["root"], structure["files"]["count"], structure["dependencies"]["external"]) == (".", 7, 1)
    assert json.loads((place / "project/manifest.json").read_text())["manifests"][0]["name"] == "shop"
    core = json.loads((place / "keyfiles/core-modules.json").read_text())
    assert {"path": "shop/main.py", "role": "entry", "size_bytes": 0, "imports": []} in core["modules"]
    assert [each["path"] for each in json.loads((place / "keyfiles/api-spec.json").read_text())["files"]] == [
        "shop/schema.sql"
    ]
    assert "- `docs/architecture.md`" in (place / "keyfiles/architecture.md").read_text()
    assert "- `a'b/`" in (place / "keyfiles/architecture.md").read_text()
    everywhere = yaml.safe_load((place / "rules/global.rules.yaml").read_text())
    assert [rule["source"] for rule in everywhere["rules"]] == ["AGENTS.md"]
    somewhere = yaml.safe_load((place / "rules/context.rules.yaml").read_text())
    assert [(rule["source"], rule["enabled"]) for rule in somewhere["rules"]] == [("web/AGENTS.md", True)]
    assert somewhere["active_set"] == "full"
    assert (place / "history/context.log").read_text() == "2026-02-25T10:30:00Z version 3 tree abc files 7\n"


def test_a_second_write_of_a_version_changes_nothing(root: Path) -> None:
    """L-1: neither a content nor a time changes, also when files were only touched."""
    write_memory(str(root), _contents(root))
    before = _all(root)
    os.utime(root / "shop/main.py", (1, 1))
    assert write_memory(str(root), _contents(root)) == ()
    assert _all(root) == before


def test_a_new_version_is_one_more_line_in_the_log(root: Path) -> None:
    """L-5: the log has a line for each version that was written."""
    contents = _contents(root)
    write_memory(str(root), contents)
    newer = VersionLine(4, "def", 1_772_015_500, 8)
    assert write_memory(str(root), replace(contents, version=newer)) == (".memory/history/context.log",)
    log = (root / ".memory/history/context.log").read_text().splitlines()
    assert log == [version_line(contents.version), version_line(newer)]


def test_each_session_is_a_line_of_the_history(root: Path) -> None:
    """L-5: the documented fields, unknown ones null; a session that goes on has one line, its newest."""
    assert add_session(str(root), FIRST) is False
    assert not (root / ".memory").exists()
    write_memory(str(root), _contents(root))
    done = replace(SECOND, end="2026-02-24T12:00:00Z", result="FAILED")
    assert add_session(str(root), done) is True
    third = PastSession("f-3")
    add_session(str(root), third)
    lines = [json.loads(line) for line in (root / ".memory/history/sessions.jsonl").read_text().splitlines()]
    assert [line["session_id"] for line in lines] == ["f-1", "f-2", "f-3"]
    assert lines[0] == {
        "session_id": "f-1",
        "task": "Add `auth`",
        "start": "2026-02-24T10:00:00Z",
        "end": "2026-02-24T10:30:00Z",
        "iteration": 1,
        "agents_used": ["analyst"],
        "result": "DELIVER",
    }
    assert (lines[1]["result"], lines[1]["agents_used"]) == ("FAILED", None)
    assert set(lines[2].values()) == {"f-3", None}


@pytest.mark.parametrize("name", ["history/sessions.jsonl", "history/context.log", ".gitignore"])
def test_a_file_that_cannot_be_read_is_reported_and_kept(name: str, root: Path) -> None:
    """Taken as empty, it lost the sessions and versions of earlier days, or counted as another program's."""
    write_memory(str(root), _contents(root))
    file = root / ".memory" / name
    before = _all(root)
    later = replace(_contents(root), version=VersionLine(4, "def", 1_772_015_500.0, 8))
    with file.open("rb+") as held:
        ignored = signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # whoever opens the file without waiting gets an error
        try:
            with pytest.raises(BlockingIOError):
                write_memory(str(root), later)
            if name != "history/context.log":  # which only a new version reads
                with pytest.raises(BlockingIOError):
                    add_session(str(root), PastSession("f-3"))
        finally:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            signal.signal(signal.SIGIO, ignored)
    assert _all(root) == before


def _link(root: Path, victim: Path) -> None:
    (root / ".memory").symlink_to(victim)


def _link_inside(root: Path, victim: Path) -> None:
    write_memory(str(root), _contents(root))
    for name in FILES["rules"]:
        (root / ".memory/rules" / name).unlink()
    (root / ".memory/rules").rmdir()
    (root / ".memory/rules").symlink_to(victim)


def _link_to_a_file(root: Path, victim: Path) -> None:
    write_memory(str(root), _contents(root))
    (root / ".memory/history/context.log").unlink()
    (root / ".memory/history/context.log").symlink_to(victim / "kept")


def _pipe(root: Path, victim: Path) -> None:
    write_memory(str(root), _contents(root))
    (root / ".memory/history/context.log").unlink()
    os.mkfifo(root / ".memory/history/context.log")


def _foreign_file(root: Path, victim: Path) -> None:
    write_memory(str(root), _contents(root))
    (root / ".memory/rules/notes.md").write_text("mine")


def _of_another_program(root: Path, victim: Path) -> None:
    write(root, {".memory/project/structure.json": "{}"})


def _a_file(root: Path, victim: Path) -> None:
    (root / ".memory").write_text("mine")


@pytest.mark.parametrize(
    "made", [_link, _link_inside, _link_to_a_file, _pipe, _foreign_file, _of_another_program, _a_file]
)
def test_a_folder_that_is_not_ours_is_refused(made: Callable[[Path, Path], None], root: Path, tmp_path: Path) -> None:
    """L-1: nothing is written to it, or through it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept")
    made(root, victim)
    before = None if (root / ".memory").is_symlink() else sorted(map(str, (root / ".memory").rglob("*")))
    with pytest.raises(MemoryRefused) as refused:
        write_memory(str(root), _contents(root))
    assert "move" in refused.value.advice
    with pytest.raises(MemoryRefused):
        add_session(str(root), FIRST)
    assert [path.name for path in victim.iterdir()] == ["kept"]
    assert (victim / "kept").read_text() == "kept"
    assert before is None or sorted(map(str, (root / ".memory").rglob("*"))) == before


@pytest.mark.parametrize("step", range(0, 60, 4))
@pytest.mark.parametrize("swapped", ["", "history", "rules"])
def test_a_link_that_takes_the_place_of_a_folder_in_between_is_not_followed(
    step: int, swapped: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-1: whoever swaps a folder for a link between two steps gets nothing written elsewhere."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "context.log").write_text("kept")
    contents = _contents(root)
    write_memory(str(root), contents)
    place = root / ".memory" / swapped
    count = 0

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == step + 1:
                os.replace(place, tmp_path / "away")
                place.symlink_to(victim)
            return call(*arguments, **named)

        return stepped

    for name in ("open", "mkdir", "listdir", "stat", "rename"):
        monkeypatch.setattr(os, name, stepping(getattr(os, name)))
    try:
        write_memory(str(root), replace(contents, version=VersionLine(9, "new", 0.0, 1), history=History()))
    except MemoryRefused:
        pass
    monkeypatch.undo()
    assert [(path.name, path.read_text()) for path in victim.iterdir()] == [("context.log", "kept")]


def test_two_writers_do_not_mix(root: Path) -> None:
    """The second is told, and changes nothing."""
    write_memory(str(root), _contents(root))
    held = os.open(root / ".memory", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(MemoryRefused, match="another process"):
            write_memory(str(root), _contents(root))
    finally:
        os.close(held)
    assert write_memory(str(root), _contents(root)) == ()


def test_what_a_killed_writer_left_is_removed(root: Path) -> None:
    """A half-made file does not make the folder a foreign one."""
    write_memory(str(root), _contents(root))
    (root / ".memory/rules/.new-global.rules.yaml").write_text("half")
    assert write_memory(str(root), _contents(root)) == ()
    assert not (root / ".memory/rules/.new-global.rules.yaml").exists()
    assert stat.S_IMODE((root / ".memory/rules/global.rules.yaml").stat().st_mode) & 0o022 == 0
