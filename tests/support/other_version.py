"""Another version of rlm-kernel: a copy of this one with other numbers, and an interpreter that runs it."""

from __future__ import annotations

import shutil
import site
import sys
from pathlib import Path

ROOTS = ("mcp_server", "kernel", "client", "contexts", "ipc", "sandbox", "memory", "lock")
_PROJECT = Path(__file__).parents[2]


def other_version(folder: Path, version: str, *, calls: int | None = None, kernels: int | None = None) -> Path:
    """Make that version in ``folder``; returns its interpreter. ``calls`` and ``kernels`` are what it speaks.

    By default it speaks the same as this one.
    """
    paths = []
    for root in ROOTS:
        shutil.copytree(_PROJECT / root, folder / root, ignore=shutil.ignore_patterns("node_modules"))
        paths.append(str(folder / root))
    shutil.copytree(_PROJECT / "policies", folder / "policies")
    _change(folder / "ipc/rlm_ipc/version.py", "VERSION", f'"{version}"')
    if calls is not None:
        _change(folder / "ipc/rlm_ipc/supervisor_wire.py", "PROTOCOL", str(calls))
    if kernels is not None:
        _change(folder / "ipc/rlm_ipc/worker_protocol.py", "PROTOCOL", str(kernels))
    return _interpreter(folder / "venv", [*paths, *site.getsitepackages()])


def _change(module: Path, name: str, value: str) -> None:
    lines = module.read_text().splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith(f"{name} = "))
    lines[at] = f"{name} = {value}"
    module.write_text("\n".join(lines) + "\n")


def _interpreter(folder: Path, paths: list[str]) -> Path:
    """A virtual environment by hand: what it imports comes from ``paths`` alone."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    real = Path(sys.executable).resolve()
    python.symlink_to(real)
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / name / "site-packages"
    packages.mkdir(parents=True)
    (packages / "paths.pth").write_text("\n".join(paths) + "\n")
    return python
