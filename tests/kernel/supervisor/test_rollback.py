"""Rollback: memory goes back to before the last cells, behind the same sockets, and nothing else does."""

import asyncio
import json
import os
import signal
import tempfile
from functools import partial
from pathlib import Path

import pytest
from jupyter_visits import visit
from session_processes import copies_of
from waiting import SECONDS, until

from rlm_ipc.errors import CallerError, KernelBusy
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.variable_images import of_json
from rlm_ipc.worker_requests import Restore
from rlm_sandbox.policy import MIB

pytestmark = pytest.mark.anyio


async def _restore_a_variable(supervisor, kernel: KernelInfo) -> None:
    with tempfile.TemporaryFile() as file:
        image = of_json({"f": "restored"})
        file.write(image)
        file.flush()
        await supervisor.ask(kernel.kernel_id, Restore((len(image),)), file=file.fileno())


async def test_the_last_cells_are_undone_behind_the_same_sockets(
    supervisor, spawn, value, policy, tmp_path: Path
) -> None:
    """Changes in place and new names go, files and the connection stay, an attached notebook goes on."""
    file = tmp_path / "connection.json"
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=3), connection_file=str(file))
    async with visit(json.loads(file.read_text())) as client:
        await value(kernel, "rows = [1]; other = 'kept'")
        write = f"with open({kernel.scratch + '/out.txt'!r}, 'w') as f: f.write('x')"
        await value(kernel, f"rows.append(2); other = 'changed'\n{write}")
        await client.execute_interactive("rows.append(3); mine = 1", timeout=SECONDS, output_hook=lambda _: None)
        done = await supervisor.rollback(kernel.kernel_id, 2)
        assert [code.split(";")[0] for code in done.undone] == ["rows.append(2)", "rows.append(3)"]
        assert (done.restored, done.gone) == (("other",), ("f", "mine"))
        reply = await client.execute_interactive("1", user_expressions={"r": "rows, other"}, timeout=SECONDS)
        assert reply["content"]["user_expressions"]["r"]["data"]["text/plain"] == "([1], 'kept')"
    assert await value(kernel, f"open({kernel.scratch + '/out.txt'!r}).read(), 'mine' in dir()") == "('x', False)"
    assert (await supervisor.kernel_info(kernel.kernel_id)).connection == kernel.connection


async def test_only_as_many_cells_as_the_policy_keeps_can_be_undone(supervisor, spawn, value, policy) -> None:
    """The refusal says how many can be, nothing changes, and a session holds only the copies that it may."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=2))
    for number in range(5):
        await value(kernel, f"n = {number}")
    assert (await supervisor.kernel_info(kernel.kernel_id)).undoable == (1, 2)
    with pytest.raises(CallerError, match=r"limits.rollback_cells.*1, 2 cell"):
        await supervisor.rollback(kernel.kernel_id, 3)
    with pytest.raises(CallerError, match="completed 5 cell"):
        await supervisor.rollback(kernel.kernel_id, 6)
    assert await value(kernel, "n") == "4"
    assert (await supervisor.rollback(kernel.kernel_id, 2)).possible == ()
    assert await value(kernel, "n") == "3"


async def test_rollbacks_follow_each_other_until_the_beginning(supervisor, spawn, value, policy, gone) -> None:
    """One cell at a time, down to a fresh kernel; then there is nothing left to undo. What is undone has ended."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=5))
    for number in range(3):
        await value(kernel, f"n = {number}")
    for number in (1, 0):
        undone = (await supervisor.kernel_info(kernel.kernel_id)).pid
        done = await supervisor.rollback(kernel.kernel_id, 1)
        await gone(undone)
        assert (done.undone, done.restored) == ((f"n = {number + 1}",), ("n",))
    done = await supervisor.rollback(kernel.kernel_id, 1)
    assert (done.undone, done.gone, done.possible) == (("n = 0",), ("n",), ())
    with pytest.raises(CallerError, match="completed 0 cell"):
        await supervisor.rollback(kernel.kernel_id, 1)
    assert await value(kernel, "'n' in dir()") == "False"


