"""Crashes: what is lost, what is not, and that nobody's session dies of them."""

import asyncio
import os
import signal
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from session_processes import copies_of, kill_with_keeper, zygote_of
from waiting import SECONDS, until

from rlm_ipc.errors import CallerError, KernelError, SupervisorGone, UnknownKernel
from rlm_ipc.outcomes import Ended, Loss, Lost
from rlm_ipc.supervisor_protocol import Event, Recovered, SpawnRequest
from rlm_ipc.worker_requests import Peek
from rlm_kernel.supervisor_client import SupervisorClient

pytestmark = pytest.mark.anyio


async def replaced(supervisor, kernel_id, old_pid):
    """Wait until another process serves the kernel; returns its description."""
    return await until(lambda: supervisor.kernel_info(kernel_id), lambda told: told.pid not in {old_pid, None})


async def test_an_outside_kill_between_cells_loses_nothing_under_strict(supervisor, spawn, policy) -> None:
    """The copy taken before the last reply takes over, behind the same sockets. Context variables are part of it."""
    kernel = await spawn(policy(checkpoint="strict"))
    code = "import decimal\nkept = [1, 2, 3]\ndecimal.getcontext().prec = 5"
    await supervisor.execute(kernel.kernel_id, code).result()
    os.kill(kernel.pid, signal.SIGKILL)
    info = await replaced(supervisor, kernel.kernel_id, kernel.pid)
    assert info.connection == kernel.connection
    result = await supervisor.execute(kernel.kernel_id, "kept, decimal.getcontext().prec").result()
    assert result.result == "([1, 2, 3], 5)"


async def test_a_crash_in_a_cell_is_an_error_that_names_the_cause(supervisor, spawn, policy) -> None:
    """The cell that killed its process gets the signal's name, and the session goes on as before it."""
    kernel = await spawn(policy("trusted", checkpoint="strict"))
    await supervisor.execute(kernel.kernel_id, "kept = 1").result()
    for signal_name in ("SIGSEGV", "SIGABRT"):
        code = f"kept = 2\nprint('last words')\nimport os, signal\nos.kill(os.getpid(), signal.{signal_name})"
        result = await supervisor.execute(kernel.kernel_id, code).result()
        assert result.stdout == "last words\n"
        assert result.error.ename == "KernelRolledBack"
        assert signal_name in result.error.evalue
        assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "1"


async def test_a_crash_in_the_first_cell_loses_nothing(supervisor, spawn, policy, load) -> None:
    """A fresh process is what the session was: no copy is needed for that, and the contexts are there again."""
    kernel = await spawn(policy("trusted", checkpoint="lazy"))
    await load(kernel, "alpha\n", path="x.log")
    result = await supervisor.execute(kernel.kernel_id, "import os; os.abort()").result()
    assert "SIGABRT" in result.error.evalue
    assert "as they were before this cell" in result.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "log['content']").result()).result == "'alpha\\n'"


async def test_without_copies_a_crash_says_that_variables_are_lost(supervisor, spawn, policy) -> None:
    """checkpoint: off restarts the kernel, says what is gone, and contexts are there again."""
    kernel = await spawn(policy("trusted", checkpoint="off"))
    await supervisor.execute(kernel.kernel_id, "gone = 1").result()
    result = await supervisor.execute(kernel.kernel_id, "import os; os._exit(3)").result()
    assert "exited with 3" in result.error.evalue
    assert "variables are lost" in result.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "gone").result()).error.ename == "NameError"


async def test_a_kill_while_idle_without_a_copy_is_told_to_the_next_cell(supervisor, spawn, policy) -> None:
    """Nobody computes on lost variables without being told: the next cell is refused once, with the loss."""
    kernel = await spawn(policy(checkpoint="off"))
    await supervisor.execute(kernel.kernel_id, "gone = 1").result()
    os.kill(kernel.pid, signal.SIGKILL)
    await replaced(supervisor, kernel.kernel_id, kernel.pid)
    told = await supervisor.execute(kernel.kernel_id, "gone = 2").result()
    assert told.error.ename == "KernelRolledBack"
    assert "variables are lost" in told.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "1 + 1").result()).result == "2"


@pytest.mark.parametrize("mode", ["lazy", "strict"])
async def test_copies_that_were_killed_are_made_up_for(supervisor, spawn, policy, gone, mode) -> None:
    """The system ends copies first when memory runs out. The session's own process may be next, and loses nothing."""
    kernel = await spawn(policy(checkpoint=mode, rollback_cells=2))
    told = partial(supervisor.kernel_info, kernel.kernel_id)
    for number in range(3):
        assert (await supervisor.execute(kernel.kernel_id, f"n = {number}").result()).error is None
    await until(told, lambda info: info.undoable == (1, 2) and not info.uncopied and info.checkpoint)
    killed = copies_of(kernel.pid)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
        await gone(pid)
    await until(told, lambda info: info.undoable == ())
    await until(lambda: copies_of(kernel.pid) - killed)
    await until(told, lambda info: info.checkpoint)
    os.kill(kernel.pid, signal.SIGKILL)
    await replaced(supervisor, kernel.kernel_id, kernel.pid)
    assert (await supervisor.execute(kernel.kernel_id, "n").result()).result == "2"


