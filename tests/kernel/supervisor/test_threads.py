"""Threads and checkpoints: those that stand still hinder none; where none can be taken, the answer says so."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from native_kernel import NATIVE
from session_processes import copies_of
from waiting import until

from rlm_ipc.kernel_reports import CellResult, KernelInfo
from rlm_ipc.outcomes import Loss, Lost, NoCopy, Uncopied
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_ipc.worker_requests import OtherThreads
from rlm_kernel.supervisor.processes import other_threads
from rlm_kernel.supervisor.processes.worker_link import ForkRefused
from rlm_kernel.worker.threads import Threads
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio

SPIN = """
import threading, time
go_on = True
def spin():
    while go_on: pass
threading.Thread(target=spin, daemon=True, name='spinner').start()
"""
POOL = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(3)
list(pool.map(len, 'abc'))"""
READ_CSV = """
import io, pandas
table = b'a,b\\n' + b'1,2\\n' * 100000
def read(): return len(pandas.read_csv(io.BytesIO(table), engine='pyarrow'))
read()"""
PARQUET = """
import io, pandas
frame = pandas.DataFrame({'a': range(100000), 'b': list('ab') * 50000})
def there_and_back():
    file = io.BytesIO()
    frame.to_parquet(file)
    file.seek(0)
    return len(pandas.read_parquet(file))
there_and_back()"""
OPENBLAS = """
import ctypes, glob, numpy, os
library, = glob.glob(os.path.dirname(numpy.__file__) + '.libs/*openblas*')
ctypes.CDLL(library).scipy_openblas_set_num_threads64_(4)
ones = numpy.ones((800, 800))
(ones @ ones)[0, 0]"""
IDLE = {
    "to_thread": (
        "default",
        "import asyncio\nawait asyncio.to_thread(len, 'a')",
        "await asyncio.to_thread(len, 'ab')",
        "2",
    ),
    "an open executor": ("default", POOL, "list(pool.map(len, ['a', 'bb']))", "[1, 2]"),
    "pyarrow": ("data", READ_CSV, "read()", "100000"),
    "parquet": ("data", PARQUET, "there_and_back()", "100000"),
    "OpenBLAS": ("native", OPENBLAS, "float((ones @ ones)[0, 0])", "800.0"),
}
"""What leaves threads that stand idle: the policy, the code, what uses them again, and what that gives."""
TIMER = """
import threading
timer = threading.Timer(3000, print)
timer.daemon = True
timer.start()"""
CONSUMER = """
import queue, threading
items = queue.Queue()
def run():
    while True: items.get()
threading.Thread(target=run, daemon=True, name='consumer').start()"""
SLEEPER = """
import time
from concurrent.futures import ThreadPoolExecutor
sleepers = ThreadPoolExecutor(1, 'sleeper')
task = sleepers.submit(time.sleep, 3000)"""
WAITING = {
    "a timer": (TIMER, "Thread-1"),
    "a consumer": (CONSUMER, "consumer"),
    "a task that sleeps": (SLEEPER, "sleeper_0"),
}

Kill = Callable[[KernelInfo], Awaitable[None]]
Cell = Callable[[KernelInfo, str], Awaitable[CellResult]]


@pytest.fixture
def cell(supervisor) -> Cell:
    """Run a cell of a kernel to its end."""

    async def ran(kernel: KernelInfo, code: str) -> CellResult:
        return await supervisor.execute(kernel.kernel_id, code).result()

    return ran


@pytest.fixture
def kill(supervisor) -> Kill:
    """End a kernel's process, and wait for the one that takes over."""

    async def killed(kernel: KernelInfo) -> None:
        pid = (await supervisor.kernel_info(kernel.kernel_id)).pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.pid not in (pid, None))

    return killed


def _threads(pid: int | None) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("what", IDLE)
async def test_idle_threads_hinder_no_checkpoint_and_work_again(supervisor, spawn, policy, cell, kill, what) -> None:
    """Nothing is lost and nothing has to be told: pools start their threads anew in the process that takes over."""
    name, code, again, value = IDLE[what]
    if name == "data" and find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    chosen = policy("default" if name == "native" else name, checkpoint="strict")
    kernel = await spawn(replace(chosen, **NATIVE) if name == "native" else chosen)
    made = await cell(kernel, f"kept = 1\n{code}")
    assert (made.error, made.uncopied) == (None, None)
    assert what == "OpenBLAS" or _threads(kernel.pid) > 1  # it ends its threads itself when it is forked
    assert (await cell(kernel, "kept += 1")).uncopied is None
    await kill(kernel)
    assert (await cell(kernel, "kept")).result == "2"
    assert (await cell(kernel, again)).result == value


