"""Interrupts that come at an inconvenient moment: none is lost, and none ends the kernel."""

import asyncio
import os
import signal

import pytest
from waiting import SECONDS

from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import KernelError

pytestmark = pytest.mark.anyio

HOOK = "import os, signal\nget_ipython().events.register('pre_execute', lambda: os.kill(os.getpid(), signal.SIGINT))"
AT = """
import sys, _signal
left = {number}
def at(frame, event, called):
    global left
    left -= event == '{event}' and called is _signal.signal
    if not left:
        sys.setprofile(None)
        raise KeyboardInterrupt
sys.setprofile(at)
"""
"""The interrupt arrives before or after one of the next changes of who handles it."""


async def test_an_interrupt_in_a_hook_of_ipython_ends_the_cell(supervisor, spawn, policy) -> None:
    """IPython shows what its hooks raise and goes on: the interrupt is kept for the code of the cell."""
    kernel = await spawn(policy("trusted"))
    assert (await supervisor.execute(kernel.kernel_id, HOOK).result()).error is None
    async with asyncio.timeout(SECONDS):
        ended = await supervisor.execute(kernel.kernel_id, "while True: pass").result()
    assert (ended.error.ename, ended.stdout, ended.stderr) == ("KeyboardInterrupt", "", "")


@pytest.mark.parametrize(
    ("event", "number", "looks"),
    [("c_call", 1, 0), ("c_return", 2, 1), ("c_call", 3, 1)],
    ids=["as a cell ends", "as a look begins", "as a look ends"],
)
async def test_an_interrupt_at_the_edge_of_what_it_may_end_leaves_nothing_open(
    supervisor, spawn, policy, event, number, looks
) -> None:
    """It ends the cell or the look; the next interrupt between two cells must not reach the kernel's own code."""
    kernel = await spawn(policy("trusted"))
    await supervisor.execute(kernel.kernel_id, AT.format(event=event, number=number)).result()
    for _ in range(looks):
        with pytest.raises(KernelError, match="interrupted"):
            await supervisor.call(protocol.ASK, protocol.AskWorker(kernel.kernel_id, {"op": "variables"}))
    os.kill(kernel.pid, signal.SIGINT)
    assert (await supervisor.execute(kernel.kernel_id, "left").result()).result == "0"
