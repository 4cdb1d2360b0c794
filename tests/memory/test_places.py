"""Where a tree of frames is: one for a repository with all its worktrees, another one for a submodule."""

import subprocess
from pathlib import Path

import pytest

from rlm_memory.places import name_of_tree, tree_of


def git(folder: Path, *words: str) -> None:
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A real repository with one commit."""
    made = tmp_path / "repo"
    made.mkdir()
    git(made, "init", "-q")
    git(made, "commit", "-q", "--allow-empty", "-m", "first")
    return made


def test_a_worktree_has_the_tree_of_its_repository(repository: Path) -> None:
    """Workers in worktrees see the same goals; from a folder below it is the same tree too."""
    git(repository, "worktree", "add", "-q", "../beside")
    below = repository / "src" / "deep"
    below.mkdir(parents=True)
    tree = tree_of(str(repository), "s")
    assert tree == str(repository / ".git")
    assert {tree_of(str(place), "s") for place in (below, repository.parent / "beside")} == {tree}
    assert name_of_tree(tree) == "repo"


def test_a_submodule_has_a_tree_of_its_own(repository: Path) -> None:
    """It is another repository, although its files lie in this one's folder."""
    other = repository.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "first")
    git(repository, "submodule", "add", "-q", str(other), "part")
    assert tree_of(str(repository / "part"), "s") == str(repository / ".git" / "modules" / "part")
    assert name_of_tree(tree_of(str(repository / "part"), "s")) == "part"


def test_without_git_it_is_the_folder_and_without_one_the_session(tmp_path: Path) -> None:
    """A link to a folder is that folder; a client that tells no folder has a tree for its session."""
    plain, link = tmp_path / "plain", tmp_path / "link"
    plain.mkdir()
    link.symlink_to(plain)
    assert {tree_of(str(plain), "s"), tree_of(str(link), "s")} == {str(plain)}
    assert (tree_of("", "global"), name_of_tree("session:global")) == ("session:global", "global")


@pytest.mark.parametrize("content", [b"", b"gitdir: nowhere\n", b"\xff\xfe" * 4000, b"something else"])
def test_a_git_file_that_leads_nowhere_is_none(tmp_path: Path, content: bytes) -> None:
    """What stands in a workspace may be written by anybody."""
    (tmp_path / ".git").write_bytes(content)
    assert tree_of(str(tmp_path), "s") == str(tmp_path)
