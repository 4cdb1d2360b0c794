"""The monitor sees what a process and a folder use, and notices when the process is gone."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_sandbox.errors import ProcessGone
from rlm_sandbox.os_wall.memory_monitor import SMALLEST_ENTRY_BYTES, MemoryMonitor, folder_bytes

MIB = 1024 * 1024
WORKER = """
import subprocess, sys
kept = []
for line in sys.stdin:
    if line.startswith('child'):
        kept.append(subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE))
    else:
        kept.append(b'x' * int(line))
    print('ready', flush=True)
for child in kept:
    if not isinstance(child, bytes):
        child.communicate()
"""


class Worker:
    """A process that allocates and starts children on demand."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, order: str) -> None:
        """Give an order and wait until it is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> None:
        """Let it end, and collect it."""
        self.process.communicate(timeout=60)


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that has ended when the test has."""
    worker = Worker()
    yield worker
    if worker.process.returncode is None:
        worker.end()


@pytest.fixture
def monitor() -> Iterator[MemoryMonitor]:
    """A monitor that closes its descriptors."""
    with MemoryMonitor() as monitor:
        yield monitor


def test_memory_that_a_process_allocates_is_seen(worker: Worker, monitor: MemoryMonitor) -> None:
    """K-20: the cheap reading and the full sample both grow by what was allocated."""
    worker.do("1")
    cheap, full = monitor.rss(worker.process.pid), monitor.sample(worker.process.pid, uss=True)
    worker.do(str(64 * MIB))
    after = monitor.sample(worker.process.pid, uss=True)
    assert monitor.rss(worker.process.pid) - cheap > 60 * MIB
    assert after.rss - full.rss > 60 * MIB
    assert (after.uss or 0) - (full.uss or 0) > 60 * MIB
    assert after.cpu >= full.cpu
    assert after.threads == 1


def test_children_are_counted_when_asked_for(worker: Worker, monitor: MemoryMonitor) -> None:
    """A session that may run programs is watched with everything it starts."""
    worker.do("child")
    alone, tree = monitor.sample(worker.process.pid), monitor.sample(worker.process.pid, tree=True)
    assert (alone.children, tree.children) == (0, 1)
    assert tree.rss > alone.rss


@pytest.mark.parametrize("reading", ["rss", "sample"])
def test_a_process_that_has_ended_is_gone(worker: Worker, monitor: MemoryMonitor, reading: str) -> None:
    """Its number may be another process's by then: the monitor never answers for that one."""
    pid = worker.process.pid
    getattr(monitor, reading)(pid)
    worker.end()
    with pytest.raises(ProcessGone, match=str(pid)):
        getattr(monitor, reading)(pid)


def test_an_unknown_number_is_gone(monitor: MemoryMonitor) -> None:
    """A number beyond every process is reported like a process that has ended."""
    for reading in (monitor.rss, monitor.sample):
        with pytest.raises(ProcessGone):
            reading(2**22 + 1)


def test_a_folder_counts_all_its_files(tmp_path: Path) -> None:
    """Nested files count what they use on disk; empty ones are not free."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "data").write_bytes(b"x" * MIB)
    (tmp_path / "empty").touch()
    used = folder_bytes(tmp_path, stop_at=100 * MIB)
    assert MIB + 3 * SMALLEST_ENTRY_BYTES <= used < 2 * MIB


def test_a_sparse_file_and_a_link_count_little(tmp_path: Path) -> None:
    """Only what is on disk counts, and links are not followed."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    (tmp_path / "link").symlink_to("/usr")
    assert folder_bytes(tmp_path, stop_at=100 * MIB) <= 4 * SMALLEST_ENTRY_BYTES


def test_counting_stops_at_the_limit(tmp_path: Path) -> None:
    """A folder of very many files costs no more than the limit."""
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert folder_bytes(tmp_path, stop_at=10 * SMALLEST_ENTRY_BYTES) == 10 * SMALLEST_ENTRY_BYTES


def test_files_hidden_below_a_too_long_path_count_as_the_limit(tmp_path: Path) -> None:
    """A session cannot hide files from its quota by nesting folders deeper than a path can name."""
    script = "import os\nfor _ in range(30):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert folder_bytes(tmp_path, stop_at=MIB) == MIB


def test_a_missing_folder_is_empty(tmp_path: Path) -> None:
    """A scratch folder that is gone uses nothing."""
    assert folder_bytes(tmp_path / "gone", stop_at=MIB) == 0
