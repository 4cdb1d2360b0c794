"""Files that somebody else may have replaced: read only while they are regular files."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_ipc.regular_files import read_regular


def _link(path: Path) -> None:
    (path.parent / "other").write_bytes(b"secret")
    path.symlink_to("other")


@pytest.mark.parametrize("made", [_link, os.mkfifo, Path.mkdir, Path.exists], ids=["link", "pipe", "folder", "none"])
def test_what_is_no_regular_file_is_not_read(made: Callable[[Path], object], tmp_path: Path) -> None:
    """A link, a pipe that nobody writes to, a folder and a missing file have no content; no descriptor stays open."""
    made(tmp_path / "name")
    before = os.listdir("/dev/fd")

    assert read_regular(os.fsencode(tmp_path / "name"), 10) is None
    assert os.listdir("/dev/fd") == before


def test_the_beginning_of_a_file_is_read_by_path_and_below_an_open_folder(tmp_path: Path) -> None:
    """No more than the given number of bytes come back."""
    (tmp_path / "name").write_bytes(b"0123456789")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_regular("name", 4, folder=folder) == b"0123"
    finally:
        os.close(folder)
    assert read_regular(str(tmp_path / "name"), 100) == b"0123456789"


def test_a_file_that_comes_in_pieces_is_read_whole() -> None:
    """The system returns such a file a page at a time; a file server may do so, too."""
    name = "/proc/self/smaps"
    fd = os.open(name, os.O_RDONLY)
    try:
        piece = os.read(fd, 1 << 20)
    finally:
        os.close(fd)
    whole = read_regular(name, 1 << 20)
    assert whole is not None
    assert len(whole) > 2 * len(piece)
    assert len(read_regular(name, len(piece) + 1) or b"") == len(piece) + 1


def test_a_short_file_takes_no_more_memory_than_it_has(tmp_path: Path) -> None:
    """The most that a caller accepts is no reason to reserve it: helpers read thousands of files in little memory."""
    (tmp_path / "name").write_bytes(b"short")
    tracemalloc.start()
    try:
        assert read_regular(str(tmp_path / "name"), 1 << 26) == b"short"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
