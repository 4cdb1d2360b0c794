"""The fixtures every test relies on: folders of its own, and no process outlives its test."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from session_processes import runs
from waiting import PROGRAM_SECONDS, wait_until

CONFTEST = Path(__file__).parents[1] / "conftest.py"
LEAVES_A_DAEMON = """
import subprocess, sys

def test_that_forgets_its_daemon():
    subprocess.run([sys.executable, "-c", '''
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
'''], check=True)
"""
USES_A_MODULE_DAEMON = """
import subprocess, sys, os, pytest

@pytest.fixture(scope="module")
def daemon(module_isolation):
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()

def test_first(daemon, isolation, module_isolation):
    assert isolation is module_isolation
    assert daemon.poll() is None

def test_second(daemon):
    assert daemon.poll() is None
"""

IS_KILLED = """
import os, signal
from pathlib import Path

from rlm_ipc.daemon_connection import start_daemon
from rlm_ipc.discovery import peer

def test_that_is_killed():
    with start_daemon() as daemon:
        Path("started").write_text(str(peer(daemon).pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _run_pytest(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.read_text() + "\n_SECONDS_TO_LEAVE = 1.0\n")
    (folder / "test_sample.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "."]
    environment = {**os.environ, "PYTHONPATH": str(CONFTEST.parent / "support")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )


def test_a_detached_process_left_by_a_test_is_killed_and_fails_it(tmp_path: Path) -> None:
    """A daemon that detached itself from the test is found, killed and reported."""
    result = _run_pytest(tmp_path, LEAVES_A_DAEMON)
    assert result.returncode == 1, result.stdout
    assert "the test left processes behind" in result.stdout
    assert "signal.pause" in result.stdout


def test_a_daemon_of_the_whole_module_survives_its_tests(tmp_path: Path) -> None:
    """A process that a module's fixture started is not taken for one that a test left."""
    result = _run_pytest(tmp_path, USES_A_MODULE_DAEMON)
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


def test_what_a_killed_run_has_started_ends_with_it(tmp_path: Path) -> None:
    """Its fixtures end nothing, and daemons that stay would slow down whatever runs next."""
    assert _run_pytest(tmp_path, IS_KILLED).returncode == -signal.SIGKILL
    daemon = psutil.Process(int((tmp_path / "started").read_text()))
    wait_until(lambda: not runs(daemon))


@pytest.mark.parametrize("kind", ["RUNTIME", "STATE", "CONFIG"])
def test_each_folder_is_private_and_away_from_home(kind: str) -> None:
    """The user's own daemon and policies are out of a test's reach."""
    folder = Path(os.environ[f"RLM_KERNEL_{kind}_DIR"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.is_relative_to(Path.home())


def test_the_runtime_folder_leaves_room_for_a_socket_name() -> None:
    """A Unix socket's path holds 107 bytes; names of 80 still fit."""
    path = Path(os.environ["RLM_KERNEL_RUNTIME_DIR"]) / ("s" * 80)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert path.is_socket()
