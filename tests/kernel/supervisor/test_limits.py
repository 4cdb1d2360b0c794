"""Limits that hold whatever the code does, because they are kept from outside."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from anyio.lowlevel import checkpoint
from waiting import SECONDS, until

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.outcomes import Ended, Loss, Lost

pytestmark = pytest.mark.anyio

BUSY = 15.0
"""What a busy machine may add to the limit and its grace of 2 s; the bench measures the real figure."""


async def timed(supervisor, kernel, code):
    """Run a cell and measure it from outside."""
    began = time.monotonic()
    async with asyncio.timeout(60):
        result = await supervisor.execute(kernel.kernel_id, code).result()
    return result, time.monotonic() - began


OPENS_ALL = """
held = []
try:
    while True: held.append(open('{folder}/file', 'w'))
except OSError as error: why = error.errno
why"""
STUBBORN = {
    "loop": "while True: pass",
    "swallows KeyboardInterrupt": "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass",
    "swallows everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "sits in a C call": "sum(range(10**13))",
    "sleeps": "import time\ntime.sleep(100)",
    "backtracks": "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
    "awaits": "import asyncio\nawait asyncio.sleep(100)",
}


@pytest.mark.parametrize("code", STUBBORN.values(), ids=STUBBORN.keys())
async def test_a_cell_ends_at_its_limit_and_variables_survive(supervisor, spawn, policy, code) -> None:
    """K-18: whatever the cell does, it ends within the limit plus 2 s, says so, and the session goes on."""
    kernel = await spawn(policy(cell_seconds=1.0, checkpoint="strict"))
    await supervisor.execute(kernel.kernel_id, "kept = 'before'").result()
    result, seconds = await timed(supervisor, kernel, code)
    assert result.status == "error"
    assert result.error.ename == "CellTimeout"
    assert "limit of 1 s" in result.error.evalue
    assert seconds < 1.0 + 2.0 + BUSY
    after = await supervisor.execute(kernel.kernel_id, "kept").result()
    assert after.result == "'before'"


async def test_a_lazy_copy_saves_variables_of_earlier_cells(supervisor, spawn, policy) -> None:
    """With lazy checkpoints, what was there when the session was last idle comes back after a kill."""
    kernel = await spawn(policy(cell_seconds=1.0, checkpoint="lazy"))
    await supervisor.execute(kernel.kernel_id, "kept = 1").result()
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.checkpoint)
    result, _ = await timed(supervisor, kernel, STUBBORN["swallows everything"])
    assert result.error.ename == "CellTimeout"
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "1"


async def test_text_printed_before_a_timeout_arrives(supervisor, spawn, policy) -> None:
    """The output of a cell that was killed is not lost."""
    kernel = await spawn(policy(cell_seconds=1.0))
    result, _ = await timed(supervisor, kernel, "print('so far')\n" + STUBBORN["swallows everything"])
    assert result.stdout == "so far\n"


async def test_output_is_cut_at_its_cap_and_kept_whole(supervisor, kernel, run) -> None:
    """K-19: 1 MB of output arrives, the cut is marked, and the whole is in a file."""
    result = await run("for i in range(20000): print('x' * 99)")
    assert result.truncated
    assert result.stdout.rstrip().endswith("limit of 1,048,576 bytes for one cell is reached]")
    assert len(result.stdout) < 1_048_576 + 200
    spool = Path(result.spool)
    assert spool.stat().st_size == result.output_bytes == 2_000_000
    assert result.spool_complete
    spool.unlink()


@pytest.mark.parametrize("cap", [1000, 1001])
async def test_output_is_cut_between_two_characters(supervisor, spawn, policy, cap) -> None:
    """K-19: a cap that falls into a character leaves it out, and no half of it."""
    kernel = await spawn(policy(output_bytes=cap))
    result = await supervisor.execute(kernel.kernel_id, "print('é' * 5000)").result()
    assert result.stdout.startswith("é" * 500 + "\n[output cut")
    Path(result.spool).unlink()


async def test_an_output_beyond_what_a_session_may_hold_is_not_called_whole(supervisor, spawn, policy) -> None:
    """K-19: the file ends at the session's bound for texts, and the result says that it is a part."""
    kernel = await spawn(policy(output_bytes=1000, content_bytes=4096))
    for size, whole in ((4096, True), (4097, False)):
        result = await supervisor.execute(kernel.kernel_id, f"print('x' * {size}, end='')").result()
        assert (result.output_bytes, Path(result.spool).stat().st_size) == (size, 4096)
        assert result.spool_complete is whole
        Path(result.spool).unlink()