async def test_whoever_watches_a_session_hears_that_another_process_serves_it(supervisor, spawn, policy) -> None:
    """What the daemon has told the old one, such as what is left of a budget, it tells again."""
    kernel = await spawn(policy("trusted", checkpoint="strict"))
    events: asyncio.Queue[Event] = asyncio.Queue()
    supervisor.on_event(lambda name, event: events.put_nowait(event) if name == kernel.kernel_id else None)
    await supervisor.execute(kernel.kernel_id, "import os; os.abort()").result()
    async with asyncio.timeout(60):
        while not isinstance(await events.get(), Recovered):
            pass


async def test_contexts_come_back_with_a_new_process(supervisor, spawn, policy, load) -> None:
    """A loaded context is the supervisor's to give again: a crash never loses it."""
    kernel = await spawn(policy("trusted", checkpoint="off"))
    await load(kernel, "alpha\nbeta\n", path="x.log")
    await supervisor.execute(kernel.kernel_id, "import os; os._exit(1)").result()
    result = await supervisor.execute(kernel.kernel_id, "log['line_count'], log['lines'][1], log['type']").result()
    assert result.result == "(2, 'beta', 'log')"


async def test_query_ids_are_not_reused_by_the_process_that_takes_over(supervisor, spawn, policy) -> None:
    """K-22: ids are unique for the life of the session, also across a crash."""
    kernel = await spawn(policy("trusted", checkpoint="off"))
    first = await supervisor.execute(kernel.kernel_id, "a = llm_query('one')").result()
    await supervisor.execute(kernel.kernel_id, "import os; os._exit(1)").result()
    second = await supervisor.execute(kernel.kernel_id, "b = llm_query('two')").result()
    assert first.queries + second.queries == ("q_000", "q_001")


async def test_a_restart_keeps_contexts_and_clears_variables(supervisor, spawn, load) -> None:
    """Restarting is explicit, and complete."""
    kernel = await spawn()
    await load(kernel, "alpha\n")
    await supervisor.execute(kernel.kernel_id, "mine = 1").result()
    await supervisor.restart(kernel.kernel_id)
    assert (await supervisor.execute(kernel.kernel_id, "log['content']").result()).result == "'alpha\\n'"
    assert (await supervisor.execute(kernel.kernel_id, "mine").result()).error.ename == "NameError"


async def test_a_restart_ends_what_a_crash_before_it_had_left_to_tell(supervisor, spawn, policy) -> None:
    """Whoever restarts a session misses nothing of it: no cell is refused for what was lost before."""
    kernel = await spawn(policy(checkpoint="off"))
    assert (await supervisor.execute(kernel.kernel_id, "x = 1").result()).error is None
    os.kill(kernel.pid, signal.SIGKILL)
    await replaced(supervisor, kernel.kernel_id, kernel.pid)
    await supervisor.restart(kernel.kernel_id)
    assert (await supervisor.execute(kernel.kernel_id, "'x' in dir()").result()).result == "False"


async def test_a_kernel_that_dies_of_being_copied_fails_the_cell_that_waited_for_the_copy(
    supervisor, spawn, policy
) -> None:
    """That cell has not begun: it is told what was lost before it."""
    kernel = await spawn(policy("trusted", checkpoint="lazy"))
    deadly = "import os; os.register_at_fork(before=lambda: os._exit(3))"
    cells = [supervisor.execute(kernel.kernel_id, code) for code in ("kept = 1", deadly, "kept = 2")]
    *ran, waited = [await cell.result() for cell in cells]
    assert [result.error for result in ran] == [None, None]
    assert waited.loss == Loss(Lost.CELLS, 1)
    assert "exited with 3" in waited.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "1"


async def test_a_killed_zygote_is_replaced_and_sessions_go_on(own_supervisor, policy, tmp_path: Path) -> None:
    """The zygote is only needed to start kernels, and is started again when it is."""
    kernel = await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), policy())
    zygote = zygote_of(own_supervisor.pid)
    assert zygote is not None
    assert zygote.pid != kernel.pid
    zygote.kill()
    assert (await own_supervisor.execute("k1", "1 + 1").result()).result == "2"
    await own_supervisor.spawn(SpawnRequest("k2", str(tmp_path)), policy())
    assert (await own_supervisor.execute("k2", "2 + 2").result()).result == "4"


async def test_a_supervisor_that_dies_with_its_keeper_takes_its_kernels_along(
    own_supervisor, policy, gone, tmp_path: Path
) -> None:
    """Waiting calls get an error at once; no kernel process stays behind; the next supervisor starts clean."""
    kernel = await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), policy())
    execution = own_supervisor.execute("k1", "import time; time.sleep(60)")
    kill_with_keeper(own_supervisor.pid)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(SupervisorGone, match="variables are lost"):
            await execution.result()
    await gone(kernel.pid)
    again = await SupervisorClient.connect()
    assert await again.kernels() == []
    with pytest.raises(UnknownKernel):
        await again.execute("k1", "1").result()
    os.kill(again.pid, signal.SIGTERM)
    await again.wait_gone()
    again.close()


