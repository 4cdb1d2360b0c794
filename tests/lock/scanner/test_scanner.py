"""A scanner keeps a project's snapshot up to date, whatever happens to its files, its helpers and itself."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from lock_scanner import Refusal, RunningScanner
from project_folders import git, write
from waiting import wait_until

from rlm_lock.model import Change, FileChange
from rlm_lock.protocol import CompareVersions, Phase, ReadSection, Refresh, Section, ShowMap

FILES = {
    "README.md": "# A clock\n\nIt tells the time.\n",
    "src/clock.py": "from src.hands import Hand\n\n\ndef strike(hour):\n    return hour\n",
    "src/hands.py": "class Hand:\n    def turn(self):\n        return self\n",
    "src/empty.py": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    write(root, FILES)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


@pytest.fixture
def scanner(project: Path, tmp_path: Path) -> Iterator[RunningScanner]:
    with RunningScanner(project, tmp_path / "store") as running:
        yield running


def extracts(store: Path) -> dict[str, str]:
    """The note of each content in a store."""
    with sqlite3.connect(store / "lock.db") as database:
        found = database.execute("SELECT lower(hex(blob)), note FROM extracts").fetchall()
    database.close()
    return dict(found)


def helpers_of(scanner: RunningScanner) -> list[psutil.Process]:
    children = psutil.Process(scanner.process.pid).children()
    return [one for one in children if "rlm_contexts.helpers" in " ".join(one.cmdline())]


def test_a_scan_knows_every_file_and_says_when_it_is_complete(project: Path, scanner: RunningScanner) -> None:
    """L-1, L-7: what is not there yet is named until it is there."""
    first = scanner.refresh(0.0)
    assert first.phase is not Phase.READY
    assert "there is no map yet" in first.missing
    found = scanner.finish()
    assert (found.version, found.files, found.untracked, found.missing) == (1, 4, 0, ())
    assert not found.is_stale
    shown = scanner.ask(ShowMap(500, about="which class turns the hand"))
    assert shown.text.splitlines()[0].startswith("src/hands.py")
    assert scanner.ask(ShowMap(500, focus=("src/nowhere.py",))).unknown == ("src/nowhere.py",)
    whole = scanner.ask(ReadSection(Section.MAP))
    assert "Hand" in whole.text


def test_the_tree_is_the_same_on_every_clone(project: Path, tmp_path: Path, scanner: RunningScanner) -> None:
    """L-2: two people who have the same commit have the same lock, whatever their clocks and masks say."""
    os.symlink("clock.py", project / "src" / "link.py")
    (project / "src" / "run.sh").write_text("#!/bin/sh\n")
    (project / "src" / "run.sh").chmod(0o755)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "more")
    subprocess.run(["git", "clone", "-q", str(project), str(tmp_path / "clone")], check=True, umask=0o077)
    with RunningScanner(tmp_path / "clone", tmp_path / "other store") as other:
        theirs = other.refresh()
    ours = scanner.refresh()
    assert ours.tree == theirs.tree
    (project / "src" / "run.sh").chmod(0o644)
    assert scanner.refresh().tree != ours.tree


def test_an_edited_file_makes_a_version_that_differs_by_definition(project: Path, scanner: RunningScanner) -> None:
    """L-5, L-6: the difference names the file, and which definitions came and went."""
    scanner.finish()
    (project / "src/hands.py").write_text("class Hand:\n    def stop(self):\n        return self\n")
    (project / "src/new.py").write_text("def tick(): ...\n")
    (project / "README.md").unlink()
    found = scanner.finish()
    assert (found.version, found.untracked) == (2, 1)
    difference = scanner.ask(CompareVersions(1))
    assert (difference.before, difference.after, difference.count) == (1, 2, 3)
    assert difference.changes == (
        FileChange("README.md", Change.REMOVED),
        FileChange("src/hands.py", Change.MODIFIED, ("stop",), ("turn",)),
        FileChange("src/new.py", Change.ADDED, ("tick",)),
    )
    again = scanner.refresh()
    assert (again.version, again.is_new) == (2, False)


def test_definitions_that_are_not_known_yet_are_not_told_as_gone(project: Path, scanner: RunningScanner) -> None:
    """L-6: a difference says which files were not parsed, and waits for them if it may."""
    scanner.finish()
    (helper,) = helpers_of(scanner)
    helper.suspend()
    try:
        (project / "src/hands.py").write_text("class Hand:\n    def stop(self):\n        return self\n")
        while scanner.refresh(0.5).version != 2:
            pass
        unknown = FileChange("src/hands.py", Change.MODIFIED, is_parsed=False)
        assert scanner.ask(CompareVersions(1, 2)).changes == (unknown,)
        assert scanner.ask(CompareVersions(1, 2, 0.2)).changes == (unknown,)
    finally:
        helper.resume()
    told = scanner.ask(CompareVersions(1, 2, 60.0)).changes
    assert told == (FileChange("src/hands.py", Change.MODIFIED, ("stop",), ("turn",)),)


def test_a_section_that_was_made_before_is_made_anew_when_something_changed(
    project: Path, scanner: RunningScanner
) -> None:
    """L-12: a text, a mode that another file has, and what only git knows; until then the same section is given."""
    project_section, key_files = ReadSection(Section.PROJECT), ReadSection(Section.KEYFILES)

    def seen() -> tuple[object, object]:
        scanner.finish()
        return scanner.ask(project_section).content, scanner.ask(key_files).content

    first = seen()
    assert seen() == first
    (project / "pyproject.toml").write_text('[project]\nname = "p"\ndependencies = ["httpx"]\n')
    edited = (project / "pyproject.toml").stat().st_ctime
    wait_until(lambda: time.time() > edited + 0.1)  # until then it is read again, whether it changed or not
    second = seen()
    assert second[0] != first[0]
    assert second[1] != first[1]
    git(project, "add", "pyproject.toml")
    third = seen()
    assert third[0] != second[0], "git knows the file now, so that it is not counted as untracked any more"
    (project / "pyproject.toml").unlink()
    assert seen()[1] == first[1]


def test_a_version_that_is_forgotten_is_told_as_such(project: Path, scanner: RunningScanner) -> None:
    """L-6: the last ten versions are kept."""
    for number in range(12):
        (project / "README.md").write_text(f"version {number}\n")
        assert scanner.refresh().version == number + 1
    assert scanner.ask(CompareVersions(1)).before == 0
    assert scanner.ask(CompareVersions(11)).before == 11
    with pytest.raises(Refusal, match="no version 99"):
        scanner.ask(CompareVersions(1, 99))


def test_only_the_paths_that_a_hook_names_are_looked_at(project: Path, scanner: RunningScanner) -> None:
    """L-5: an edit that is known costs no look at the others."""
    scanner.finish()
    (project / "src/clock.py").write_text("def strike(hour): ...\n")
    (project / "README.md").write_text("# Another clock\n")
    told = scanner.refresh(changed=("src/clock.py",))
    assert [change.path for change in scanner.ask(CompareVersions(1)).changes] == ["src/clock.py"]
    assert told.version == 2
    (project / "src/added.py").write_text("x = 1\n")
    scanner.refresh(changed=("src/added.py",))
    paths = [change.path for change in scanner.ask(CompareVersions(1)).changes]
    assert paths == ["README.md", "src/added.py", "src/clock.py"]


def test_an_edit_that_leaves_size_and_time_as_they_were_is_seen(project: Path, scanner: RunningScanner) -> None:
    """L-5: tools restore times; what the system alone sets tells."""
    scanner.finish()
    file = project / "src/clock.py"
    before = file.stat()
    file.write_text(file.read_text().replace("hour", "time"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert scanner.refresh().is_new


def test_a_second_worktree_parses_nothing_again(project: Path, tmp_path: Path, scanner: RunningScanner) -> None:
    """L-6: a store is one for all working trees of a repository, by content."""
    scanner.finish()
    before = extracts(tmp_path / "store")
    git(project, "worktree", "add", "-q", str(tmp_path / "second"))
    with RunningScanner(tmp_path / "second", tmp_path / "store") as second:
        assert second.refresh(30).tree == scanner.refresh().tree
        second.finish()
        assert not helpers_of(second)
        assert "clock.py" in second.ask(ShowMap(500, about="strike")).text
    assert extracts(tmp_path / "store") == before


def test_a_new_scanner_goes_on_where_another_was_killed(project: Path, tmp_path: Path) -> None:
    """L-5: whatever instant it is killed at, what is kept is whole."""
    write(project, {f"many/m{number}.py": f"def f{number}(): ...\n" for number in range(300)})
    for seconds in (0.0, 0.05, 0.3, 1.0):
        with RunningScanner(project, tmp_path / "store") as one:
            one.refresh(seconds)
            one.process.kill()
            one.process.wait()
    with RunningScanner(project, tmp_path / "store") as last:
        found = last.finish()
        assert (found.files, found.untracked, found.missing) == (4, 300, ())
    assert len(extracts(tmp_path / "store")) >= 302


def test_a_map_knows_the_commits_that_were_made_since(project: Path, scanner: RunningScanner) -> None:
    """L-4: also one that changes no file of the working tree; one that changes very many files says nothing of them."""
    write(project, {f"many/m{number}.txt": "x\n" for number in range(40)} | {"src/empty.py": "pass\n"})
    scanner.finish()
    git(project, "add", "src")
    git(project, "commit", "-q", "-m", "Stop the zeppelin")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "Stop the submarine")
    scanner.finish()
    assert scanner.ask(ShowMap(500, about="zeppelins")).text.startswith("src/empty.py")
    assert scanner.ask(ShowMap(500, about="submarine")).text == scanner.ask(ShowMap(500)).text


def test_a_killed_helper_costs_nothing(project: Path, scanner: RunningScanner, tmp_path: Path) -> None:
    """L-7: the machine may end any process; the file that it was at is tried once more."""
    scanner.finish()
    for helper in helpers_of(scanner):
        helper.kill()
    (project / "src/new.py").write_text("def survivor(): ...\n")
    assert scanner.finish().missing == ()
    assert set(extracts(tmp_path / "store").values()) == {""}
    assert "survivor" in scanner.ask(ShowMap(500, about="survivor")).text


def test_secrets_stay_out_of_the_store(project: Path, tmp_path: Path, scanner: RunningScanner) -> None:
    """L-9: of a file with a token the definitions stay, its words go; one whose name says so is not opened."""
    token = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    write(project, {"src/leak.py": f"def connect():\n    return 'zeppelin {token}'\n", ".env": f"TOKEN={token}\n"})
    os.chmod(project / ".env", 0o000)
    scanner.finish()
    assert "secret text" in extracts(tmp_path / "store").values()
    assert "connect" in scanner.ask(ShowMap(500, about="connect")).text
    scanner.process.send_signal(signal.SIGTERM)
    scanner.process.wait()
    kept = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert token.encode() not in kept


def test_secrets_in_rules_and_manifests_are_replaced_and_the_rest_is_shown(
    project: Path, scanner: RunningScanner
) -> None:
    """L-9: one token in a rule must not cost the rule, nor its dependencies a project."""
    token = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    package = f'{{"name": "clock", "dependencies": {{"hands": "git+https://{token}@example.org/hands.git"}}}}'
    write(project, {"AGENTS.md": f"Wind it daily. Never use {token}.\n", "package.json": package})
    scanner.finish()
    (rule,) = scanner.ask(ReadSection(Section.RULES)).content["rules"]
    assert rule["text"] == "Wind it daily. Never use [hidden].\n"
    told = scanner.ask(ReadSection(Section.PROJECT)).content
    assert told["dependencies"]["total"] == 1
    assert token not in str(told)


def test_what_is_no_regular_file_is_not_opened(project: Path, scanner: RunningScanner) -> None:
    """L-8: a pipe that nobody writes to holds nobody up, and a link leads nowhere."""
    os.mkfifo(project / "pipe.py")
    os.mkfifo(project / "src" / ".gitignore")
    os.symlink("/etc/passwd", project / "passwd.py")
    os.symlink("/", project / "everything")
    (project / "unreadable.py").write_text("x = 1\n")
    assert scanner.finish().untracked == 5
    shown = scanner.ask(ReadSection(Section.MAP)).text
    assert "root:" not in shown


def test_a_folder_that_became_a_link_takes_its_files_along(
    project: Path, tmp_path: Path, scanner: RunningScanner
) -> None:
    """L-8: git still lists what was below it, and would be led out of the project."""
    assert scanner.finish().files == 4
    shutil.move(project / "src", tmp_path / "outside")
    os.symlink(tmp_path / "outside", project / "src")
    found = scanner.refresh()
    assert (found.files, found.untracked) == (1, 1)
    assert {change.path for change in scanner.ask(CompareVersions(1)).changes} == {
        "src", "src/clock.py", "src/empty.py", "src/hands.py",
    }  # fmt: skip


def test_a_folder_without_git_is_walked(tmp_path: Path) -> None:
    """L-1: with the rules of its .gitignore, and without what the lock itself has written."""
    root = tmp_path / "plain"
    write(root, {**FILES, ".gitignore": "*.log\n", "a.log": "x", ".memory/version.json": "{}", "deep/b.log": "x"})
    (root / os.fsdecode(b"bad\xff.py")).write_text("x = 1\n")
    with RunningScanner(root, tmp_path / "store") as scanner:
        found = scanner.refresh()
        assert (found.files, found.untracked) == (6, 0)


def test_a_project_that_is_gone_is_told_as_such(project: Path, scanner: RunningScanner) -> None:
    """L-7: with what to do; and it is served again when it is back."""
    scanner.finish()
    project.rename(project.parent / "elsewhere")
    with pytest.raises(Refusal, match="cannot be read") as refusal:
        scanner.refresh()
    assert "give the path" in refusal.value.refused.advice
    (project.parent / "elsewhere").rename(project)
    assert scanner.refresh().version == 1


def test_a_store_that_is_no_database_is_made_again(project: Path, tmp_path: Path) -> None:
    """L-5: everything in it can be had from the project."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "lock.db").write_bytes(b"not a database at all" * 1000)
    with RunningScanner(project, tmp_path / "store") as scanner:
        assert scanner.refresh().version == 1


