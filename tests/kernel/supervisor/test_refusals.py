"""Attempts that the walls refuse are counted for each session, from outside where that can be."""

import asyncio
import importlib.util
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from rlm_ipc.errors import KernelError, SessionExpelled, UnknownKernel
from rlm_ipc.kernel_reports import CellResult, KernelInfo, Refused
from rlm_ipc.supervisor_protocol import Event, KernelEnded, SpawnRequest
from rlm_kernel.supervisor.processes.fork_broker import MOST_AT_ONCE, PAUSE_SECONDS
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy, load_policy, policy_names, without_language_wall

pytestmark = pytest.mark.anyio

Spawn = Callable[..., Awaitable[KernelInfo]]
NONE = Refused(system_calls=0, latest_call="", audit=0, cells=0)
SECONDS = 90.0
"""How long a cell may take: the first import of a library takes long on a machine with other work."""

WORK = {
    "": """
import asyncio, collections, datetime, json, math, random, re, statistics
async def main():
    await asyncio.sleep(0)
    return await asyncio.gather(*(asyncio.sleep(0, n) for n in range(3)))
numbers = await main()
print(json.dumps({'now': str(datetime.datetime.now()), 'mean': statistics.mean(numbers), 'noise': random.random()}))
block = [bytes(1000) for _ in range(20000)]
""",
    "threading": """
import threading
threads = [threading.Thread(target=sum, args=(range(1000),)) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
""",
    "numpy": """
import numpy as np
square = np.random.default_rng(0).random((300, 300))
np.linalg.svd(square @ square); np.fft.fft(square)
""",
    "pandas": """
import pandas as pd
dates = pd.date_range('2026-01-01', periods=4000, freq='h', tz='UTC').tz_convert('Europe/Prague')
table = pd.DataFrame({'k': list('aabb') * 1000, 'v': range(4000), 'd': dates})
table.groupby('k').v.mean(); table.merge(table.head(10), on='v'); table.to_csv()
""",
    "pyarrow": """
import pyarrow as pa
pa.table({'a': list(range(100000))}).group_by('a').aggregate([])
""",
    "matplotlib": """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3]); plt.title('walls'); plt.show()
""",
    "sklearn": """
from sklearn.linear_model import LinearRegression
LinearRegression().fit([[0], [1]], [0, 1])
""",
}
"""Code by the module that a policy has to admit for it; without one it runs under every policy."""


def possible(policy: Policy) -> list[str]:
    """The work that the policy admits and this environment can do."""
    allowed = policy.language.imports
    chosen = [name for name in WORK if name and (name in allowed or "*" in allowed)]
    basic = {"asyncio", "collections", "datetime", "json", "math", "random", "re", "statistics"}
    return [
        *([""] if basic <= set(allowed) or "*" in allowed else []),
        *(name for name in chosen if importlib.util.find_spec(name)),
    ]


async def run(supervisor: SupervisorClient, info: KernelInfo, code: str) -> CellResult:
    """Run a cell to its end."""
    async with asyncio.timeout(SECONDS):
        return await supervisor.execute(info.kernel_id, code).result()


async def refused(supervisor: SupervisorClient, info: KernelInfo) -> Refused:
    """What the supervisor says that the session was refused."""
    return (await supervisor.kernel_info(info.kernel_id)).refused


@pytest.mark.parametrize("name", [name for name in policy_names() if load_policy(name).limits.processes == 0])
async def test_ordinary_work_is_refused_nothing(
    supervisor: SupervisorClient, spawn: Spawn, policy: Callable[..., Policy], name: str
) -> None:
    """A count that grows by itself would say nothing: what libraries probe is not in it, under any policy.

    The policies' own limits of time are not part of it: `teaching` gives a cell 20 seconds.
    """
    patient = policy(name, cell_seconds=SECONDS)
    info = await spawn(patient)
    for work in possible(patient):
        done = await run(supervisor, info, WORK[work])
        assert done.status == "ok", (work, done.error)
    assert await refused(supervisor, info) == NONE


async def test_system_calls_that_reach_out_are_counted_by_name(supervisor: SupervisorClient, spawn: Spawn) -> None:
    """For the person who watches: how many there were, and what was tried last; the code gets its usual error."""
    info = await spawn(without_language_wall(load_policy("default")))
    code = """
import os, socket
for attempt in (lambda: os.kill(1, 0), lambda: os.execv('/bin/true', ['x']), lambda: os.fork(), socket.socket):
    try:
        attempt()
    except PermissionError as error:
        print(error.errno)
"""
    assert (await run(supervisor, info, code)).stdout == "1\n1\n1\n13\n"
    assert await refused(supervisor, info) == Refused(system_calls=4, latest_call="socket", audit=0, cells=0)


