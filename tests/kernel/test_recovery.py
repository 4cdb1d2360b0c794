"""Crashes: what is lost, what is not, and that nobody's session dies of them."""

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from rlm_kernel.contexts.store import ContextStore
from rlm_kernel.errors import CallerError, HostGone, UnknownKernel
from rlm_kernel.hostclient import HostClient, SpawnRequest

pytestmark = pytest.mark.anyio


async def replaced(host, kernel_id, old_pid):
    """Wait until another process serves the kernel; returns its description."""
    async with asyncio.timeout(30):
        while (info := await host.kernel_info(kernel_id)).pid in {old_pid, None}:
            await asyncio.sleep(0.02)
    return info


async def test_an_outside_kill_between_cells_loses_nothing_under_strict(host, spawn, policy) -> None:
    """The copy taken before the last reply takes over, behind the same sockets."""
    kernel = await spawn(policy(checkpoint="strict"))
    await host.execute(kernel.kernel_id, "kept = [1, 2, 3]").result()
    os.kill(kernel.pid, signal.SIGKILL)
    info = await replaced(host, kernel.kernel_id, kernel.pid)
    assert info.connection == kernel.connection
    assert (await host.execute(kernel.kernel_id, "kept").result()).result == "[1, 2, 3]"
    await host.shutdown(kernel.kernel_id)


async def test_a_crash_in_a_cell_is_an_error_that_names_the_cause(host, spawn, policy) -> None:
    """The cell that killed its process gets the signal's name, and the session goes on as before it."""
    kernel = await spawn(policy("trusted", checkpoint="strict"))
    await host.execute(kernel.kernel_id, "kept = 1").result()
    for signal_name in ("SIGSEGV", "SIGABRT"):
        code = f"kept = 2\nprint('last words')\nimport os, signal\nos.kill(os.getpid(), signal.{signal_name})"
        result = await host.execute(kernel.kernel_id, code).result()
        assert result.stdout == "last words\n"
        assert result.error["ename"] == "KernelRolledBack"
        assert signal_name in result.error["evalue"]
        assert (await host.execute(kernel.kernel_id, "kept").result()).result == "1"
    await host.shutdown(kernel.kernel_id)


async def test_a_crash_in_the_first_cell_loses_nothing(host, spawn, policy, tmp_path: Path) -> None:
    """A fresh process is what the session was: no copy is needed for that, and the contexts are there again."""
    store = ContextStore(tmp_path / "store")
    kernel = await spawn(policy("trusted", checkpoint="lazy"))
    with store.attachment(store.put_text("alpha\n")) as attachment:
        await host.attach(kernel.kernel_id, "log", attachment, "log", {"path": "x.log"})
    result = await host.execute(kernel.kernel_id, "import os; os.abort()").result()
    assert "SIGABRT" in result.error["evalue"]
    assert "as they were before this cell" in result.error["evalue"]
    assert (await host.execute(kernel.kernel_id, "log['content']").result()).result == "'alpha\\n'"
    await host.shutdown(kernel.kernel_id)


async def test_without_copies_a_crash_says_that_variables_are_lost(host, spawn, policy) -> None:
    """checkpoint: off restarts the kernel, says what is gone, and contexts are there again."""
    kernel = await spawn(policy("trusted", checkpoint="off"))
    await host.execute(kernel.kernel_id, "gone = 1").result()
    result = await host.execute(kernel.kernel_id, "import os; os._exit(3)").result()
    assert "exited with 3" in result.error["evalue"]
    assert "variables are lost" in result.error["evalue"]
    assert (await host.execute(kernel.kernel_id, "gone").result()).error["ename"] == "NameError"
    await host.shutdown(kernel.kernel_id)


async def test_a_kill_while_idle_without_a_copy_is_told_to_the_next_cell(host, spawn, policy) -> None:
    """Nobody computes on lost variables without being told: the next cell is refused once, with the loss."""
    kernel = await spawn(policy(checkpoint="off"))
    await host.execute(kernel.kernel_id, "gone = 1").result()
    os.kill(kernel.pid, signal.SIGKILL)
    await replaced(host, kernel.kernel_id, kernel.pid)
    told = await host.execute(kernel.kernel_id, "gone = 2").result()
    assert told.error["ename"] == "KernelRolledBack"
    assert "variables are lost" in told.error["evalue"]
    assert (await host.execute(kernel.kernel_id, "1 + 1").result()).result == "2"
    await host.shutdown(kernel.kernel_id)


async def test_contexts_come_back_with_a_new_process(host, spawn, policy, tmp_path: Path) -> None:
    """A loaded context is the host's to give again: a crash never loses it."""
    store = ContextStore(tmp_path / "store")
    kernel = await spawn(policy("trusted", checkpoint="off"))
    with store.attachment(store.put_text("alpha\nbeta\n")) as attachment:
        await host.attach(kernel.kernel_id, "log", attachment, "log", {"path": "x.log"})
    await host.execute(kernel.kernel_id, "import os; os._exit(1)").result()
    result = await host.execute(kernel.kernel_id, "log['line_count'], log['lines'][1], log['type']").result()
    assert result.result == "(2, 'beta', 'log')"
    await host.shutdown(kernel.kernel_id)


