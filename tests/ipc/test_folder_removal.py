"""Removing what a session leaves in its scratch folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rlm_ipc.folder_removal import remove_folder

NOBODY = 65534


def test_a_folder_of_any_depth_goes(tmp_path: Path) -> None:
    """No session is to end in an error.

    No supervisor to leave its leftovers, because a cell went on and on downwards.
    """
    scratch, here = tmp_path / "scratch", Path.cwd()
    scratch.mkdir()
    os.chdir(scratch)
    try:
        for _ in range(1000):
            Path("beside").write_text("x")
            os.mkdir("down")
            os.chdir("down")
    finally:
        os.chdir(here)
    remove_folder(scratch)
    assert not scratch.exists()


def test_no_link_is_followed(tmp_path: Path) -> None:
    """What a link names is not the session's; neither as a file, as a folder, nor in place of the whole."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "kept").write_text("x")
    scratch = tmp_path / "scratch"
    (scratch / "inner").mkdir(parents=True)
    for place in (scratch, scratch / "inner"):
        (place / "folder").symlink_to(outside)
        (place / "file").symlink_to(outside / "deep" / "kept")
    remove_folder(scratch)
    assert not scratch.exists()
    (tmp_path / "link").symlink_to(outside)
    remove_folder(tmp_path / "link")
    assert (outside / "deep" / "kept").read_text() == "x"


CLOSED = """
import os, pathlib, sys
from rlm_ipc.folder_removal import remove_folder
if os.getuid() == 0:
    os.setgroups([]), os.setgid({nobody}), os.setuid({nobody})
scratch = pathlib.Path(sys.argv[1]) / "scratch"
for mode in (0o300, 0o500, 0):
    folder = scratch / str(mode) / "inner"
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    folder.chmod(mode)
    folder.parent.chmod(mode)
remove_folder(scratch)
print(scratch.exists())
"""


def test_closed_folders_go_too() -> None:
    """A session chooses the modes of what it makes; an ordinary user is held by them."""
    code = CLOSED.format(nobody=NOBODY)
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # pytest's own is root's alone
        os.chmod(place, 0o777)
        done = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    """It may have been removed by hand."""
    remove_folder(tmp_path / "missing")