async def test_a_restart_begins_to_count_cells_anew(supervisor, spawn, value, policy) -> None:
    """What can be undone after it are the cells after it: status says how many, and rollback goes no further back."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=3))
    for number in range(2):
        await value(kernel, f"n = {number}")
    await supervisor.restart(kernel.kernel_id)
    info = await supervisor.kernel_info(kernel.kernel_id)
    assert (info.undoable, info.latest) == ((), ())
    with pytest.raises(CallerError, match="completed 0 cell"):
        await supervisor.rollback(kernel.kernel_id, 1)
    await value(kernel, "m = 1")
    info = await supervisor.kernel_info(kernel.kernel_id)
    assert (info.undoable, info.latest) == ((1,), ("m = 1",))
    with pytest.raises(CallerError, match="completed 1 cell"):
        await supervisor.rollback(kernel.kernel_id, 2)
    done = await supervisor.rollback(kernel.kernel_id, 1)
    assert (done.undone, done.restored, done.gone, done.possible) == (("m = 1",), (), ("m",), ())


async def test_cells_from_before_a_restart_are_not_undone_with_a_snapshot_restored_after_it(
    supervisor, spawn, value, policy, load
) -> None:
    """It counts as a cell that nobody wrote: a rollback must not take back the queries of cells long gone."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=3))
    await value(kernel, "asked = llm_query('why?')")
    await supervisor.restart(kernel.kernel_id)
    await load(kernel, "alpha\nbeta\n")
    await until(partial(supervisor.kernel_info, kernel.kernel_id), lambda info: info.checkpoint)  # one to go back to
    await _restore_a_variable(supervisor, kernel)
    info = await supervisor.kernel_info(kernel.kernel_id)
    assert (info.undoable, info.latest) == ((), ())
    assert [query.id for query in await supervisor.pending_queries(kernel.kernel_id)] == ["q_000"]


async def test_a_crash_after_a_rollback_loses_nothing_of_it(supervisor, spawn, value, policy) -> None:
    """The copy that took over is copied itself at once; cells go on being counted from there."""
    kernel = await spawn(policy("trusted", checkpoint="strict", rollback_cells=2))
    await value(kernel, "n = 1")
    await value(kernel, "n = 2")
    await supervisor.rollback(kernel.kernel_id, 1)
    crashed = await supervisor.execute(kernel.kernel_id, "import os; os._exit(1)").result()
    assert "as they were before this cell" in crashed.error.evalue
    assert await value(kernel, "n") == "1"
    assert (await supervisor.rollback(kernel.kernel_id, 1)).undone == ("n",)


async def _lost_with_its_newest_copy(supervisor, kernel: KernelInfo, value, gone) -> None:
    """Run two cells, and kill the process and its newest copy at once: it goes on from after the first cell."""
    await value(kernel, "n = next(iter([1]))")
    older = copies_of(kernel.pid)
    await value(kernel, "n = next(iter([2]))")
    newest = copies_of(kernel.pid) - older
    assert older
    assert newest
    os.kill(supervisor.pid, signal.SIGSTOP)  # so that it sees neither of them die before the other
    try:
        for pid in (*newest, kernel.pid):
            os.kill(pid, signal.SIGKILL)
            await gone(pid)
    finally:
        os.kill(supervisor.pid, signal.SIGCONT)


async def test_a_lost_newest_copy_is_made_up_for_by_an_older_one(supervisor, spawn, value, policy, gone) -> None:
    """The session goes back to the copy before, and says what that lost."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=2))
    await _lost_with_its_newest_copy(supervisor, kernel, value, gone)
    told = await supervisor.execute(kernel.kernel_id, "n").result()
    assert "1 completed cell(s) earlier" in told.error.evalue
    assert await value(kernel, "n") == "1"


async def test_a_cell_that_a_crash_lost_is_not_undone_with_what_came_after_it(
    supervisor, spawn, value, policy, gone
) -> None:
    """Its number is given again, to a restored snapshot: to undo that one is not to undo the lost cell."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=2))
    await _lost_with_its_newest_copy(supervisor, kernel, value, gone)
    # A snapshot that is handed in before the supervisor has seen the death is refused.
    await until(partial(supervisor.kernel_info, kernel.kernel_id), lambda info: info.lost)
    await _restore_a_variable(supervisor, kernel)
    assert (await supervisor.rollback(kernel.kernel_id, 1)).undone == ()
    assert await value(kernel, "n") == "1"


