"""What the system alone takes for a copy of a session's process: fork, and the pages that the next cell writes to.

    python bench/forkfloor.py [--default]

No supervisor, no messages, no wall: a zygote is warmed as the supervisor's is and forked once as for a session, which
then forks.
Every ratio of `bench/fork.py` for a cell that is copied has this under it. With `--default` the zygote is that of the
policy `default`, as in `bench/cells.py`: without numpy and pandas.
"""

import importlib
import os
import signal
import socket
import statistics
import sys
from functools import partial
from pathlib import Path

from ratio import timed

from rlm_kernel.supervisor.processes.zygotes import HEAVY

ROUNDS = 40


def sleeping_copy(made: list[int]) -> None:
    """A fork that sleeps, as a checkpoint does."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    made.append(pid)


def measure() -> None:
    """In the process that stands for a session: print the medians and leave."""
    from rlm_ipc.worker_protocol import RunCell
    from rlm_kernel.worker.worker import Worker
    from rlm_sandbox.policy.final import final_default

    ours, _theirs = socket.socketpair()
    lifeline, _end = socket.socketpair()
    worker = Worker(ours, lifeline, 1)
    worker.warmup.warm(final_default())
    if (session := os.fork()) != 0:
        os.waitpid(session, 0)
        return
    process = worker.process
    process.loop.abandon()
    process.activate()
    process.link.send = lambda *_args, **_options: None  # type: ignore[method-assign]

    def cell() -> None:
        process.loop.run(process.kernel.run_cell(RunCell("1+1", store_history=False)))

    forks, copied, plain = [], [], []
    for _ in range(ROUNDS):
        made: list[int] = []
        forks.append(timed(partial(sleeping_copy, made)) * 1000)
        copied.append(timed(cell) * 1000)
        os.kill(made[0], signal.SIGKILL)
        os.waitpid(made[0], 0)
        cell()
        plain.append(timed(cell) * 1000)
    fork, after, alone = map(statistics.median, (forks, copied, plain))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mappings = Path("/proc/self/maps").read_text().count("\n")
    print(
        f"floor: fork {fork:.2f} ms of {pages:,} pages in {mappings} mappings, a cell right after it {after:.2f} ms, "
        f"a cell otherwise {alone:.2f} ms: a copy for each cell costs at least {(fork + after) / alone:.1f} times the "
        "cell in the process itself",
        file=sys.__stdout__,
        flush=True,
    )
    os._exit(0)


if __name__ == "__main__":
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # as in the zygote
    for name in () if "--default" in sys.argv else HEAVY:
        importlib.import_module(name)
    measure()
