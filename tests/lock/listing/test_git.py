"""Listing a hostile repository runs nothing that it names."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from project_folders import write

from rlm_lock.listing import git as lock_git
from rlm_lock.listing.history import read_history
from rlm_lock.listing.listing import Lister, Listing

PERSON = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")


def plain_git(root: Path, *words: str, check: bool = False) -> bytes:
    """Git as anybody runs it, with what the repository's configuration says."""
    done = subprocess.run(
        ["git", *PERSON, *words], cwd=root, capture_output=True, stdin=subprocess.DEVNULL, check=check
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    plain_git(root, "init", "-q", check=True)
    write(root, {"a.py": "one = 1\n", "b/c.txt": "two\n", "signed.md": "three\n"})
    plain_git(root, "add", "-A", check=True)
    plain_git(root, "commit", "-q", "-m", "first", check=True)
    return root


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a mark when it runs."""
    file = tmp_path / "program"
    file.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/mark\nexit 1\n')
    file.chmod(0o755)
    return file


def marked(program: Path) -> bool:
    return (program.parent / "mark").exists()


def configure(root: Path, *settings: str) -> None:
    for setting in settings:
        name, _, value = setting.partition("=")
        plain_git(root, "config", name, value, check=True)


def everything(root: Path) -> Listing:
    """All that the scanner ever asks git."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listing = Lister(os.fsencode(root)).listing(fd)
    finally:
        os.close(fd)
    assert listing.is_git
    assert b"a.py" in listing.paths
    found = [history for history in read_history(os.fsencode(root), listing.head) if history is not None]
    assert not listing.head or b"b/c.txt" in found[0].times
    return listing


def with_filter(root: Path, program: Path) -> None:
    write(root, {".gitattributes": "*.py filter=f\n", "a.py": "one = 2\n"})
    configure(root, f"filter.f.clean={program}", f"filter.f.smudge={program}", "filter.f.required=true")


def with_text_conversion(root: Path, program: Path) -> None:
    write(root, {".gitattributes": "*.py diff=d\n", "a.py": "changed = 1\n"})
    configure(root, f"diff.d.textconv={program}", f"diff.d.command={program}", f"diff.external={program}")


def with_hooks(root: Path, program: Path) -> None:
    for hook in ("post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction"):
        place = root / ".git" / "hooks" / hook
        place.write_text(program.read_text())
        place.chmod(0o755)
    (root / "a.py").touch()


def with_hooks_elsewhere(root: Path, program: Path) -> None:
    with_hooks(root, program)
    (root / ".git" / "hooks").rename(root.parent / "hooks")
    configure(root, f"core.hooksPath={root.parent}/hooks")


def with_signatures(root: Path, program: Path) -> None:
    body = plain_git(root, "cat-file", "commit", "HEAD").decode()
    head, _, text = body.partition("\n\n")
    signed = f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n aaaa\n -----END PGP SIGNATURE-----\n\n{text}"
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=root, input=signed.encode(), capture_output=True,
        check=True,
    )  # fmt: skip
    plain_git(root, "update-ref", "HEAD", made.stdout.decode().strip(), check=True)
    configure(root, "log.showSignature=true", f"gpg.program={program}")


def with_missing_objects(root: Path, program: Path) -> None:
    """A partial clone that would fetch what it lacks, by a transport that is a program."""
    tree = plain_git(root, "rev-parse", "HEAD:b").decode().strip()
    (root / ".git" / "objects" / tree[:2] / tree[2:]).chmod(0o600)
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    configure(
        root, "extensions.partialClone=origin", "core.repositoryFormatVersion=1", f"remote.origin.url=ext::{program} x",
        "remote.origin.promisor=true", "protocol.ext.allow=always", "protocol.allow=always",
        "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*",
    )  # fmt: skip


