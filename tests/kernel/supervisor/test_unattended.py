"""What a supervisor does by itself when nobody who wants events is connected: it ends what idles, and then itself."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from session_processes import runs
from waiting import until, wait_until

from rlm_ipc import discovery, left_kernels, supervisor_protocol
from rlm_ipc.errors import SupervisorGone
from rlm_ipc.kernel_reports import AskedQuery
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.blocking_client import BlockingClient
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy

pytestmark = pytest.mark.anyio
MakePolicy = Callable[..., Policy]


@pytest.fixture
def brief(isolation: object) -> Iterator[psutil.Process]:
    """A supervisor that ends a second after it has nothing to do."""
    path = discovery.runtime_dir() / "supervisor.sock"
    log = discovery.state_dir() / "supervisor.log"
    argv = [sys.executable, "-P", "-m", "rlm_kernel.supervisor", "--socket", str(path), "--log", str(log)]
    sock = discovery.connect_or_start(path, [*argv, "--idle-seconds", "1"], log=log)
    with sock:
        process = psutil.Process(discovery.peer(sock).pid)
    yield process
    wait_until(lambda: not runs(process))


def _sessions(client: BlockingClient) -> set[str]:
    reply = client.call(supervisor_protocol.KERNELS, supervisor_protocol.ListKernels())
    return {info.kernel_id for info in reply.kernels}


def _named(name: str, workspace: Path) -> SpawnRequest:
    return SpawnRequest(name, str(workspace), label={"session": name})


def _left() -> list[left_kernels.LeftKernel]:
    folder = discovery.state_dir() / left_kernels.FOLDER
    return [file.left for _, file in left_kernels.left_kernels(folder) if file]


async def test_idle_sessions_end_and_then_the_supervisor(
    brief: psutil.Process, policy: MakePolicy, tmp_path: Path, told
) -> None:
    """A cell that runs is use, and so is a front end; nothing is left in the end, the keeper included.

    A session leaves its scratch folder to its fork. What is told of one that could not be saved is why, unless its
    policy keeps no variables.
    """
    rules = policy("trusted", idle_seconds=0.1)
    client = await SupervisorClient.connect(start=False)
    shared = Path((await client.spawn(_named("idle", tmp_path), rules)).scratch)
    await client.fork("idle", _named("busy", tmp_path), rules)
    # Sessions end one after the other: when this one has, all that follows from the end of the first one is done.
    await client.spawn(_named("once", tmp_path), replace(rules, reopen=False))
    keeper = brief.parent()
    cell = client.execute("busy", f"{told.wait}from rlm_kernel.worker import snapshot\ndel snapshot._made")
    client.close()
    with pytest.raises(SupervisorGone):  # the connection has ended; the cell goes on
        await cell.result()
    sock = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    assert sock is not None
    looking = BlockingClient(sock)
    wait_until(lambda: _sessions(looking), {"busy"}.__eq__)
    assert shared.is_dir()
    told.give()
    wait_until(lambda: _sessions(looking), set().__eq__)
    looking.close()
    for process in (brief, keeper):
        assert process is not None
        wait_until(lambda process=process: not runs(process))
    assert not shared.exists()
    left = {kernel.kernel_id: (kernel.label["session"], kernel.saved is not None, kernel.unsaved) for kernel in _left()}
    why = "NameError: name '_made' is not defined"
    assert left == {"busy": ("busy", False, why), "idle": ("idle", True, ""), "once": ("once", False, "")}


async def test_a_session_that_is_used_while_it_is_saved_goes_on(
    brief: psutil.Process, policy: MakePolicy, tmp_path: Path
) -> None:
    """What its next cell changes is not in the image; the file of it is not left."""
    folder = discovery.state_dir() / left_kernels.FOLDER
    client = await SupervisorClient.connect(start=False)
    kernel = await client.spawn(SpawnRequest("used", str(tmp_path)), policy("trusted", idle_seconds=0.1))
    await client.execute("used", "x = 1").result()
    os.kill(kernel.pid, signal.SIGSTOP)  # it is asked for its variables, and does not answer
    client.close()
    await until(lambda: folder.exists() and any(folder.iterdir()))
    client = await SupervisorClient.connect(start=False)
    cell = client.execute("used", "x += 1; x")
    os.kill(kernel.pid, signal.SIGCONT)
    assert (await cell.result()).result == "2"
    await until(lambda: not any(folder.iterdir()))
    assert (await client.execute("used", "x").result()).result == "2"
    await client.shutdown("used")
    client.close()


def test_a_session_that_leaves_much_besides_its_variables_is_read_again(tmp_path: Path) -> None:
    """A thousand prompts of a hundred thousand characters are open queries that the policy permits."""
    prompts = tuple(AskedQuery(number, "x" * 100_000) for number in range(1000))
    leaving = left_kernels.Leaving(tmp_path, "k1")
    leaving.finish(left_kernels.LeftKernel("k1", {}, 0.0, 0.0, {}, pending=prompts))
    leaving.publish()
    ((_, file),) = left_kernels.left_kernels(tmp_path)
    assert file is not None
    assert file.left.pending == prompts
