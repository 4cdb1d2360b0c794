"""Daemon and supervisor are killed together, in any order and at any moment of their starts.

The next call is answered.
"""

import contextlib
import os
import random
import signal
import threading

import psutil
import pytest
from serving import the_supervisor
from session_processes import descendants, is_supervisor, runs

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import the_socket
from rlm_ipc.errors import DaemonUnavailable, ToolFailed

pytestmark = pytest.mark.usefixtures("everything_ended")
ROUNDS = 5 if "RLM_CHAOS_OPS" in os.environ else 2
"""Each starts all processes anew: `make chaos` makes more of them."""


def kill(which: str) -> None:
    """Kill who holds the lock of ``daemon`` or ``supervisor``, also before it listens."""
    path = the_socket() if which == "daemon" else str(discovery.runtime_dir() / "supervisor.sock")
    for process in descendants():
        with contextlib.suppress(psutil.Error):
            if path in process.cmdline():
                process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("order", [("daemon", "supervisor"), ("supervisor", "daemon")])
def test_the_next_call_works_after_both_were_killed(order) -> None:
    """Again and again: nobody is told to stop a server that is being started."""
    for number in range(ROUNDS):
        assert call_tool("eval_code", {"code": f"{number} + 1"}, session="s")["result"] == str(number + 1)
        for which in order:
            kill(which)
    assert call_tool("eval_code", {"code": "'last'"}, session="s")["result"] == "'last'"


def test_the_next_call_works_whenever_a_start_was_cut_off() -> None:
    """A daemon that is killed while it starts a supervisor leaves one that has its lock and does not listen yet."""
    moments = random.Random(7)
    for number in range(ROUNDS):
        kill("supervisor")
        kill("daemon")
        cut_off = threading.Thread(target=_call_and_lose)
        cut_off.start()
        cut_off.join(moments.uniform(0.02, 0.8))
        kill("daemon")
        cut_off.join(60)
        assert not cut_off.is_alive()
        assert call_tool("eval_code", {"code": f"{number} + 1"}, session="s")["result"] == str(number + 1)
    serving = the_supervisor()
    supervisors = [p for p in descendants() if is_supervisor(p) and runs(p)]
    assert [process.pid for process in supervisors] == [serving]
    assert os.getpgid(serving) != os.getpgid(0)


def _call_and_lose() -> None:
    with contextlib.suppress(DaemonUnavailable, ToolFailed, discovery.DiscoveryError, OSError):
        call_tool("eval_code", {"code": "1"}, session="s")