Attack = Callable[[Path, Path], None]
ATTACKS: dict[str, tuple[Attack, tuple[str, ...]]] = {
    "file system monitor": (lambda root, program: configure(root, f"core.fsmonitor={program}"), ("ls-files", "-s")),
    "hooks path": (with_hooks_elsewhere, ("update-index", "--refresh")),
    "hooks": (with_hooks, ("update-index", "--refresh")),
    "clean filter": (with_filter, ("status",)),
    "text conversion": (with_text_conversion, ("diff", "HEAD")),
    "signature checker": (with_signatures, ("log", "-1")),
    "missing objects": (with_missing_objects, ("log", "--name-only", "-1")),
    "alias": (lambda root, program: configure(root, f"alias.lsx=!{program}", f"alias.ls-files=!{program}"), ("lsx",)),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_program_that_a_repository_names_does_not_run(name: str, repository: Path, program: Path) -> None:
    """L-8: the control shows that plain git does run it."""
    attack, control = ATTACKS[name]
    attack(repository, program)
    if name == "missing objects":
        listing_of_partial(repository)
    else:
        everything(repository)
    assert not marked(program), (program.parent / "mark").read_text()
    plain_git(repository, *control)
    assert marked(program)


def listing_of_partial(root: Path) -> None:
    """The history ends where a tree is missing; the list is whole."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listing = Lister(os.fsencode(root)).listing(fd)
    finally:
        os.close(fd)
    assert b"b/c.txt" in listing.paths
    assert [found for found in read_history(os.fsencode(root), listing.head) if found is not None]


def test_a_pager_does_not_run(repository: Path, program: Path) -> None:
    """L-8: a pager runs only where there is a terminal, so the control gives git one."""
    configure(repository, f"core.pager={program}", f"pager.log={program}")
    everything(repository)
    assert not marked(program)
    subprocess.run(
        ["script", "-qec", "git --paginate log", "/dev/null"], cwd=repository, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert marked(program)


def test_the_callers_environment_does_not_lead_git_elsewhere(
    repository: Path, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-8: a daemon may be started from a hook of git, with the variables of another repository."""
    other = tmp_path / "other"
    other.mkdir()
    plain_git(other, "init", "-q", check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(program))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    assert everything(repository).index.keys() == {b"a.py", b"b/c.txt", b"signed.md"}
    assert not marked(program)


def test_the_configuration_cannot_lead_git_out_of_the_project(repository: Path, tmp_path: Path) -> None:
    """L-8: `core.worktree` would have git list another folder."""
    write(tmp_path, {"elsewhere/secret.txt": "x"})
    configure(repository, f"core.worktree={tmp_path}/elsewhere")
    assert plain_git(repository, "ls-files", "-o") == b"secret.txt\n"
    assert everything(repository).paths == [b"a.py", b"b/c.txt", b"signed.md"]


def test_a_path_that_leaves_the_project_is_not_taken_from_an_index(repository: Path) -> None:
    """L-8: an index is a file that anybody can write."""
    outside = b"../outside.txt"
    index = repository / ".git" / "index"
    data = index.read_bytes()
    at = data.index(b"signed.md")
    # The entry's name and its length, which git does not check against each other's content; the sum at the end is off.
    index.write_bytes(data[: at - 2] + (9).to_bytes(2, "big") + b"../../x.y" + data[at + 9 : -20] + bytes(20))
    configure(repository, "index.skipHash=true")
    fd = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    try:
        paths = Lister(os.fsencode(repository)).listing(fd).paths
    finally:
        os.close(fd)
    assert not any(b".." in path.split(b"/") for path in paths)
    assert outside not in paths


def test_a_git_that_hangs_is_ended(repository: Path) -> None:
    """L-8: a configuration can include a pipe that nobody writes to."""
    os.mkfifo(repository / "pipe")
    configure(repository, f"include.path={repository}/pipe")
    command = lock_git.staged(os.fsencode(repository))
    found = command.output(0.5)
    assert not found.is_whole
    assert stat.S_ISFIFO((repository / "pipe").stat().st_mode)


def test_a_git_that_tries_too_many_rules_is_ended_and_a_walk_stands_in(repository: Path) -> None:
    """L-8: what counts is the processor time of git, so that a busy machine costs an honest project nothing."""
    for number in range(4_000):
        os.symlink("nowhere", repository / f"link{number}")
    rules = "".join(f"**/a{number}/**/*.b{number}\n" for number in range(60_000))
    write(repository, {".gitignore": f"link7\n{rules}"})
    assert not lock_git.untracked(os.fsencode(repository)).output(600.0).is_whole
    found = everything(repository)
    assert found.is_cut
    assert "git cannot list what it does not track" in found.missing[0]
    assert {b"a.py", b"link8", b"link3999"} < set(found.paths)
    assert b"link7" not in found.paths
