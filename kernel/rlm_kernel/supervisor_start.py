"""Connect to the supervisor, or start it. It imports little: a daemon starts the supervisor first of all."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from rlm_ipc import discovery
from rlm_ipc.environment import SUPERVISOR, chosen


def connect_socket(path: Path, start: bool) -> socket.socket | None:
    """Return a socket connected to the supervisor at ``path``; None if nobody serves and none is to be started."""
    if not start:
        return discovery.connect(path)
    return discovery.connect_or_start(path, program(path), log=_log(), env=chosen(SUPERVISOR))


def program(path: Path) -> list[str]:
    """Return the command that starts this version's supervisor at ``path``."""
    argv = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "rlm_kernel.supervisor"]
    return [*argv, "--socket", str(path), "--log", str(_log())]


def _log() -> Path:
    return discovery.state_dir() / "supervisor.log"
