"""Variables that a session has come back with, and whose process dies before any copy has them: they are not lost."""

import asyncio
import os
import signal

import psutil
import pytest
from session_processes import end_process, keeper_of
from waiting import until

from rlm_ipc.errors import KernelDied
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_ipc.variable_images import of_json
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.sessions.saved_variables import hand_in

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", ["off", "lazy", "strict"])
IMAGE = "given-image"


async def give(client: SupervisorClient, kernel_id: str, **variables: object) -> None:
    """Give a kernel saved variables, as the daemon does."""
    image = of_json(variables)
    with os.fdopen(os.memfd_create(IMAGE, os.MFD_ALLOW_SEALING), "wb") as file:
        file.write(image)
        file.flush()
        told = await hand_in(client, kernel_id, file.fileno(), [len(image)])
    assert not told.failed, told.failed


async def replaced(client: SupervisorClient, kernel: KernelInfo) -> KernelInfo:
    """Wait until another process serves the kernel."""
    return await until(lambda: client.kernel_info(kernel.kernel_id), lambda told: told.pid not in {kernel.pid, None})


def holds_image(pid: int) -> bool:
    """Whether a process has an image open."""
    folder = f"/proc/{pid}/fd"
    return any(IMAGE in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))


async def test_without_copies_it_is_lost_with_the_first_cell(supervisor, spawn, policy) -> None:
    """``checkpoint: off`` promises no more, and an old value is not taken for the latest one."""
    kernel = await spawn(policy(checkpoint="off"))
    await give(supervisor, kernel.kernel_id, kept=[1, 2])
    assert (await supervisor.execute(kernel.kernel_id, "kept.append(3)").result()).error is None
    os.kill(kernel.pid, signal.SIGKILL)
    told = await supervisor.execute(kernel.kernel_id, "kept").result()
    assert "its variables are lost" in told.error.evalue


@MODES
async def test_a_process_that_dies_before_its_first_cell_has_lost_nothing(supervisor, spawn, policy, mode) -> None:
    """The one in its place has what the session has come back with, and cells run at once."""
    kernel = await spawn(policy(checkpoint=mode))
    await give(supervisor, kernel.kernel_id, kept=[1, 2])
    os.kill(kernel.pid, signal.SIGKILL)
    await replaced(supervisor, kernel)
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "[1, 2]"


@MODES
async def test_a_process_that_dies_in_its_first_cell_has_lost_that_cell_only(
    supervisor, spawn, policy, mode, told
) -> None:
    """The answer says so, and it is true: variables are as they were before the cell."""
    kernel = await spawn(policy("trusted", checkpoint=mode))
    await give(supervisor, kernel.kernel_id, kept=[1, 2])
    running = supervisor.execute(kernel.kernel_id, f"kept.append(3)\nprint('began')\n{told.wait}")
    await until(running.output_so_far, lambda said: "began" in said[0])
    os.kill((await supervisor.kernel_info(kernel.kernel_id)).pid, signal.SIGKILL)
    result = await running.result()
    assert result.loss.nothing
    assert "variables are as they were before this cell" in result.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "[1, 2]"


@MODES
async def test_a_process_that_dies_of_what_it_is_given_has_lost_nothing(supervisor, spawn, policy, mode) -> None:
    """Whoever gave it hears of the death, and gives it again to the process in its place."""
    kernel = await spawn(policy(checkpoint=mode))
    before = psutil.Process(kernel.pid).memory_info().rss
    giving = asyncio.ensure_future(give(supervisor, kernel.kernel_id, kept=list(range(1_500_000))))
    await until(lambda: psutil.Process(kernel.pid).memory_info().rss > before + (10 << 20))
    os.kill(kernel.pid, signal.SIGKILL)
    with pytest.raises(KernelDied) as died:
        await giving
    assert died.value.loss.nothing
    assert (await supervisor.kernel_info(kernel.kernel_id)).untouched
    await give(supervisor, kernel.kernel_id, kept=[1, 2])
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "[1, 2]"


async def test_what_a_restart_has_cleared_is_not_given_again(supervisor, spawn, policy) -> None:
    """Whoever restarts a session wants it empty, after a crash as well."""
    kernel = await spawn(policy(checkpoint="off"))
    await give(supervisor, kernel.kernel_id, kept=[1, 2])
    await supervisor.restart(kernel.kernel_id)
    end_process((await supervisor.kernel_info(kernel.kernel_id)).pid)
    await supervisor.execute(kernel.kernel_id, "1").result()  # maybe undone, as the death may not be known yet
    assert (await supervisor.execute(kernel.kernel_id, "'kept' in dir()").result()).result == "False"


async def test_the_next_supervisor_gives_it_again(own_supervisor, policy, tmp_path) -> None:
    """Supervisor and kernel die at once: what the keeper holds is enough. It is held for no longer than needed."""
    kernel = await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), policy(checkpoint="off"))
    await give(own_supervisor, "k1", kept=[1, 2])
    keeper = keeper_of(own_supervisor.pid).pid
    assert holds_image(keeper)
    os.kill(own_supervisor.pid, signal.SIGSTOP)  # it recovers nothing any more
    end_process(kernel.pid)
    os.kill(own_supervisor.pid, signal.SIGKILL)
    assert (await own_supervisor.execute("k1", "kept").result()).result == "[1, 2]"
    await until(lambda: not holds_image(keeper))


@pytest.mark.parametrize("mode", ["lazy", "strict"])
async def test_an_image_is_let_go_of_once_a_copy_has_its_variables(supervisor, spawn, policy, mode) -> None:
    """Otherwise a session that comes back would take the memory of its variables twice for all its life."""
    kernel = await spawn(policy(checkpoint=mode))
    await give(supervisor, kernel.kernel_id, kept=[1, 2])
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "[1, 2]"
    for holder in (supervisor.pid, keeper_of(supervisor.pid).pid):
        await until(lambda holder=holder: not holds_image(holder))


async def test_what_comes_back_is_copied_out_of_its_image_once(supervisor, spawn, policy) -> None:
    """A text is read and decoded: two times its size have to fit, and not a third time for the image."""
    kernel = await spawn(policy(memory_bytes=250 << 20))
    await give(supervisor, kernel.kernel_id, kept="x" * (100 << 20))
    assert (await supervisor.execute(kernel.kernel_id, "len(kept) >> 20").result()).result == "100"
