"""Programs that ignore the ends of their children start supervisors, too: servers, shells' background jobs, agents."""

import subprocess
import sys

import pytest
from waiting import PROGRAM_SECONDS

pytestmark = pytest.mark.usefixtures("isolation")

_PROGRAM = """
import asyncio, os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

async def main():
    supervisor = await SupervisorClient.connect()
    try:
        kernel = await supervisor.spawn(SpawnRequest("ignored", sys.argv[1]), load_policy("default"))
        print((await supervisor.execute(kernel.kernel_id, "1 + 1").result()).result)
    finally:
        os.kill(supervisor.pid, signal.SIGTERM)

asyncio.run(main())
"""


def test_a_kernel_starts_whose_starter_ignores_sigchld(tmp_path) -> None:
    """An ignored signal stays ignored in programs that are started: the zygote could not wait for its processes."""
    program = [sys.executable, "-P", "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
