"""Code that knows where it lies still does: what moves, or is missing, is noticed here and not by a user."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlm_kernel.worker import traceback
from rlm_sandbox.os_wall import readable
from rlm_sandbox.policy import policy_directories

SEEN_IN_CELLS = ("rlm_ipc", "rlm_sandbox", "rlm_contexts", "rlm_kernel")
"""Our packages whose frames a cell's traceback could show."""


@pytest.fixture(scope="module")
def packages(root: Path) -> list[str]:
    """Return the import packages of the wheel."""
    wheel = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    return [path.split("/")[1] for path in wheel["packages"]]


def test_a_process_behind_the_wall_may_read_each_of_our_packages(packages: list[str]) -> None:
    """One that is not listed cannot be imported once the wall stands."""
    assert sorted(readable.PACKAGES) == sorted(packages)


@pytest.mark.parametrize("package", SEEN_IN_CELLS)
def test_tracebacks_show_no_frame_of_ours(package: str) -> None:
    """A person sees the frames of their code, and none of the machinery around it."""
    file = str(Path(str(importlib.import_module(package).__file__)).resolve())
    assert file.startswith(traceback._HIDDEN)


def test_the_policies_that_ship_are_found(root: Path) -> None:
    """From a checkout they are looked for beside the packages."""
    assert [path.relative_to(root) for path in policy_directories()[1:]] == [Path("policies"), Path("policies/samples")]


@pytest.mark.parametrize(
    ("compiled", "user"),
    [
        ("rlm_sandbox.language_wall._core", "rlm_sandbox.language_wall.wall"),
        ("rlm_contexts.text._native", "rlm_contexts.text.lines"),
    ],
)
def test_a_missing_compiled_part_is_an_error(compiled: str, user: str) -> None:
    """Nothing falls back in silence to something slower, or to no wall."""
    code = f"import sys; sys.modules[{compiled!r}] = None; import {user}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert compiled in done.stderr
