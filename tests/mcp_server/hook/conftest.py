"""Hooks as clients run them: the command of the configuration, by `sh`, in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlm_mcp
from rlm_mcp.hook.blocks import Installation

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def installed(isolation: Any) -> Installation:
    """What `rlm-kernel config CLIENT --hooks` writes down, for the folders of this test."""
    folder = isolation.state / "hooks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return Installation(sys.executable, str(Path(rlm_mcp.__file__).resolve().parents[1]), str(folder))


@pytest.fixture
def run_hook(installed: Installation, tmp_path: Path) -> Run:
    """Run the hook of a client's event as the client does; ``given`` is JSON, or bytes as they are."""

    def run(client: str, event: str, given: Any, *, cwd: Path | None = None, before: str = "") -> Any:
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        command = before + installed.command(client, event)
        return subprocess.run(
            ["/bin/sh", "-c", command], input=data, capture_output=True, check=False, cwd=cwd or tmp_path
        )

    return run
