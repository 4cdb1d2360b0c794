"""Files that nobody else may read: written as a whole, or not at all."""

from pathlib import Path

import pytest

from rlm_ipc.private_folders import put_file


def test_a_file_is_replaced_as_a_whole_and_is_for_its_owner_only(tmp_path: Path) -> None:
    """Whoever has the old file open reads that to its end; the new one has its own mode, whatever the old one had."""
    path = tmp_path / "key"
    path.write_bytes(b"before")
    path.chmod(0o644)
    with path.open("rb") as before:
        put_file(path, b"after")
        assert before.read() == b"before"
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """What a link leads to stays as it is."""
    other, path = tmp_path / "other", tmp_path / "key"
    other.write_bytes(b"mine")
    path.symlink_to(other)
    put_file(str(path), b"secret")
    assert (other.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"mine", b"secret", False)


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing(tmp_path: Path) -> None:
    """A half-written file would hold a key, in a place where nobody looks for it."""
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        put_file(path, b"secret")
    assert list(tmp_path.iterdir()) == [path]
    assert path.is_dir()
