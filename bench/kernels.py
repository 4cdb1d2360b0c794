"""Kernels against stock ipykernel through jupyter_client, in one run: start, round trip, and a loop that prints.

Start is measured to the first executed cell, of one session that comes alone and of one that comes right after another,
for which no process waits; the round trip is ``1+1`` to its reply with the blocking client. The loop prints 20,000
lines, of which a client reads all.
"""

import asyncio
import os
import time
import uuid
from pathlib import Path

from jupyter_client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from ratio import Case, compare

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

ROUNDS = 10
CALLS = 200
LINES = 20_000
PAUSE_SECONDS = 0.5
"""Between two starts; the supervisor makes a process ready for the next session meanwhile."""


def first_cell(kernel_name: str) -> tuple[float, KernelManager, BlockingKernelClient]:
    """Seconds from nothing to the reply of a first cell, by the kernelspec's name."""
    started = time.perf_counter()
    manager = KernelManager(kernel_name=kernel_name)
    manager.start_kernel()
    client = manager.client()
    client.start_channels(hb=False)
    client.execute("1+1")
    client.get_shell_msg(timeout=60)
    return time.perf_counter() - started, manager, client


def start(kernel_name: str) -> float:
    """One start, and the end of what it started."""
    time.sleep(PAUSE_SECONDS)
    seconds, manager, client = first_cell(kernel_name)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return seconds


def supervisor_start() -> float:
    """The start of a session as the daemon does it, to the result of its first cell."""
    time.sleep(PAUSE_SECONDS)
    return asyncio.run(_supervisor_start())


def second_supervisor_start() -> float:
    """The start of a session at once after another."""
    supervisor_start()
    return asyncio.run(_supervisor_start())


async def _supervisor_start() -> float:
    supervisor = await SupervisorClient.connect()
    began = time.perf_counter()
    kernel_id = uuid.uuid4().hex[:12]
    await supervisor.spawn(SpawnRequest(kernel_id, str(Path.cwd())), load_policy("default"))
    await supervisor.execute(kernel_id, "1+1").result()
    seconds = time.perf_counter() - began
    await supervisor.shutdown(kernel_id)
    supervisor.close()
    return seconds


def round_trip(client: BlockingKernelClient) -> float:
    """Mean seconds of ``1+1`` to its reply."""
    began = time.perf_counter()
    for _ in range(CALLS):
        client.execute("1+1")
        client.get_shell_msg(timeout=60)
    return (time.perf_counter() - began) / CALLS


def printing(client: BlockingKernelClient) -> None:
    """Run a cell that prints line by line, until the client has all of it."""
    client.execute_interactive(f"for n in range({LINES}): print(n)", timeout=60, output_hook=lambda _: None)


def main() -> None:
    """Print every figure."""
    supervisor_start()  # the supervisor and its zygote are warm, as they are for all sessions but the first
    compare(
        "start to first executed cell",
        [
            Case("stock ipykernel", lambda: start("python3")),
            Case("rlm, jupyter_client", lambda: start("rlm")),
            Case("rlm, supervisor", supervisor_start),
            Case("the next at once", second_supervisor_start),
        ],
        rounds=ROUNDS,
    )
    _, stock, stock_client = first_cell("python3")
    _, ours, our_client = first_cell("rlm")
    compare(
        "1+1 to its reply through the Jupyter sockets",
        [
            Case("stock ipykernel", lambda: round_trip(stock_client)),
            Case("rlm", lambda: round_trip(our_client)),
        ],
        rounds=ROUNDS,
    )
    compare(
        "20,000 lines printed",
        [
            Case("stock ipykernel", lambda: printing(stock_client)),
            Case("rlm", lambda: printing(our_client)),
        ],
        rounds=ROUNDS,
    )
    for manager, client in ((stock, stock_client), (ours, our_client)):
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    os.environ.setdefault("JUPYTER_NO_CONFIG", "1")
    main()