@pytest.mark.parametrize("what", WAITING)
async def test_a_recovery_names_the_threads_that_waited(supervisor, spawn, policy, cell, kill, what) -> None:
    """Their work is not done any more, so the next cell is told once; variables are all there."""
    code, name = WAITING[what]
    kernel = await spawn(policy(checkpoint="strict"))
    await cell(kernel, f"kept = 1\n{code}")
    # On a busy machine the thread may not have got as far as to wait when its cell ends.
    await until(partial(cell, kernel, "kept"), lambda told: told.uncopied is None)
    await kill(kernel)
    told = await cell(kernel, "kept")
    assert told.loss == Loss(Lost.NOTHING, 0, in_cell=False, threads=(name,))
    assert f"1 thread did not come back: {name}" in told.error.evalue
    assert (await cell(kernel, "kept")).result == "1"
    await kill(kernel)
    assert (await cell(kernel, "kept")).result == "1"  # it was told already


@pytest.mark.parametrize("mode", ["lazy", "strict"])
async def test_while_a_thread_runs_each_answer_says_what_no_checkpoint_holds(
    supervisor, spawn, policy, cell, kill, mode
) -> None:
    """And the loss after a crash names the reason. When the thread has ended, everything is copied again."""
    kernel = await spawn(policy(checkpoint=mode))
    await cell(kernel, "kept = 1")
    await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda told: told.checkpoint)
    uncopied = (await cell(kernel, f"kept = 2{SPIN}")).uncopied
    assert uncopied == Uncopied(1, NoCopy.THREAD_RUNS, "spinner")
    assert (await cell(kernel, "kept = 3")).uncopied == Uncopied(2, NoCopy.THREAD_RUNS, "spinner")
    assert (await supervisor.kernel_info(kernel.kernel_id)).uncopied == Uncopied(2, NoCopy.THREAD_RUNS, "spinner")
    await kill(kernel)
    told = await cell(kernel, "kept")
    assert (told.loss.what, told.loss.cells) == (Lost.CELLS, 2)
    assert "no checkpoint could be taken: a thread of the session is running (spinner)" in told.error.evalue
    assert (await cell(kernel, "kept")).result == "1"
    await cell(kernel, SPIN)
    pid = (await supervisor.kernel_info(kernel.kernel_id)).pid
    before = copies_of(pid)
    await cell(kernel, "kept = 4\ngo_on = False")
    await until(lambda: copies_of(pid) - before)
    await supervisor.variables(kernel.kernel_id)  # its turn comes when the supervisor knows the copy
    await kill(kernel)
    assert (await cell(kernel, "kept")).result == "4"


async def test_a_forked_session_has_its_idle_pools_and_hears_of_the_other_threads(
    supervisor, spawn, cell, tmp_path: Path
) -> None:
    """Its code can go on to use the pool; the parent's goes on too."""
    kernel = await spawn()
    _, code, again, value = IDLE["an open executor"]
    await cell(kernel, f"{code}\n{CONSUMER}")
    forked = await supervisor.fork(kernel.kernel_id, SpawnRequest("forked", str(tmp_path)), load_policy("default"))
    assert forked.origin.threads == ("consumer",)
    for each in (forked.kernel, kernel):
        assert (await cell(each, again)).result == value
        await supervisor.shutdown(each.kernel_id)


async def test_five_quick_cells_before_a_long_one_are_not_lost(supervisor, spawn, policy, told) -> None:
    """Under ``lazy`` a copy that is overdue is taken before the next cell begins: at most the cell before is lost."""
    kernel = await spawn(policy(checkpoint="lazy"))
    for number in range(5):
        await supervisor.execute(kernel.kernel_id, f"n = {number}").result()
    execution = supervisor.execute(kernel.kernel_id, told.wait)
    info = await until(lambda: supervisor.kernel_info(kernel.kernel_id), lambda info: info.state == "busy")
    os.kill(info.pid, signal.SIGKILL)
    assert (await execution.result()).loss == Loss(Lost.NOTHING, 0, in_cell=True)
    assert (await supervisor.execute(kernel.kernel_id, "n").result()).result == "4"


async def test_a_library_whose_threads_stay_behind_keeps_a_kernel_from_being_copied() -> None:
    """Polars says so by its name, OpenMP by what the process has mapped: no copy is better than one that hangs."""
    with pytest.raises(ForkRefused) as refused:
        await other_threads.demand_still(os.getpid(), OtherThreads(libraries=8, stuck="polars"))
    assert (refused.value.why, refused.value.detail) == (NoCopy.LIBRARY_THREADS, "polars")


def test_only_a_loaded_polars_with_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dependency of ours: what stands in for it here is its name among the modules."""
    assert Threads(libraries=3).told().stuck == ""
    monkeypatch.setitem(sys.modules, "polars", ModuleType("polars"))
    assert Threads(libraries=3).told().stuck == "polars"
    assert Threads(libraries=0).told().stuck == ""
