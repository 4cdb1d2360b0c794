"""What a folder counts for, whatever a session puts there."""

import subprocess
import sys
from pathlib import Path

from rlm_sandbox.os_wall.folder_size import SMALLEST_ENTRY_BYTES, folder_bytes

MIB = 1024 * 1024


def test_a_folder_counts_all_its_files(tmp_path: Path) -> None:
    """Nested files count what they use on disk; empty ones are not free."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "data").write_bytes(b"x" * MIB)
    (tmp_path / "empty").touch()
    used = folder_bytes(tmp_path, stop_at=100 * MIB)
    assert MIB + 3 * SMALLEST_ENTRY_BYTES <= used < 2 * MIB


def test_a_sparse_file_and_a_link_count_little(tmp_path: Path) -> None:
    """Only what is on disk counts, and links are not followed."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    (tmp_path / "link").symlink_to("/usr")
    assert folder_bytes(tmp_path, stop_at=100 * MIB) <= 4 * SMALLEST_ENTRY_BYTES


def test_counting_stops_at_the_limit(tmp_path: Path) -> None:
    """A folder of very many files costs no more than the limit."""
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert folder_bytes(tmp_path, stop_at=10 * SMALLEST_ENTRY_BYTES) == 10 * SMALLEST_ENTRY_BYTES


def test_files_hidden_below_a_too_long_path_count_as_the_limit(tmp_path: Path) -> None:
    """A session cannot hide files from its quota by nesting folders deeper than a path can name."""
    script = "import os\nfor _ in range(30):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert folder_bytes(tmp_path, stop_at=MIB) == MIB


def test_a_missing_folder_is_empty(tmp_path: Path) -> None:
    """A scratch folder that is gone uses nothing."""
    assert folder_bytes(tmp_path / "gone", stop_at=MIB) == 0
