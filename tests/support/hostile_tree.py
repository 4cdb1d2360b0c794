"""A tree that wants to hold a scan up, of a size that is asked for."""

from __future__ import annotations

import os
from pathlib import Path

SLOW_SOURCE = "not \n" * 150_000
"""A Python file that its parser does not get to the end of in minutes, and that looks harmless."""
HONEST_SOURCE = "def honest(value):\n    return value + 1\n" * 100
"""A Python file as projects have them."""


def plant_hostile_tree(root: Path, scale: float) -> None:
    """Make links, sparse files, pipes, ignore patterns, deep folders and odd names; all of them at a scale of 1."""
    root.mkdir()
    for number in range(int(100_000 * scale)):
        os.symlink(("/", ".", "nowhere", "/etc/passwd")[number % 4], root / f"link{number}")
    for number in range(2):
        with (root / f"sparse{number}.py").open("wb") as file:
            file.truncate(4 << 30)
    for name in ("pipe.py", "package.json", "README.md"):
        os.mkfifo(root / name)
    (root / "piped").mkdir()
    os.mkfifo(root / "piped" / ".gitignore")
    (root / "piped" / "found.py").write_text("def found(): ...\n")
    patterns = "".join(f"**/a{number}/**/*.b{number}\n" for number in range(int(20_000 * scale)))
    (root / ".gitignore").write_text(patterns + "a*a*a*a*a*a*a*a*a*a*b\n")
    (root / ("a" * 60)).write_text("x")
    deep = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(int(3_000 * scale)):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(os.open("bottom.py", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    for odd in (b"new\nline.py", b"bad\xff.py", "\u202eyp.py".encode(), b": forged", b"-rf", b" "):
        with open(os.path.join(os.fsencode(root), odd), "w", encoding="utf-8") as file:
            file.write("def odd(): ...\n")


def remove_tree(root: Path) -> None:
    """Remove it, however deep it is: the paths are longer than any that may be named."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    moved = 0
    while True:  # what lies deep is brought up, a level at a time
        try:
            below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        except OSError:
            break
        try:
            os.rename("d", f"up{moved}", src_dir_fd=below, dst_dir_fd=folder)
        except OSError:
            os.close(below)
            break
        os.close(below)
        os.rename("d", f"was{moved}", src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(f"up{moved}", "d", src_dir_fd=folder, dst_dir_fd=folder)
        moved += 1
    os.close(folder)