async def test_output_of_exactly_the_cap_is_not_cut(supervisor, spawn, policy) -> None:
    """The cap is what may arrive, not one byte less."""
    kernel = await spawn(policy(output_bytes=1000))
    result = await supervisor.execute(kernel.kernel_id, "print('x' * 999)").result()
    assert (result.truncated, result.spool, len(result.stdout)) == (False, None, 1000)


async def test_memory_without_end_fails_and_the_session_goes_on(supervisor, spawn, policy) -> None:
    """K-20: an allocation over the limit fails in the cell; variables and session stay."""
    kernel = await spawn(policy(memory_bytes=200 << 20, checkpoint="strict"))
    await supervisor.execute(kernel.kernel_id, "kept = 'yes'").result()
    for code in ("big = bytearray(1 << 30)", "hog = []\nwhile True: hog.append(bytes(1 << 20))"):
        result, _ = await timed(supervisor, kernel, code)
        assert result.status == "error"
        assert result.error.ename in {"MemoryError", "MemoryLimit"}
    told = (await supervisor.execute(kernel.kernel_id, "big = bytearray(1 << 30)").result()).error.traceback[-1]
    assert told.startswith("MemoryError: The session may hold 200 MiB (limits.memory_bytes of its policy): `del` ")
    await supervisor.execute(kernel.kernel_id, "hog = None").result()
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "'yes'"


async def test_a_session_whose_memory_is_full_can_be_emptied(supervisor, spawn, policy) -> None:
    """K-20: what our own work needs is kept back from code, so no cell dies, least of all one that deletes."""
    kernel = await spawn(policy(memory_bytes=64 << 20))
    for code, ends in (
        ("hog = []\nwhile True: hog.append([])", "MemoryError"),
        ("'z' * 2_000_000", "MemoryError"),
        ("display('z' * 2_000_000)", "MemoryError"),
        ("1/0", "ZeroDivisionError"),
        ("del hog", None),
        ("len('z' * 2_000_000)", None),
    ):
        result = await supervisor.execute(kernel.kernel_id, code).result()
        assert (result.error and result.error.ename) == ends, (code, result.error)


async def test_deleting_a_value_that_was_shown_makes_room(supervisor, spawn, policy) -> None:
    """`_` and `Out` hold what a cell ended in: with them, the `del` that the error asks for would free nothing."""
    kernel = await spawn(policy(memory_bytes=100 << 20))
    for code, ends in (
        ("class Big: pass\nbig = Big()\nbig.data = bytearray(60 << 20)\nbig", None),
        ("more = bytearray(60 << 20)", "MemoryError"),
        ("'_' in dir(), '_1' in dir(), Out", None),
        ("del big", None),
        ("more = bytearray(60 << 20)", None),
    ):
        result = await supervisor.execute(kernel.kernel_id, code).result()
        assert (result.error and result.error.ename) == ends, (code, result.error)


async def test_an_interrupt_ends_the_cell_only(supervisor, kernel) -> None:
    """A cancelled cell ends with an error of its own; what it had done stays."""
    await supervisor.execute(kernel.kernel_id, "import time; steps = []").result()
    execution = supervisor.execute(kernel.kernel_id, "for step in range(1000): steps.append(step); time.sleep(0.05)")
    async with asyncio.timeout(SECONDS):
        await until(lambda: supervisor.interrupt(kernel.kernel_id))
        result = await execution.result()
    assert result.error.ename == "CellInterrupted"
    assert (await supervisor.execute(kernel.kernel_id, "len(steps) < 1000").result()).result == "True"