def test_a_scanner_leaves_when_it_is_idle_and_when_its_daemon_is_gone(project: Path, tmp_path: Path) -> None:
    """L-7: nothing stays behind."""
    with RunningScanner(project, tmp_path / "store", idle_seconds=0.2) as idle:
        idle.refresh()
        assert idle.process.wait(60) == 0
    with RunningScanner(project, tmp_path / "store") as left:
        left.refresh(0.0)
        assert left.process.stdin is not None
        left.process.stdin.close()
        assert left.process.wait(60) == 0


def test_a_scanner_dies_with_its_daemon(project: Path, tmp_path: Path) -> None:
    """L-7: also in the middle of a scan, with its helpers."""
    write(project, {f"many/m{number}.py": f"def f{number}(): ...\n" * 50 for number in range(500)})
    scanner = RunningScanner(project, tmp_path / "store")
    scanner.refresh(0.0)
    family = wait_until(lambda: psutil.Process(scanner.process.pid).children(recursive=True))
    scanner.process.kill()
    scanner.process.wait()
    wait_until(
        lambda: [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE],
        lambda left: not left,
    )
    assert scanner.process.stdin is not None
    assert scanner.process.stdout is not None
    scanner.process.stdin.close()
    scanner.process.stdout.close()


def test_nonsense_is_refused_and_the_next_question_answered(scanner: RunningScanner) -> None:
    """L-7: a daemon of another version must not end it."""
    assert scanner.process.stdin is not None
    assert scanner.process.stdout is not None
    for line in (b"nonsense\n", b"{}\n", b'{"kind": "no such", "question": {}}\n', b"[" * 10_000 + b"\n"):
        scanner.process.stdin.write(line)
        scanner.process.stdin.flush()
        assert b'"refused":{' in scanner.process.stdout.readline()
    assert scanner.refresh().version == 1


def test_a_submodule_is_one_entry_with_its_commit(project: Path, tmp_path: Path, scanner: RunningScanner) -> None:
    """L-1: it has a lock of its own."""
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner, {"a.py": "x = 1\n"})
    git(inner, "init", "-q")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "one")
    git(project, "submodule", "add", "-q", str(inner), "inner")
    assert scanner.ask(Refresh(100.0)).files == 6  # and .gitmodules
    before = scanner.refresh()
    git(project / "inner", "commit", "-q", "--allow-empty", "-m", "two")
    assert scanner.refresh().version == before.version
    git(project, "add", "inner")
    assert [change.path for change in (scanner.refresh(), scanner.ask(CompareVersions(before.version)))[1].changes] == [
        "inner"
    ]
