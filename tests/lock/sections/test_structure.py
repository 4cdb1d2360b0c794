"""The section `project` counts what git lists."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from project_folders import FolderView, git, write

from rlm_ipc.messages import plain, read
from rlm_lock.sections import structure
from rlm_lock.sections.manifests.collecting import read_manifests
from rlm_lock.sections.structure import NO_EXTENSION, Project, project_of


def _listed(root: Path) -> list[str]:
    return [os.fsdecode(path) for path in git(root, "ls-files", "-z").split(b"\0") if path]


def _folders(paths: list[str]) -> set[str]:
    return {f"{folder}/" for path in paths for folder in map(str, Path(path).parents) if folder != "."}


def _project(view: FolderView, below: bytes = b"") -> Project:
    return project_of(view, read_manifests(view, below), below)


def _check(root: Path) -> Project:
    """Compare a project with what git says, each count found in another way."""
    project = _project(FolderView(root))
    listed = _listed(root)
    assert (
        project.files.count == len(listed) == int(subprocess.check_output("git ls-files | wc -l", cwd=root, shell=True))
    )
    assert project.directories.count == len(project.directories.paths)
    assert set(project.directories.paths) == _folders(listed)
    assert project.files.by_extension == Counter(os.path.splitext(path)[1] or NO_EXTENSION for path in listed)
    others = git(root, "ls-files", "-o", "--exclude-standard", "-z").split(b"\0")
    assert project.files.untracked == len([path for path in others if path])
    assert (project.root, project.missing) == (".", ())
    return project


def test_the_structure_of_this_repository_equals_what_git_lists() -> None:
    """L-2: the counts of the repository that the test runs in."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        pytest.skip("this is no checkout")
    project = _check(root)
    assert [(package.path, package.name) for package in project.packages if package.path == "."] == [
        (".", "rlm-kernel")
    ]


def test_links_submodules_and_ignored_files_count_as_git_counts_them(tmp_path: Path) -> None:
    """L-2: a link and a submodule count one each, a tracked file counts though it is ignored."""
    other, root = tmp_path / "other", tmp_path / "project"
    for folder in (other, root):
        folder.mkdir()
        git(folder, "init", "-q")
    write(other, {"inner.py": ""})
    git(other, "add", ".")
    git(other, "commit", "-qm", "a commit")
    write(
        root,
        {".gitignore": "*.log\n/build\n", "src/deep/er/a.py": "", "kept.log": "", "build/out.o": "", "odd.tar.gz": ""},
    )
    (root / "link").symlink_to("/")
    (root / "src" / "loop").symlink_to(".")
    git(root, "add", ".")
    git(root, "add", "-f", "kept.log")
    git(root, "submodule", "--quiet", "add", str(other), "vendor/other")
    write(root, {"new.txt": "", "scratch.log": ""})
    project = _check(root)
    assert project.files.untracked == 1
    assert "build/" not in project.directories.paths
    assert "src/deep/" in project.directories.paths


def test_a_folder_narrows_what_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who works on a package of a large repository asks for it alone."""
    git(tmp_path, "init", "-q")
    write(tmp_path, {"a/one.py": "", "a/b/two.py": "", "ab/three.py": "", "a/package.json": '{"name": "a"}'})
    git(tmp_path, "add", ".")
    project = _project(FolderView(tmp_path), b"a")
    assert (project.files.count, project.directories.paths, project.path) == (3, ("a/b/",), "a")
    assert [package.name for package in project.packages] == ["a"]
    monkeypatch.setattr(structure, "MOST_DIRECTORIES", 2)
    assert _project(FolderView(tmp_path)).missing == ("Only 2 of 3 directories are named.",)


def test_names_that_forge_lines_are_escaped(tmp_path: Path) -> None:
    """A folder's name is hostile text."""
    git(tmp_path, "init", "-q")
    folder = os.fsencode(tmp_path) + b"/bad\xff\n: forged\xe2\x80\xae"
    os.mkdir(folder)
    with open(folder + b"/a.p\x1by", "wb"):
        pass
    git(tmp_path, "add", ".")
    project = _project(FolderView(tmp_path))
    assert project.directories.paths == ("bad\\xff\\x0a: forged\\u202e/",)
    assert project.files.by_extension == {".p\\x1by": 1}


def test_a_section_goes_through_json(tmp_path: Path) -> None:
    """The scanner sends sections as JSON, and the daemon reads them strictly."""
    write(tmp_path, {"Cargo.toml": '[package]\nname = "x"\n[dependencies]\nserde = "1"\n'})
    project = _project(FolderView(tmp_path, is_git=False))
    assert read(Project, plain(project)) == project
    assert project.dependencies.total == 1
