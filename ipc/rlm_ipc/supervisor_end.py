"""Ending a supervisor from outside."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from rlm_ipc import discovery, stale_files
from rlm_ipc.folder_removal import remove_folder


def end_supervisor(seconds: float = 20.0) -> bool:
    """End this user's supervisor with every kernel, and remove its files. Return False if there was none.

    Args: seconds, how long it may take to end.
    """
    path = discovery.runtime_dir() / "supervisor.sock"
    existed, until = False, time.monotonic() + seconds
    while (supervisor := discovery.connect(path)) is not None and time.monotonic() < until:
        existed = True
        with supervisor:
            try:
                os.kill(discovery.peer(supervisor).pid, signal.SIGTERM)
            except ProcessLookupError:  # it has just died, and another one is about to take its place
                time.sleep(0.02)
                continue
            with suppress(ConnectionError):
                supervisor.settimeout(seconds)
                while supervisor.recv(4096):
                    pass
            break
    with suppress(discovery.DiscoveryError), discovery.claim(path, seconds=seconds):
        # No supervisor serves this socket, and none can start meanwhile.
        for name in stale_files.FOLDERS:
            remove_folder(path.with_name(name))
        path.unlink(missing_ok=True)
    return existed
