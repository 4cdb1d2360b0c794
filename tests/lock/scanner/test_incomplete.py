"""Not all of a project is there, or is looked at: the lock has the rest, says what is missing, and fetches nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from lock_scanner import Refusal, RunningScanner
from project_folders import git, write

from rlm_lock.listing.listing import Lister, Listing
from rlm_lock.protocol import Phase, ReadSection, Refresh, Section, ShowMap

FILES = {"top.py": "def here(): ...\n", "near/a.py": "def near(): ...\n", "far/b.py": "def far(): ...\n"}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository that gives whoever asks a part of itself."""
    root = tmp_path / "origin"
    root.mkdir()
    write(root, FILES)
    git(root, "init", "-q")
    git(root, "config", "uploadpack.allowFilter", "true")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def absent_from(clone: Path) -> list[bytes]:
    """The objects that a clone does not have; git is told not to fetch them."""
    listed = git(clone, "rev-list", "--objects", "--missing=print", "HEAD").splitlines()
    return sorted(line for line in listed if line.startswith(b"?"))


def test_a_sparse_clone_has_what_is_on_disk(origin: Path, tmp_path: Path) -> None:
    """L-2: what git leaves out is skipped, and comes when it is checked out."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--sparse", str(origin), str(clone))
    git(clone, "sparse-checkout", "set", "near")
    with RunningScanner(clone, tmp_path / "store") as scanner:
        found = scanner.finish()
        assert (found.files, found.untracked, found.missing) == (2, 0, ())
        assert "far" not in scanner.ask(ReadSection(Section.MAP)).text
        assert scanner.ask(ReadSection(Section.PROJECT)).content["files"]["count"] == 2
        git(clone, "sparse-checkout", "disable")
        assert scanner.finish().files == 3
        assert scanner.ask(ShowMap(500, about="far")).text.startswith("far/b.py")


def test_nothing_of_a_partial_clone_is_fetched(origin: Path, tmp_path: Path) -> None:
    """L-2: contents that the clone lacks stay where they are, also when history and sections are made."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--sparse", "--filter=blob:none", f"file://{origin}", str(clone))
    lacking = absent_from(clone)
    assert len(lacking) == 2
    with RunningScanner(clone, tmp_path / "store") as scanner:
        found = scanner.finish()
        assert (found.files, found.missing) == (1, ())
        assert "here" in scanner.ask(ShowMap(500, about="first")).text
        for section in (Section.PROJECT, Section.KEYFILES, Section.RULES):
            assert scanner.ask(ReadSection(section)).content
    assert absent_from(clone) == lacking
    git(clone, "cat-file", "-p", "HEAD:near/a.py")  # the control: git would have fetched it
    assert absent_from(clone) != lacking


@pytest.mark.parametrize("is_git", [True, False])
def test_of_a_project_with_too_many_files_some_are_left_out(origin: Path, is_git: bool) -> None:
    """L-13: the bound of 500,000 files is one of a listing; as many as that are not too many."""
    write(origin, {"untracked.py": ""})
    if not is_git:
        shutil.rmtree(origin / ".git")

    def listed(most: int) -> Listing:
        fd = os.open(origin, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return Lister(os.fsencode(origin), most=most).listing(fd)
        finally:
            os.close(fd)

    assert (len(listed(4).paths), listed(4).missing) == (4, ())
    for most in (1, 3):
        found = listed(most)
        assert len(found.paths) == most
        assert found.missing == (f"the project has more than {most} files; the others are left out",)


def test_who_asks_first_gets_the_structure_and_does_not_wait_for_parsing_that_takes_longer(tmp_path: Path) -> None:
    """L-13: what is missing is said, and made meanwhile; a project that is parsed in the time is waited for."""
    for name, count in (("small", 20), ("large", 16_000)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"f{number}.py").write_text(f"def f{number}(): ...\n")
        with RunningScanner(tmp_path / name, tmp_path / f"{name} store") as scanner:
            found = scanner.ask(Refresh(50.0, is_first=True))
            assert (found.version, found.files) == (1, count)
            assert scanner.ask(ReadSection(Section.PROJECT)).content["files"]["count"] == count
            if name == "small":
                assert (found.phase, found.missing) == (Phase.READY, ())
            else:  # in fifty seconds a part of them would have been parsed
                assert found.missing == ("up to 16,000 files are not parsed yet", "there is no map yet")
            scanner.process.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_under_the_store_is_told_and_costs_nothing(origin: Path, small_disk: Path) -> None:
    """L-9: the question is refused with what to do; when there is room again the next one is answered."""
    with RunningScanner(origin, small_disk / "store") as scanner:
        scanner.finish()
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        write(origin, {f"more/m{number}.py": f"def more{number}(): ...\n" for number in range(200)})
        with pytest.raises(Refusal, match="full") as refusal:
            scanner.refresh()
        assert "see whether there is room" in refusal.value.refused.advice
        filler.unlink()
        found = scanner.finish()
        assert (found.version, found.untracked, found.missing) == (2, 200, ())
        assert "more199" in scanner.ask(ShowMap(500, about="more199")).text
