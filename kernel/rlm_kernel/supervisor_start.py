"""Connect to the supervisor, or start it. It imports little: a daemon starts the supervisor first of all."""

from __future__ import annotations

import os
import socket
import sys

from rlm_ipc import discovery
from rlm_ipc.environment import SUPERVISOR, chosen

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    StrPath = str | os.PathLike[str]


def connect_socket(path: StrPath, start: bool) -> socket.socket | None:
    """Return a socket connected to the supervisor at ``path``; None if nobody serves and none is to be started."""
    if not start:
        return discovery.connect(path)
    return discovery.connect_or_start(path, program(path), log=_log(), env=chosen(SUPERVISOR))


def program(path: StrPath, log: str = "") -> list[str]:
    """Return the command that starts this version's supervisor at ``path``; by default it logs to the state folder."""
    argv = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "rlm_kernel.supervisor"]
    return [*argv, "--socket", os.fspath(path), "--log", log or _log()]


def _log() -> str:
    return f"{discovery.state_folder()}/supervisor.log"