async def test_query_ids_are_not_reused_by_the_process_that_takes_over(host, spawn, policy) -> None:
    """K-22: ids are unique for the life of the session, also across a crash."""
    kernel = await spawn(policy("trusted", checkpoint="off"))
    first = await host.execute(kernel.kernel_id, "a = llm_query('one')").result()
    await host.execute(kernel.kernel_id, "import os; os._exit(1)").result()
    second = await host.execute(kernel.kernel_id, "b = llm_query('two')").result()
    assert [q["id"] for q in first.queries + second.queries] == ["q_000", "q_001"]
    await host.shutdown(kernel.kernel_id)


async def test_a_restart_keeps_contexts_and_clears_variables(host, spawn, tmp_path: Path) -> None:
    """Restarting is explicit, and complete."""
    store = ContextStore(tmp_path / "store")
    kernel = await spawn()
    with store.attachment(store.put_text("alpha\n")) as attachment:
        await host.attach(kernel.kernel_id, "log", attachment, "log", {})
    await host.execute(kernel.kernel_id, "mine = 1").result()
    await host.restart(kernel.kernel_id)
    assert (await host.execute(kernel.kernel_id, "log['content']").result()).result == "'alpha\\n'"
    assert (await host.execute(kernel.kernel_id, "mine").result()).error["ename"] == "NameError"
    await host.shutdown(kernel.kernel_id)


async def test_a_killed_zygote_is_replaced_and_sessions_go_on(own_host, policy, tmp_path: Path) -> None:
    """The zygote is only needed to start kernels, and is started again when it is."""
    kernel = await own_host.spawn(SpawnRequest("k1", policy(), str(tmp_path)))
    zygote = min(psutil.Process(own_host.pid).children(), key=psutil.Process.create_time)
    assert zygote.pid != kernel.pid
    zygote.kill()
    assert (await own_host.execute("k1", "1 + 1").result()).result == "2"
    await own_host.spawn(SpawnRequest("k2", policy(), str(tmp_path)))
    assert (await own_host.execute("k2", "2 + 2").result()).result == "4"


async def test_a_killed_host_is_noticed_and_takes_its_kernels_along(own_host, policy, gone, tmp_path: Path) -> None:
    """Waiting calls get an error at once; no kernel process stays behind; the next host starts clean."""
    kernel = await own_host.spawn(SpawnRequest("k1", policy(), str(tmp_path)))
    execution = own_host.execute("k1", "import time; time.sleep(60)")
    os.kill(own_host.pid, signal.SIGKILL)
    async with asyncio.timeout(40):
        with pytest.raises(HostGone, match="variables are lost"):
            await execution.result()
    await gone(kernel.pid)
    again = await HostClient.connect()
    assert await again.kernels() == []
    with pytest.raises(UnknownKernel):
        await again.execute("k1", "1").result()
    os.kill(again.pid, signal.SIGTERM)
    await again.wait_gone()
    again.close()


async def test_an_ended_kernel_leaves_no_process_socket_or_copy(host, spawn, gone) -> None:
    """Shutting down removes everything of a session but its scratch folder."""
    kernel = await spawn()
    await host.execute(kernel.kernel_id, "x = 1").result()
    await host.shutdown(kernel.kernel_id)
    await gone(kernel.pid)
    folder = Path(kernel.connection["ip"]).parent
    assert not [path for path in folder.iterdir() if path.name.startswith(kernel.kernel_id)]
    with pytest.raises(UnknownKernel):
        await host.kernel_info(kernel.kernel_id)


async def test_two_kernels_cannot_have_one_id(host, spawn, kernel, policy, tmp_path: Path) -> None:
    """A second spawn with a known id is refused, and the first kernel is not touched."""
    with pytest.raises(CallerError, match="already"):
        await host.spawn(SpawnRequest(kernel.kernel_id, policy(), str(tmp_path)))
    assert (await host.execute(kernel.kernel_id, "1").result()).result == "1"


async def test_a_session_left_alone_shares_its_memory_and_still_hears(host, spawn) -> None:
    """It keeps next to nothing for itself beside its copy; a cell, an interrupt and a kill find it as ever."""
    kernels = [await spawn() for _ in range(2)]
    for kernel in kernels:
        assert (await host.execute(kernel.kernel_id, "kept = [object()]; kept.append(5)").result()).error is None
    for kernel in kernels:
        await shares_its_memory(kernel.pid)
    os.kill(kernels[0].pid, signal.SIGINT)
    os.kill(kernels[1].pid, signal.SIGTERM)
    await replaced(host, kernels[1].kernel_id, kernels[1].pid)
    for kernel in kernels:
        assert (await host.execute(kernel.kernel_id, "kept[1]").result()).result == "5"
        await host.shutdown(kernel.kernel_id)


async def shares_its_memory(pid: int) -> None:
    """Wait until a process has had next to no memory for itself for a second."""
    async with asyncio.timeout(30):
        seen = 0
        while seen < 10:
            seen = seen + 1 if psutil.Process(pid).memory_full_info().uss < 500_000 else 0
            await asyncio.sleep(0.1)
