"""Forks: what a forked session, a checkpoint, a rollback and a recovery cost, in time and memory.

``--quick`` leaves out the sessions of 1 GB and takes fewer rounds. A fork is timed from the call to the answer to the
new session's first cell. The price of checkpoints is the round trip of ``1+1`` by itself, with a pause after each in
which a lazy copy is taken, and without; beside it stands what the system alone takes for a copy. `bench/cells.py` has
the price for cells that people write. A crash is timed from SIGKILL to the first cell that runs again.
"""

import asyncio
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from apart import family, folders, pss_of
from ratio import Case, compare

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import GIB, Policy, load_policy
from rlm_sandbox.policy.model import CheckpointMode

QUICK = "--quick" in sys.argv
ROUNDS = 5 if QUICK else 12
CELLS = 8 if QUICK else 20
PAUSE = 0.3
CRASHES = 40 if QUICK else 100
FORKS = 4 if QUICK else 10

DATA = {
    "nothing": "pass",
    "100 MB of numpy": "import numpy\nheld = numpy.ones(12_500_000)",
    "100 MB of objects": "held = [float(i) for i in range(2_500_000)]",
    "1 GB of numpy": "import numpy\nheld = numpy.ones(125_000_000)",
    "1 GB of objects": "held = [float(i) for i in range(25_000_000)]",
}


def policy(checkpoint: CheckpointMode) -> Policy:
    """The policy `data` with room for large sessions."""
    made = load_policy("data")
    limits = replace(made.limits, memory_bytes=4 * GIB, cell_seconds=300.0)
    return replace(made, checkpoint=checkpoint, limits=limits)


async def spawn(supervisor: SupervisorClient, checkpoint: CheckpointMode, code: str = "pass") -> str:
    """Start a session and run a cell in it; returns its id."""
    kernel_id = uuid.uuid4().hex[:12]
    await supervisor.spawn(SpawnRequest(kernel_id), policy(checkpoint))
    result = await supervisor.execute(kernel_id, code).result()
    assert result.error is None, result.error
    return kernel_id


async def fork(supervisor: SupervisorClient, parent: str, checkpoint: CheckpointMode = "off") -> tuple[str, float]:
    """Fork a session and run a cell in the child; returns its id and the seconds."""
    kernel_id = uuid.uuid4().hex[:12]
    began = time.perf_counter()
    await supervisor.fork(parent, SpawnRequest(kernel_id), policy(checkpoint))
    await supervisor.execute(kernel_id, "1+1").result()
    return kernel_id, time.perf_counter() - began


async def fork_and_end(supervisor: SupervisorClient, parent: str) -> float:
    """Seconds of one fork, whose session ends again."""
    kernel_id, seconds = await fork(supervisor, parent)
    await supervisor.shutdown(kernel_id)
    return seconds


async def cells(supervisor: SupervisorClient, kernel_id: str, pause: float) -> float:
    """Median seconds of a cell to its result, with a pause after each."""
    taken = []
    for _ in range(CELLS):
        began = time.perf_counter()
        await supervisor.execute(kernel_id, "1+1").result()
        taken.append(time.perf_counter() - began)
        if pause:
            await asyncio.sleep(pause)
    return statistics.median(taken)


async def undo(supervisor: SupervisorClient, kernel_id: str) -> float:
    """Seconds of a rollback of one cell, to the next cell's result."""
    await supervisor.execute(kernel_id, "1+1").result()
    began = time.perf_counter()
    await supervisor.rollback(kernel_id, 1)
    await supervisor.execute(kernel_id, "1+1").result()
    return time.perf_counter() - began


async def crash(supervisor: SupervisorClient, kernel_id: str) -> float:
    """Seconds from the SIGKILL of an idle session's process to a cell that runs again."""
    pid = (await supervisor.kernel_info(kernel_id)).pid
    assert pid is not None
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while (await supervisor.execute(kernel_id, "1+1").result()).error is not None:
        pass
    return time.perf_counter() - began


def memory(supervisor: SupervisorClient) -> float:
    """Proportional memory in MB of the supervisor and all its processes."""
    assert supervisor.pid is not None
    return sum(map(pss_of, family(supervisor.pid))) / 1e6


async def memory_of_forks(supervisor: SupervisorClient, code: str) -> tuple[float, float]:
    """MB that one more fork costs when it has run a cell, and then with a checkpoint of its own."""
    grown = []
    for checkpoint in ("off", "strict"):
        parent = await spawn(supervisor, checkpoint, code)
        before = memory(supervisor)
        children = [(await fork(supervisor, parent, checkpoint))[0] for _ in range(FORKS)]
        grown.append((memory(supervisor) - before) / FORKS)
        for kernel_id in (parent, *children):
            await supervisor.shutdown(kernel_id)
        await asyncio.sleep(0.5)
    return grown[0], grown[1]


def report(loop: asyncio.AbstractEventLoop, supervisor: SupervisorClient) -> None:
    """Measure, and print every figure."""
    do = loop.run_until_complete

    def timed(work: Callable[[], Awaitable[float]]) -> Callable[[], float]:
        return lambda: do(work())

    held = dict(itertools.islice(DATA.items(), 3 if QUICK else None))
    parents = {name: do(spawn(supervisor, "off", code)) for name, code in held.items()}
    cases = [Case(name, timed(partial(fork_and_end, supervisor, parent))) for name, parent in parents.items()]
    compare("fork of a session that holds ..., to its first cell", cases, rounds=ROUNDS)
    for parent in parents.values():
        do(supervisor.shutdown(parent))

    for name, code in itertools.islice(held.items(), 0, None, 2):
        modes = {mode: do(spawn(supervisor, mode, code)) for mode in ("off", "lazy", "strict")}
        for pause in (PAUSE, 0.0):
            title = f"1+1 under checkpoint: ..., {'at once' if not pause else 'after a pause'}, holding {name}"
            cases = [Case(mode, timed(partial(cells, supervisor, k, pause))) for mode, k in modes.items()]
            compare(title, cases, rounds=ROUNDS)
        subprocess.run([sys.executable, str(Path(__file__).with_name("forkfloor.py"))], check=True)
        compare(
            f"rollback, holding {name}",
            [Case("strict", timed(partial(undo, supervisor, modes["strict"])))],
            rounds=ROUNDS,
        )
        for kernel_id in modes.values():
            do(supervisor.shutdown(kernel_id))

    for name, code in itertools.islice(held.items(), 0, None, 2):
        kernel_id = do(spawn(supervisor, "strict", code))
        taken = sorted(do(crash(supervisor, kernel_id)) * 1000 for _ in range(CRASHES))
        at = f"median {taken[len(taken) // 2]:.0f} ms, p99 {taken[int(len(taken) * 0.99) - 1]:.0f} ms"
        print(f"crash to the next answer, holding {name}: {at}")
        do(supervisor.shutdown(kernel_id))

    for name, code in list(held.items())[:3]:
        plain, copied = do(memory_of_forks(supervisor, code))
        print(f"one more fork of a session that holds {name}: {plain:.1f} MB PSS, with its checkpoint {copied:.1f} MB")


def main() -> None:
    """Print every figure."""
    loop = asyncio.new_event_loop()
    report(loop, loop.run_until_complete(SupervisorClient.connect()))


if __name__ == "__main__":
    with folders():
        main()