async def test_an_ended_kernel_leaves_no_process_socket_or_copy(supervisor, spawn, gone) -> None:
    """Shutting down removes everything of a session but its scratch folder."""
    kernel = await spawn()
    await supervisor.execute(kernel.kernel_id, "x = 1").result()
    await supervisor.shutdown(kernel.kernel_id)
    await gone(kernel.pid)
    folder = Path(kernel.connection["ip"]).parent
    assert not [path for path in folder.iterdir() if path.name.startswith(kernel.kernel_id)]
    with pytest.raises(UnknownKernel):
        await supervisor.kernel_info(kernel.kernel_id)


async def test_an_orphan_of_a_kernel_is_reaped(real_starts, own_supervisor, policy, tmp_path: Path) -> None:
    """A program whose starter has ended becomes a child of the supervisor, which asks for no signal at its end."""
    made = policy(checkpoint="off", processes=4)
    walls = replace(made.walls, require=(), private=False)
    made = replace(made, language=replace(made.language, wall="off"), walls=walls)
    await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), made)
    code = """
        import os
        reading, writing = os.pipe()
        end, held = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.close(held)
                os.write(writing, str(os.getpid()).encode())
                os.read(end, 1)
            os._exit(0)
        os.wait()
        pid = int(os.read(reading, 20))
        os.close(held)
        pid
    """
    result = await own_supervisor.execute("k1", textwrap.dedent(code)).result()
    assert result.result is not None, result
    await until(lambda: not psutil.pid_exists(int(result.result)))


async def test_two_kernels_cannot_have_one_id(supervisor, spawn, kernel, policy, tmp_path: Path) -> None:
    """A second spawn with a known id is refused, and the first kernel is not touched."""
    with pytest.raises(CallerError, match="already"):
        await supervisor.spawn(SpawnRequest(kernel.kernel_id, str(tmp_path)), policy())
    assert (await supervisor.execute(kernel.kernel_id, "1").result()).result == "1"


async def test_a_session_left_alone_shares_its_memory_and_still_hears(supervisor, spawn) -> None:
    """It keeps next to nothing for itself beside its copy; a cell, an interrupt and a kill find it as ever."""
    kernels = [await spawn() for _ in range(2)]
    for kernel in kernels:
        assert (await supervisor.execute(kernel.kernel_id, "kept = [object()]; kept.append(5)").result()).error is None
    for kernel in kernels:
        await shares_its_memory(kernel.pid)
    os.kill(kernels[0].pid, signal.SIGINT)
    os.kill(kernels[1].pid, signal.SIGTERM)
    await replaced(supervisor, kernels[1].kernel_id, kernels[1].pid)
    for kernel in kernels:
        assert (await supervisor.execute(kernel.kernel_id, "kept[1]").result()).result == "5"


async def shares_its_memory(pid: int) -> None:
    """Wait until a process has had next to no memory for itself for a second."""
    seen = [500_000] * 100

    def look() -> list[int]:
        seen.append(psutil.Process(pid).memory_full_info().uss)
        return seen[-100:]

    await until(look, lambda bytes_: max(bytes_) < 500_000)


async def test_what_ended_a_cell_is_told_by_fields_that_no_code_can_write(supervisor, spawn, policy) -> None:
    """K-20: an error of code is its own whatever its name; a death says what was lost."""
    kernel = await spawn(policy("trusted", checkpoint="strict"))
    forged = "class KernelRolledBack(Exception): pass\nraise KernelRolledBack('x; its variables are lost')"
    result = await supervisor.execute(kernel.kernel_id, forged).result()
    assert (result.error.ename, result.ended, result.reason, result.loss) == (
        "KernelRolledBack",
        Ended.BY_ITSELF,
        "",
        None,
    )
    result = await supervisor.execute(kernel.kernel_id, "import os; os.abort()").result()
    assert (result.ended, result.loss) == (Ended.WORKER_DIED, Loss(Lost.NOTHING, in_cell=True))
    assert "SIGABRT" in result.reason


async def test_a_death_in_words_of_the_process_itself_is_not_believed(supervisor, spawn, policy) -> None:
    """K-20: code without a language wall raises our own class where a request runs it; that is a failed request."""
    kernel = await spawn(policy("trusted"))
    code = (
        "from rlm_ipc.errors import KernelDied\nfrom rlm_ipc.outcomes import Loss, Lost\n"
        "class Odd:\n    def __repr__(self): raise KernelDied('gone', Loss(Lost.EVERYTHING))\nodd = Odd()"
    )
    assert (await supervisor.execute(kernel.kernel_id, code).result()).status == "ok"
    with pytest.raises(KernelError, match="gone") as caught:
        await supervisor.ask(kernel.kernel_id, Peek("odd", 0, 1, 100, every=False))
    assert type(caught.value) is KernelError
    assert (await supervisor.execute(kernel.kernel_id, "type(odd).__name__").result()).result == "'Odd'"
