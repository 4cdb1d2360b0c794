"""The project lock when its daemon is killed: real processes, of which none stays behind."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from command_line import answer, cli, run
from waiting import wait_until

from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus

pytestmark = pytest.mark.usefixtures("shared_processes")


def test_a_daemon_that_is_killed_during_the_first_scan_costs_what_was_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-13: its scanner and helpers end with it, and the next daemon goes on with what they have parsed."""
    for number in range(30):
        (tmp_path / f"m{number}.py").write_text(f"def f{number}(): ...\n" * 50)
    monkeypatch.chdir(tmp_path)
    with DaemonConnection(ShowStatus(), start=True) as control, ThreadPoolExecutor() as pool:
        daemon = psutil.Process(int(control.pid))
        asked = pool.submit(run, ["lock", "--wait"])
        family = wait_until(lambda: _parsing(daemon))
        daemon.kill()
        wait_until(lambda: [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE], _none)
        asked.result()
    found = answer("lock", "--wait")
    assert (found["phase"], found["version"], found["files"]) == ("ready", 1, 30)
    assert "missing" not in found
    assert "f29" in cli("lock", "--wait", "--map", "500", "--about", "f29").stdout


def _parsing(daemon: psutil.Process) -> list[psutil.Process]:
    """The scanner of a daemon and its helpers, once there are any."""
    scanners = [each for each in daemon.children() if "rlm_lock.scanner" in each.cmdline()]
    helpers = [helper for scanner in scanners for helper in scanner.children(recursive=True)]
    return [*scanners, *helpers] if helpers else []


def _none(found: list[psutil.Process]) -> bool:
    return not found
