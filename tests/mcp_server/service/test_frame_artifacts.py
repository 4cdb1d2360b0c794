"""Which files are a frame's: how deep and how many are looked at, and where nothing is."""

import os
from pathlib import Path

import pytest

from rlm_mcp.service.frames import artifacts
from rlm_mcp.service.frames.artifacts import DEEPEST, changed_since


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Return a marker that what is written from now on is newer than."""
    found, later = tmp_path / "began", tmp_path / "later"
    found.touch()
    while not later.exists() or later.stat().st_ctime_ns <= found.stat().st_ctime_ns:
        later.touch()
    return found


def test_only_so_many_folders_one_in_the_other_are_entered(tmp_path: Path, marker: Path) -> None:
    """F-12: a pop ends however deeply a session nests its folders."""
    deep = tmp_path.joinpath("w", *["d"] * (DEEPEST + 1))
    deep.mkdir(parents=True)
    (deep / "out.txt").touch()
    (deep.parent / "in.txt").touch()
    assert DEEPEST == 20
    opened = len(os.listdir("/proc/self/fd"))
    assert changed_since(marker, [str(tmp_path / "w")]) == [str(deep.parent / "in.txt")]
    assert len(os.listdir("/proc/self/fd")) == opened  # nor does it keep the folders open


def test_only_so_many_files_are_looked_at(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-12: nor does a large workspace hold a pop up; each file counts once."""
    folder = tmp_path / "w"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.txt").touch()
    assert len(changed_since(marker, [str(folder), str(folder)])) == 9
    monkeypatch.setattr(artifacts, "MOST_LOOKED_AT", 5)
    assert len(changed_since(marker, [str(folder)])) == 5


def test_without_a_marker_or_a_folder_there_is_nothing(tmp_path: Path, marker: Path) -> None:
    """F-12: a frame that was started otherwise has no marker; a link in the place of a folder is not followed."""
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "a.txt").touch()
    (tmp_path / "link").symlink_to(folder)
    assert changed_since(marker, [str(folder)]) == [str(folder / "a.txt")]
    assert changed_since(tmp_path / "none", [str(folder)]) == []
    assert changed_since(marker, [str(tmp_path / "none"), str(tmp_path / "link")]) == []
