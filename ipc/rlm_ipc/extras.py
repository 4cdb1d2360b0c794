"""How to install an extra of rlm-kernel into the environment in which this program runs.

The name of the package alone is not enough: an installation from a checkout is on no index, and next to one made by `uv
tool`, `pip` belongs to another environment.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable


def extra_command(extra: str) -> str:
    """Return the command that installs everything in the extra."""
    return command_for(requirements_of(extra))


def requirements_of(extra: str) -> list[str]:
    """Return the requirements of an extra, such as ``duckdb>=2.0``; empty if rlm-kernel is no installed package."""
    import importlib.metadata  # slow, and most programs never need it

    try:
        required = importlib.metadata.requires("rlm-kernel") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [one for one in required if re.search(rf"extra == .{extra}\b", one)]


def command_for(requirements: Iterable[str]) -> str:
    """Return the command that installs requirements here; an environment made by uv has no pip."""
    pip = [sys.executable, "-m", "pip", "install"]
    uv = ["uv", "pip", "install", "--python", sys.executable]
    installer = uv if importlib.util.find_spec("pip") is None else pip
    return shlex.join([*installer, *(requirement.partition(";")[0].strip() for requirement in requirements)])
