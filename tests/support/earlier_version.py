"""A release of rlm-kernel from the repository's past: its wheel, built and installed beside this version."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from waiting import PROGRAM_SECONDS

_PROJECT = Path(__file__).parents[2]
_STANDS_FOR = "934cfb1326ec2b9556efae32944457d72b603de1"
"""The first commit from which sessions cross both ways and whose dependencies are those of this version."""


def earlier() -> list[str]:
    """The releases to try: the latest and the oldest tag, or the commits that RLM_EARLIER names.

    While there are no tags, a commit stands for the first release; a clone without history has none.
    """
    if named := os.environ.get("RLM_EARLIER", "").split():
        return named
    tags = _git("tag", "--sort=version:refname") or _git(
        "rev-parse", "--verify", "--quiet", f"{_STANDS_FOR}^{{commit}}"
    )
    return sorted({tags[0], tags[-1]}) if tags else []


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=_PROJECT, capture_output=True, text=True, check=False).stdout.split()


def installed(commit: str, folder: Path) -> Path:
    """Build that release's wheel and install it; returns its command. It sees the dependencies of this environment."""
    source = folder / "source"
    packed = subprocess.run(["git", "archive", commit], cwd=_PROJECT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(source, filter="data")
    build = "import sys; from hatchling.build import build_wheel as build; print(build(sys.argv[1]))"
    wheel = folder / _said([sys.executable, "-c", build, str(folder)], source).split()[-1]
    _said([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], folder)
    python = folder / "env" / "bin" / "python"
    uv = str(Path(sys.executable).with_name("uv"))
    _said([uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)], folder)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    # A path in a .pth file adds the dependencies, but not the .pth of this checkout's editable installation.
    ours, theirs = (_said([str(each), "-c", where], folder).strip() for each in (sys.executable, python))
    (Path(theirs) / "dependencies.pth").write_text(f"{ours}\n")
    return python.with_name("rlm-kernel")


def _said(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
