"""A tree that was made to hold a scan up is scanned all the same; `make lock-hostile` takes it in its full size."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest
from hostile_tree import HONEST_SOURCE, SLOW_SOURCE, plant_hostile_tree, remove_tree
from lock_scanner import RunningScanner
from project_folders import git, write

from rlm_lock.protocol import ReadSection, Section, ShowMap

SCALE = float(os.environ.get("RLM_HOSTILE_SCALE", "0.02"))
BAD_SOURCES = int(os.environ.get("RLM_HOSTILE_SOURCES", "0"))


@pytest.mark.parametrize("is_git", [False, True])
def test_a_hostile_tree_is_scanned(tmp_path: Path, is_git: bool) -> None:
    """L-8: links, sparse files, pipes, patterns, deep folders and odd names; no process grows over 1 GiB."""
    root = tmp_path / "hostile"
    plant_hostile_tree(root, SCALE)
    if is_git:
        git(root, "init", "-q")
    try:
        with RunningScanner(root, tmp_path / "store") as scanner:
            began = time.monotonic()
            while not scanner.refresh(0.5).version:
                pass
            listed = time.monotonic() - began
            found = scanner.refresh(1000.0)
            count, ended = found.files + found.untracked, time.monotonic() - began
            print(f"{count} files: a version after {listed:.1f} s, parsed and indexed after {ended:.1f} s")
            assert found.version == 1
            assert found.files + found.untracked >= 100_000 * SCALE + 10
            whole = scanner.ask(ReadSection(Section.MAP)).text
            assert "found" in whole
            assert "new\\x0aline.py" in whole
            assert "\u202e" not in whole
            assert "root:" not in whole
            for section in (Section.PROJECT, Section.KEYFILES, Section.RULES):
                assert scanner.ask(ReadSection(section)).content
            assert psutil.Process(scanner.process.pid).memory_info().rss < 1 << 30
    finally:
        remove_tree(root)


@pytest.mark.skipif(not BAD_SOURCES, reason="takes a minute of processor time: make lock-hostile")
def test_sources_that_hold_their_parser_cost_a_minute_in_all(tmp_path: Path) -> None:
    """L-8: after that files are hashed only, and the lock says how many."""
    good = {f"good{number}.py": f"def good{number}(): ...\n" for number in range(60)}
    sources = {
        "honest": {f"honest{number}.py": f"x{number} = 1\n{HONEST_SOURCE}" for number in range(BAD_SOURCES)},
        "bad": {f"slow{number}.py": f"x{number} = 1\n{SLOW_SOURCE}" for number in range(BAD_SOURCES)},
    }
    for kind, files in sources.items():
        write(tmp_path / kind, files | good)
        with RunningScanner(tmp_path / kind, tmp_path / f"{kind} store") as scanner:
            began = time.monotonic()
            found = scanner.refresh(3600.0)
            print(f"{BAD_SOURCES} {kind} sources in {time.monotonic() - began:.1f} s: {found.missing}")
            assert "good59" in scanner.ask(ShowMap(500, about="good59")).text
    assert "others have used up the time" in " ".join(found.missing)
