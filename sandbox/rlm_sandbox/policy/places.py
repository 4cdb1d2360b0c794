"""Where policies are looked up by name."""

from __future__ import annotations

import os
from pathlib import Path


def policy_directories() -> tuple[Path, ...]:
    """Return where policies are looked up by name: the user's own folder, then the shipped ones, then the samples."""
    installed = Path(__file__).parents[1] / "policies"
    folder = installed if installed.is_dir() else Path(__file__).parents[3] / "policies"
    shipped = (folder, folder / "samples")
    if not (config := os.environ.get("RLM_KERNEL_CONFIG_DIR")):
        try:
            config = str(Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "rlm-kernel")
        except RuntimeError:  # a user id without a name and a home, as containers use
            return shipped
    return Path(config) / "policies", *shipped


def is_path(name_or_path: str) -> bool:
    """Return whether a text names the file of a policy, and not a policy."""
    return "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
