"""The gate of a family of kernel processes, as the supervisor serves it."""

import os
from pathlib import Path

import pytest
from played_worker import kept_by_a_test

from rlm_ipc.errors import ProcessError
from rlm_kernel.supervisor.fork_broker import ForkBroker

pytestmark = pytest.mark.anyio


class Nobody:
    """A session that has no process."""

    def owns(self, pid: int) -> bool:
        """None is."""
        return False

    def refused(self, call: str) -> None:
        """Nothing is to be refused."""
        raise AssertionError(call)


async def test_what_is_no_gate_costs_the_supervisor_no_descriptor(tmp_path: Path) -> None:
    """A hostile session sends a file in place of its gate, with each fork that is made of it."""
    before = len(os.listdir("/proc/self/fd"))
    with kept_by_a_test() as kept:
        for _ in range(3):
            given = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
            with pytest.raises(ProcessError, match="not a fork gate"):
                ForkBroker(given, Nobody(), kept)
    assert len(os.listdir("/proc/self/fd")) == before