AWAITING = {
    "sleeps": "await asyncio.sleep(100)",
    "waits for what never comes": "await asyncio.Event().wait()",
    "waits for another task": "await asyncio.gather(asyncio.sleep(100), asyncio.Event().wait())",
    "computes": "while True: pass",
}


@pytest.mark.parametrize("code", AWAITING.values(), ids=AWAITING.keys())
async def test_an_interrupt_ends_a_cell_that_awaits_and_what_it_did_stays(supervisor, kernel, code) -> None:
    """Its event loop sleeps, and was not woken: after a second the process was killed, with all that the cell did."""
    ready = f"import asyncio\nawait asyncio.sleep(0)\ndone = ['before']\ntry:\n    print('ready')\n    {code}"
    execution = supervisor.execute(kernel.kernel_id, f"{ready}\nfinally: done.append('after')")
    async with asyncio.timeout(SECONDS):
        await until(execution.output_so_far, lambda so_far: so_far[0] == "ready\n")
        await execution.interrupt()
        result = await execution.result()
    assert result.error.ename == "CellInterrupted"
    assert (await supervisor.execute(kernel.kernel_id, "done").result()).result == "['before', 'after']"


@contextmanager
def held(pid: int) -> Iterator[None]:
    """Keep a process from doing anything meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_an_interrupt_before_the_first_line_ends_the_cell(supervisor, kernel) -> None:
    """The kernel has been sent the cell, but has not yet begun it: an interrupt waits until it hears of it."""
    with held(kernel.pid):
        execution = supervisor.execute(kernel.kernel_id, "while True: pass")
        await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.state == "busy")
        await supervisor.call(protocol.INTERRUPT, protocol.Interrupt(kernel.kernel_id))
    async with asyncio.timeout(SECONDS):
        assert (await execution.result()).error.ename == "KeyboardInterrupt"
    assert (await supervisor.execute(kernel.kernel_id, "1 + 1").result()).result == "2"


async def test_an_interrupt_of_a_cell_that_waits_for_its_turn_is_kept_for_it(supervisor, kernel) -> None:
    """The kernel is busy with something that is no cell; then nothing of the cell runs, but the next one does."""
    with held(kernel.pid):
        before = supervisor.start_call(protocol.ASK, protocol.AskWorker(kernel.kernel_id, {"op": "variables"}))
        execution = supervisor.execute(kernel.kernel_id, "began = True")
        behind = supervisor.execute(kernel.kernel_id, "'began' in dir()")
        await supervisor.call(protocol.INTERRUPT, protocol.Interrupt(kernel.kernel_id))
    async with asyncio.timeout(SECONDS):
        await before
        assert (await execution.result()).error.ename == "KeyboardInterrupt"
        assert (await behind.result()).result == "False"


async def test_the_output_so_far_can_be_read_while_the_cell_runs(supervisor, kernel) -> None:
    """Progress is visible before the cell ends."""
    execution = supervisor.execute(kernel.kernel_id, "import time\nprint('working')\ntime.sleep(50)")
    await until(execution.output_so_far, lambda told: told[0] == "working\n")
    await execution.interrupt()
    assert (await execution.result()).stdout == "working\n"


async def test_many_small_files_are_stopped_at_the_scratch_limit(supervisor, spawn, policy) -> None:
    """No single file is over its limit, but all of them together are: the cell ends, the session goes on."""
    kernel = await spawn(policy(scratch_bytes=1 << 20, cell_seconds=20.0))
    write = f"open({kernel.scratch!r} + f'/{{n}}', 'w').write('x')"
    code = f"import time\nn = 0\nwhile True:\n    n += 1\n    {write}\n    time.sleep(0.002)"
    result, _ = await timed(supervisor, kernel, code)
    assert result.error.ename == "ScratchLimit"
    unrelated = await supervisor.execute(kernel.kernel_id, "import time\ntime.sleep(5)\nn > 0").result()
    assert unrelated.result == "True"


async def test_a_cell_that_waits_can_be_stopped_before_it_begins(supervisor, kernel, told) -> None:
    """Stopping one cell of the queue leaves the one that runs and those behind it alone."""
    running = supervisor.execute(kernel.kernel_id, told.wait)
    waiting = supervisor.execute(kernel.kernel_id, "began = True")
    behind = supervisor.execute(kernel.kernel_id, "'began' in dir()")
    await waiting.interrupt()
    told.give()
    assert (await waiting.result()).error.ename == "CellInterrupted"
    assert (await running.result()).status == "ok"
    assert (await behind.result()).result == "False"


async def test_a_cell_that_is_stopped_at_once_ends_at_once(supervisor, spawn, policy) -> None:
    """Also in the moment between its turn and its beginning, when a copy of the kernel is taken."""
    kernel = await spawn(policy(cell_seconds=30.0))
    for _ in range(5):
        await supervisor.execute(kernel.kernel_id, "kept = 1").result()
        execution = supervisor.execute(kernel.kernel_id, "while True: pass")
        async with asyncio.timeout(SECONDS):
            await execution.interrupt()
            assert (await execution.result()).error.ename == "CellInterrupted"
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "1"


@pytest.mark.parametrize("name", ["default", "trusted"])
@pytest.mark.parametrize("mode", ["lazy", "strict"])
async def test_code_that_opens_all_the_files_it_may_loses_nothing(supervisor, spawn, policy, mode, name) -> None:
    """Checkpoints, recoveries and loaded texts have descriptors of their own, so only the code gets an OSError."""
    kernel = await spawn(policy(name, checkpoint=mode))
    opened = await supervisor.execute(kernel.kernel_id, OPENS_ALL.format(folder=kernel.scratch)).result()
    assert (opened.error, opened.result) == (None, str(errno.EMFILE))
    for number in range(3):
        ran = await supervisor.execute(kernel.kernel_id, f"n = {number}").result()
        assert (ran.error, ran.uncopied) == (None, None)
    copied = (await supervisor.kernel_info(kernel.kernel_id)).pid
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: 1 in told.undoable)
    execution = supervisor.execute(kernel.kernel_id, "while True: pass")
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.state == "busy")
    os.kill(copied, signal.SIGKILL)
    assert (await execution.result()).loss == Loss(Lost.NOTHING, 0, in_cell=True)
    assert (await supervisor.execute(kernel.kernel_id, "n, len(held) > 200").result()).result == "(2, True)"
    assert (await supervisor.kernel_info(kernel.kernel_id)).pid != copied


async def test_a_finaliser_that_is_stopped_at_the_limit_is_no_success(supervisor, spawn, policy) -> None:
    """Python drops the interrupt that is raised in it, so the cell itself ends well; its caller hears of the limit."""
    kernel = await spawn(policy(cell_seconds=1.0))
    code = "class Loops:\n    def __del__(self):\n        while True: pass\nheld = Loops()\nheld = None\nkept = 1"
    result = await supervisor.execute(kernel.kernel_id, code).result()
    assert (result.status, result.ended, result.error.ename) == ("error", Ended.TIME_LIMIT, "CellTimeout")
    assert "was stopped at its limit of 1 s" in result.error.evalue
    assert (await supervisor.execute(kernel.kernel_id, "kept").result()).result == "1"


@pytest.mark.parametrize("name", ["one", "two", "three", "four", "five", "six"])
async def test_calls_of_one_client_begin_in_their_order(supervisor, kernel, name) -> None:
    """Though they arrive at once, which they do in one try of three, and a cell begins without a task of its own."""
    with held(psutil.Process(kernel.pid).ppid()):
        before = supervisor.start_call(protocol.ASK, protocol.AskWorker(kernel.kernel_id, {"op": "variables"}))
        execution = supervisor.execute(kernel.kernel_id, f"{name} = True")
        behind = supervisor.start_call(protocol.ASK, protocol.AskWorker(kernel.kernel_id, {"op": "variables"}))
        for _ in range(3):  # turns of the event loop, in which the calls are written
            await checkpoint()
    async with asyncio.timeout(SECONDS):
        first, _, second = await before, await execution.result(), await behind
    assert name not in str(first)
    assert name in str(second)
