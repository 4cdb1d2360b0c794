"""Whatever is done to a project, a refreshed scanner knows what one knows that begins anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from project_folders import git, write

from rlm_lock.scanner.project import Project
from rlm_lock.store import Store

STEPS = 60


class Edits:
    """Random changes to a working tree, by the same means as people and tools."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root, self.random, self.number = root, random, 0
        self.actions: tuple[Callable[[], None], ...] = (
            self.edit, self.edit, self.edit_in_place, self.add, self.add, self.rename, self.delete, self.change_mode,
            self.move_folder, self.link, self.commit, self.stage, self.switch_branch, self.ignore, self.touch,
            self.replace_by_folder,
        )  # fmt: skip

    def act(self) -> str:
        action = self.random.choice(self.actions)
        action()
        return action.__name__

    def some_file(self) -> Path | None:
        files = [path for path in self.root.rglob("*") if ".git" not in path.parts and path.is_file()]
        return self.random.choice(sorted(files)) if files else None

    def new_name(self) -> Path:
        self.number += 1
        return (
            self.root
            / self.random.choice(("", "a/", "a/b/", "c/"))
            / f"n{self.number}{self.random.choice(('.py', '.md'))}"
        )

    def edit(self) -> None:
        if file := self.some_file():
            file.write_text(f"def f{self.random.randrange(10**9)}(): ...\n")

    def edit_in_place(self) -> None:
        """The same size, and the time put back."""
        if (file := self.some_file()) and (data := file.read_bytes()):
            status = file.stat()
            file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    def add(self) -> None:
        write(self.root, {str(self.new_name().relative_to(self.root)): f"x = {self.random.random()}\n"})

    def rename(self) -> None:
        if file := self.some_file():
            new = self.new_name()
            new.parent.mkdir(parents=True, exist_ok=True)
            file.rename(new)

    def delete(self) -> None:
        if file := self.some_file():
            file.unlink()

    def change_mode(self) -> None:
        if (file := self.some_file()) and not file.is_symlink():
            file.chmod(file.stat().st_mode ^ 0o100)

    def move_folder(self) -> None:
        if (self.root / "a").is_dir() and not (self.root / "a").is_symlink():
            shutil.move(self.root / "a", self.root / f"moved{self.random.randrange(10**6)}")

    def link(self) -> None:
        name = self.new_name()
        name.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(self.random.choice(("README.md", "/etc/passwd", "nowhere", "..")), name)

    def stage(self) -> None:
        git(self.root, "add", "-A")

    def commit(self) -> None:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", "step")

    def switch_branch(self) -> None:
        self.commit()
        self.number += 1
        old = git(self.root, "rev-list", "--max-count=20", "HEAD").decode().split()
        git(self.root, "checkout", "-q", "-B", f"branch{self.number}", self.random.choice(old))

    def ignore(self) -> None:
        write(self.root, {".gitignore": self.random.choice(("*.md\n", "a/\n", "", "n1*\n!n12*\n"))})

    def touch(self) -> None:
        if file := self.some_file():
            os.utime(file)

    def replace_by_folder(self) -> None:
        if (file := self.some_file()) and file.name != ".gitignore":
            file.unlink()
            write(file, {"inside.py": "y = 1\n"})


def looked(project: Project) -> tuple[str, int, int]:
    for _ in project.look():
        pass
    assert project.version is not None
    return project.version.tree, project.files, project.untracked


def compare(folder: Path) -> None:
    """Edit a project in ``folder`` step by step, and compare what is known of it after each."""
    root = folder / "project"
    write(root, {"README.md": "one\n", "a/x.py": "x = 1\n", "a/b/y.py": "y = 1\n"})
    git(root, "init", "-q")
    edits = Edits(root, Random(28))
    edits.commit()
    done: list[str] = []
    with Store(folder / "store", os.fsencode(root)) as store:
        project = Project(os.fsencode(root), store)
        for step in range(STEPS):
            done.append(edits.act())
            if step % 7 == 3:  # the next edit comes while a look goes on
                look = project.look()
                next(look)
                done.append(edits.act())
                list(look)
            if step % 10 == 9:  # as after the end of the process
                project = Project(os.fsencode(root), store)
            found = looked(project)
            with Store(folder / f"new{step}", os.fsencode(root)) as empty:
                assert found == looked(Project(os.fsencode(root), empty)), done


def test_a_refreshed_snapshot_is_that_of_a_new_scan(tmp_path: Path) -> None:
    """L-5: edits, renames, deletions, modes, links, folders in place of files, branches, with their times put back.

    In a process as small as a scanner is: each of a thousand git processes is forked with the memory of this one.
    """
    small = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", __file__, str(tmp_path)]
    done = subprocess.run(command, env=small, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{STEPS} steps\n"), done.stderr


if __name__ == "__main__":
    compare(Path(sys.argv[1]))
    print(STEPS, "steps")