async def test_attempts_count_for_the_session_that_made_them(supervisor: SupervisorClient, spawn: Spawn) -> None:
    """Sessions that are forked from one another share a gate, and not their counts."""
    policy = without_language_wall(load_policy("default"))
    parent = await spawn(policy)
    await run(supervisor, parent, "import os")
    child = (await supervisor.fork(parent.kernel_id, SpawnRequest(f"{parent.kernel_id}f"), policy)).kernel
    for info, attempts in ((parent, 2), (child, 5)):
        code = f"for _ in range({attempts}):\n    try: os.execv('/bin/true', ['x'])\n    except PermissionError: pass"
        assert (await run(supervisor, info, code)).status == "ok"
    counts = [(await refused(supervisor, info)).system_calls for info in (parent, child)]
    assert counts == [2, 5]
    for info in (parent, child):
        await supervisor.shutdown(info.kernel_id)


async def test_cells_that_do_not_compile_are_counted_apart_and_end_nothing(
    supervisor: SupervisorClient, spawn: Spawn
) -> None:
    """They have attempted nothing; a slip of the pen is not even counted."""
    policy = load_policy("default")
    limits = replace(policy.limits, refused_attempts=2)
    info = await spawn(replace(policy, limits=limits))
    for code in ("eval('1')", "x.__globals__", "(1", "x = 'a\n", "eval('1')", "raise SyntaxError('mine')"):
        assert (await run(supervisor, info, code)).status == "error"
    assert (await run(supervisor, info, "1 + 1")).status == "ok"
    assert await refused(supervisor, info) == replace(NONE, cells=3)


async def test_what_the_audit_hook_refuses_is_counted(supervisor: SupervisorClient, spawn: Spawn) -> None:
    """The kernel says so with each cell's answer."""
    info = await spawn(load_policy("tables"))
    code = (
        "import pandas as pd\nfor _ in range(3):\n    try: pd.read_csv('/etc/passwd')\n    except PermissionError: pass"
    )
    done = await run(supervisor, info, code)
    assert done.status == "ok", done.error
    counted = await refused(supervisor, info)
    assert (counted.system_calls, counted.audit) == (0, 3)


FLOOD = """
import os, threading
def flood():
    while not stop:
        try: os.kill(1, 0)
        except PermissionError: pass
stop = False
threads = [threading.Thread(target=flood) for _ in range(32)]
[thread.start() for thread in threads]
"""


async def test_a_flood_of_attempts_takes_turns_with_everybody_else(supervisor: SupervisorClient, spawn: Spawn) -> None:
    """However many threads try, the supervisor answers so many at a time and then sees to others; these get on."""
    noisy = await spawn(replace(without_language_wall(load_policy("default")), checkpoint="off"))
    quiet = await spawn()
    await run(supervisor, noisy, FLOOD)
    began, before = time.monotonic(), (await refused(supervisor, noisy)).system_calls
    for number in range(30):
        assert (await run(supervisor, quiet, str(number))).result == str(number)
    after, passed = (await refused(supervisor, noisy)).system_calls, time.monotonic() - began
    assert before < after
    assert after - before <= (passed / PAUSE_SECONDS + 2) * MOST_AT_ONCE
    assert await refused(supervisor, quiet) == NONE
    await run(supervisor, noisy, "stop = True\n[thread.join() for thread in threads]")


async def test_a_session_ends_after_as_many_attempts_as_its_policy_says(
    supervisor: SupervisorClient, spawn: Spawn, policy: Callable[..., Policy]
) -> None:
    """The cell that made them, and what waits behind it, say why; the process is gone whatever it does."""
    info = await spawn(without_language_wall(policy(refused_attempts=3)))
    code = "import os\nwhile True:\n    try: os.kill(1, 0)\n    except PermissionError: pass"
    cell, behind = supervisor.execute(info.kernel_id, code), supervisor.execute(info.kernel_id, "1")
    async with asyncio.timeout(SECONDS):
        done = await cell.result()
        with pytest.raises(SessionExpelled, match=r"limits\.refused_attempts.*3 system calls"):
            await behind.result()
    assert done.error is not None
    assert done.error.ename == "SessionExpelled"
    assert "3 refused attempts end it" in done.error.evalue
    with pytest.raises(UnknownKernel):
        await supervisor.kernel_info(info.kernel_id)


async def test_attempts_between_cells_end_a_session_too(
    supervisor: SupervisorClient, spawn: Spawn, policy: Callable[..., Policy]
) -> None:
    """A thread that goes on after its cell is no way around the limit."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    info = await spawn(without_language_wall(policy(refused_attempts=5)))
    supervisor.on_event(lambda kernel, event: events.put_nowait(event) if kernel == info.kernel_id else None)
    await run(supervisor, info, FLOOD)
    async with asyncio.timeout(SECONDS):
        while not isinstance(event := await events.get(), KernelEnded):
            pass
    assert "5 refused attempts end it" in event.expelled
    with pytest.raises(KernelError):
        await run(supervisor, info, "1")
