"""After a copy, a session makes the pages ready that its next cell writes to, and nobody can tell."""

from typing import Any

import psutil
import pytest
from waiting import until

pytestmark = pytest.mark.anyio

MOST_LEFT = 0.2
"""The share of the pages made ready that a cell may still have to copy: 0.1 in practice, 0.3 after an empty cell."""
LEAST = 300
"""Pages, well under what any cell writes to."""


def faults_of(pid: int) -> int:
    """How many pages a process has been given, or has had copied, so far (proc_pid_stat(5))."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[7])


async def made_ready(pid: int, before: int) -> int:
    """Wait until the pages are ready; returns how many that were."""

    def is_ready() -> bool:
        return faults_of(pid) - before >= LEAST and psutil.Process(pid).status() != psutil.STATUS_RUNNING

    await until(is_ready)
    return faults_of(pid) - before


@pytest.mark.parametrize("checkpoint", ["lazy", "strict"])
async def test_the_pages_of_the_next_cell_are_ready_before_it_comes(
    supervisor: Any, spawn: Any, policy: Any, checkpoint: str
) -> None:
    """A copy shares every page with the session, and whoever writes to one first waits until it is copied."""
    kernel = await spawn(policy(checkpoint=checkpoint))
    for _ in range(3):
        await supervisor.execute(kernel.kernel_id, "1+1").result()
    before = faults_of(kernel.pid)
    ready = await made_ready(kernel.pid, before)
    before = faults_of(kernel.pid)
    assert (await supervisor.execute(kernel.kernel_id, "1+1").result()).result == "2"
    if checkpoint == "lazy":  # under the other one a copy is in between, after which it writes to shared pages again
        assert faults_of(kernel.pid) - before <= ready * MOST_LEFT


async def test_nothing_in_the_session_tells_that_pages_were_made_ready(
    supervisor: Any, spawn: Any, policy: Any
) -> None:
    """No name, no output, no count, no refused attempt."""
    kernel = await spawn(policy("strict", checkpoint="lazy"))
    await supervisor.execute(kernel.kernel_id, "kept = 41\nkept").result()
    listing = "[name for name in dir() if name[0] != '_']"
    await supervisor.execute(kernel.kernel_id, f"names = []\nnames = {listing}").result()
    attempts = (await supervisor.kernel_info(kernel.kernel_id)).refused
    await made_ready(kernel.pid, faults_of(kernel.pid))
    after = await supervisor.execute(kernel.kernel_id, f"{listing} == names, _, kept").result()
    assert after.error is None
    assert (after.result, after.stdout, after.stderr, after.execution_count) == ("(True, 41, 41)", "", "", 3)
    assert (await supervisor.kernel_info(kernel.kernel_id)).refused == attempts
