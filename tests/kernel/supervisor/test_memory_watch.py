"""What the supervisor counts of a running cell: its threads, and the programs that it runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlm_ipc.outcomes import Ended
from rlm_kernel.supervisor.cells.limits import resident_memory
from rlm_kernel.supervisor.copies.memory_watch import MemoryWatch
from rlm_kernel.supervisor.processes.proc_status import descendants_of
from rlm_sandbox.policy import MIB, Limits

NO_PROCESS = 2**22 + 1
"""A number beyond every process."""
PARENT = """
import subprocess, sys, threading
held = b'x' * (32 << 20)
threading.Thread(target=threading.Event().wait, daemon=True).start()
waits = "import sys; print(flush=True); sys.stdin.read()"
code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
child = subprocess.Popen([sys.executable, '-c', code])
child.wait()
"""


@pytest.fixture
def family() -> Iterator[int]:
    """The number of a process with two threads, a child and a grandchild."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"\n"
        yield parent.pid


def stopped_by(pid: int, **limits: int) -> tuple[Ended, str] | None:
    """What the watch stops a cell of that process for, under these limits."""
    stops: list[tuple[Ended, str]] = []
    live = SimpleNamespace(pid=pid, dead=False)
    cell = SimpleNamespace(stop=lambda ended, reason: stops.append((ended, reason)))
    parts: Any = SimpleNamespace(live=live), SimpleNamespace(), SimpleNamespace(limits=cell)
    MemoryWatch(Limits(**limits), Path("/"), *parts).tree()
    return stops[0] if stops else None


def test_a_cell_with_too_many_threads_or_programs_is_stopped(family: int) -> None:
    """RLIMIT_NPROC does not apply to root, so the supervisor counts."""
    assert stopped_by(family, threads=1) == (Ended.THREAD_LIMIT, "the cell runs more than 1 threads")
    assert stopped_by(family, threads=2, processes=1) == (Ended.PROCESS_LIMIT, "the cell runs more than 1 processes")
    small = stopped_by(family, threads=2, processes=2, memory_bytes=32 * MIB)
    assert small == (Ended.MEMORY_LIMIT, f"kernel and programs use over {32 * MIB:,} bytes")
    assert stopped_by(family, threads=2, processes=2) is None


def test_programs_are_not_counted_where_none_can_run(family: int) -> None:
    """Under limits.processes: 0 the system itself refuses each: nobody has to look for them."""
    assert stopped_by(family, processes=0) is None


def test_children_of_children_are_found(family: int) -> None:
    """A program may be started by another one."""
    assert len(descendants_of(family)) == 2


def test_a_process_that_is_gone_has_nothing() -> None:
    """It may end at any moment while it is looked at."""
    assert descendants_of(NO_PROCESS) == []
    assert resident_memory(NO_PROCESS) == 0
