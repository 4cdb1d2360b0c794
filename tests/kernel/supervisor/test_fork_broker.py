"""The gate of a family of kernel processes, as the supervisor serves it."""

import os
from pathlib import Path

import pytest
from played_worker import kept_by_a_test, played_worker

from rlm_ipc.errors import ProcessError
from rlm_kernel.supervisor.processes.fork_broker import ForkBroker

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


@pytest.mark.parametrize("forks", [1, 2])
async def test_a_permission_is_for_so_many_forks_and_ends_with_what_it_was_given_for(forks: int) -> None:
    """A process that could not fork when it was asked to runs code of the session next, which may not either."""
    reading, writing = os.pipe()  # no attempt comes, so nobody notices that it is no gate
    with kept_by_a_test() as kept, played_worker(kept) as (peer, _):
        peer.pid = os.getpid()
        gate = ForkBroker(reading, (user := Nobody()), kept)
        with gate.permit(peer, forks):
            asked = [gate._is_permitted(os.getpid()) for _ in range(forks + 1)]
        assert asked == [True] * forks + [False]
        with gate.permit(peer, forks):
            pass
        assert not gate._is_permitted(os.getpid())
        gate.release(user)
    os.close(writing)
