"""The end of a test that starts the real daemon and supervisor: both end, and nothing of them is left."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from session_processes import descendants, is_helper, runs
from waiting import wait_until

from rlm_ipc import discovery, life_lock
from rlm_ipc.daemon_connection import DaemonConnection, is_running, the_socket
from rlm_ipc.daemon_requests import StopDaemon
from rlm_ipc.errors import DaemonUnavailable
from rlm_ipc.supervisor_end import end_supervisor


def _running_since(before: set[psutil.Process]) -> list[psutil.Process]:
    """Processes that came since and run. Those that were left to this process are reaped, as init would.

    The first process of a private session waits for that.
    """
    came = [process for process in descendants() - before if not is_helper(process)]
    for process in came:
        if not runs(process):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
    return [process for process in came if runs(process)]


@pytest.fixture
def everything_ended(isolation: object) -> Iterator[None]:
    """End daemon and supervisor at the end, and find nothing of them: no process, no socket, no file of a kernel."""
    before = descendants()
    yield
    with contextlib.suppress(DaemonUnavailable, OSError), DaemonConnection(StopDaemon()) as control:
        control.wait_for_end()
    wait_until(lambda: not is_running())
    end_supervisor()
    wait_until(lambda: not _running_since(before))
    with discovery.claim(the_socket()):  # a killed daemon cannot remove its socket, the next one replaces it
        Path(the_socket()).unlink(missing_ok=True)
    end_supervisor()  # now that its last process has ended, nothing comes after it
    life_lock.remove_unheld(str(discovery.runtime_dir()))  # of fronts that were killed, as the next daemon does
    left = [path for path in discovery.runtime_dir().rglob("*") if not path.is_dir()]
    assert [str(path) for path in left if path.suffix not in (".lock", ".start")] == []