async def test_a_copy_that_dies_when_it_is_wanted_changes_nothing(supervisor, spawn, value, policy) -> None:
    """The rollback is refused; the process goes on as it is."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=2))
    await value(kernel, "n = next(iter([1]))")
    (older,) = copies_of(kernel.pid)
    await value(kernel, "n = next(iter([2]))")
    os.kill(older, signal.SIGSTOP)  # so that the supervisor waits for it
    undoing = asyncio.create_task(supervisor.rollback(kernel.kernel_id, 1))
    await asyncio.sleep(0)
    await supervisor.kernel_info(kernel.kernel_id)  # asked after it, and answered at once
    os.kill(older, signal.SIGKILL)
    with pytest.raises(CallerError, match="the copy from before these cells has ended"):
        await undoing
    assert (await supervisor.kernel_info(kernel.kernel_id)).pid == kernel.pid
    assert await value(kernel, "n") == "2"


async def test_the_time_that_a_rollback_may_take_is_over_with_it(supervisor, spawn, value, policy) -> None:
    """It asks the kernel, which may take as long as a cell; a cell that runs when that has passed is not stopped."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=1, cell_seconds=2.0))
    await value(kernel, "n = 1")
    await supervisor.rollback(kernel.kernel_id, 1)
    passed = asyncio.get_running_loop().time() + 2.5
    while asyncio.get_running_loop().time() < passed:
        assert await value(kernel, "sum(k % 2 for k in range(200_000))") == "100000"


async def test_without_copies_the_refusal_says_so(supervisor, spawn, value, policy, told) -> None:
    """checkpoint: off cannot undo; a running cell is not undone but interrupted."""
    kernel = await spawn(policy(checkpoint="off"))
    await value(kernel, "n = 1")
    await value(kernel, "n = 2")
    with pytest.raises(CallerError, match="checkpoint: off"):
        await supervisor.rollback(kernel.kernel_id, 1)
    running = supervisor.execute(kernel.kernel_id, told.wait)
    with pytest.raises(KernelBusy, match="runs a cell"):
        await supervisor.rollback(kernel.kernel_id, 1)
    told.give()
    await running.result()
    assert await value(kernel, "n") == "2"


async def test_queries_and_texts_are_rows_and_not_undone(supervisor, spawn, value, policy, load) -> None:
    """A query of an undone cell is asked no more, its id is not used again; a text that it hid has its name again."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=2))
    await load(kernel, "alpha\nbeta\n")
    await value(kernel, "1")
    await value(kernel, "log = 5; asked = llm_query('why?')")
    assert (await supervisor.kernel_info(kernel.kernel_id)).shadowed == ("log",)
    done = await supervisor.rollback(kernel.kernel_id, 1)
    assert (done.queries, done.restored, done.gone) == (("q_000",), ("log",), ("asked",))
    assert (await supervisor.kernel_info(kernel.kernel_id)).shadowed == ()
    assert await supervisor.pending_queries(kernel.kernel_id) == []
    assert await value(kernel, "log['lines'][1]") == "'beta'"
    again = await supervisor.execute(kernel.kernel_id, "asked = llm_query('again?')").result()
    assert again.queries == ("q_001",)


async def test_a_name_that_hides_a_text_hides_it_again_after_a_rollback(supervisor, spawn, value, policy, load) -> None:
    """The supervisor learns from the copy that goes on what its names mean: status tells it."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=1))
    await load(kernel, "alpha\n")
    await value(kernel, "log = 5")
    await value(kernel, "del log")
    assert (await supervisor.kernel_info(kernel.kernel_id)).shadowed == ()
    await supervisor.rollback(kernel.kernel_id, 1)
    assert (await supervisor.kernel_info(kernel.kernel_id)).shadowed == ("log",)
    assert await value(kernel, "log") == "5"


async def test_a_text_that_was_loaded_anew_stays_so(supervisor, spawn, value, policy, load) -> None:
    """The copy that goes on has the older text under that name; it is given the newer one, and loses what is gone."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=1))
    await load(kernel, "older\n")
    await load(kernel, "text\n", "gone")
    await value(kernel, "1")
    await load(kernel, "newer\n")
    await supervisor.unbind(kernel.kernel_id, "gone")
    await value(kernel, "2")
    await supervisor.rollback(kernel.kernel_id, 1)
    assert await value(kernel, "log['lines'][0], 'gone' in dir()") == "('newer', False)"


async def test_copies_that_use_too_much_memory_are_given_up(supervisor, spawn, value, policy) -> None:
    """Every version of a large object counts that a copy keeps; what is left is one copy, and the fresh start."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=8, memory_bytes=150 * MIB))
    for number in range(6):
        await value(kernel, f"held = bytes([{number}]) * 50_000_000; None")
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.undoable == (1, 6))
    assert await value(kernel, "held[0]") == "5"
