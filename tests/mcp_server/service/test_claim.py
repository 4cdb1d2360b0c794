"""A cell outlives the daemon that started it: the next daemon goes on with it, and `wait` finds it."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, cli
from serving import kernel_state
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import supervisor_core as core
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus
from rlm_ipc.errors import DaemonUnavailable, ToolFailed
from rlm_ipc.json_lines import MADE_BY, TERMINAL

pytestmark = pytest.mark.usefixtures("shared_processes")
CODE = "import os, time\nprint('before')\nwhile not os.path.exists({!r}): time.sleep(0.01)\nprint('after')\nx = 5\nx"


def _start(session: str, code: str) -> threading.Thread:
    def call() -> None:
        try:
            call_tool("eval_code", {"code": code}, session=session)
        except (DaemonUnavailable, ToolFailed):
            pass

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def _stop() -> None:
    cli("daemon", "stop")
    _noticed()


def _kill() -> None:
    with DaemonConnection(ShowStatus()) as control:
        os.kill(control.pid, signal.SIGKILL)
        control.wait_for_end()
    _noticed()


def _noticed() -> None:
    """The supervisor has read the end of the daemon's connection, as it has answered what came after that."""
    kernel_state("")


@pytest.mark.parametrize("end", [_stop, _kill])
def test_wait_finds_a_cell_of_the_daemon_before(
    end: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-17: with all that it has printed, from before and after; code that comes meanwhile waits for it."""
    monkeypatch.setenv("RLM_KERNEL_POLICY", "trusted")
    session, go = end.__name__.strip("_"), tmp_path / "go"
    thread = _start(session, CODE.format(str(go)))
    wait_until(lambda: kernel_state(session), core.KernelState.BUSY.__eq__)
    end()
    thread.join()
    runs: dict[str, str] = call_tool("status", {}, session=session)["runs"]
    assert list(runs.values()) == ["running"]
    go.touch()
    came: dict[str, Any] = call_tool("wait", {}, session=session)
    assert (came["result"], came["stdout"]) == ("5", "before\nafter\n")
    assert came["notice"] == "an earlier daemon started this code, and ended while the code ran"
    assert call_tool("eval_code", {"code": "x + 1"}, session=session)["result"] == "6"
    assert cli("journal", session).stdout.count("print('before')") == 1


def test_a_cell_that_nobody_claims_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended while no daemon was there. Who has run it, a person at a terminal, is known still."""
    monkeypatch.setenv("RLM_KERNEL_POLICY", "trusted")
    go = tmp_path / "go"
    monkeypatch.setenv(MADE_BY, TERMINAL)
    thread = _start("alone", CODE.format(str(go)))
    wait_until(lambda: kernel_state("alone"), core.KernelState.BUSY.__eq__)
    monkeypatch.delenv(MADE_BY)
    _stop()
    thread.join()
    go.touch()
    wait_until(lambda: kernel_state("alone"), core.KernelState.IDLE.__eq__)
    assert call_tool("eval_code", {"code": "x"}, session="alone")["result"] == "5"
    shown = cli("journal", "alone").stdout
    assert (shown.count("print('before')"), shown.count("after\n")) == (1, 1)
    assert [cell["author"] for cell in answer("journal", "alone")["cells"]] == [TERMINAL, "agent"]


def test_wait_finds_a_cell_that_ended_while_no_daemon_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller was told that the call was lost: it was not."""
    monkeypatch.setenv("RLM_KERNEL_POLICY", "trusted")
    go = tmp_path / "go"
    thread = _start("meanwhile", CODE.format(str(go)))
    wait_until(lambda: kernel_state("meanwhile"), core.KernelState.BUSY.__eq__)
    _kill()
    thread.join()
    go.touch()
    wait_until(lambda: kernel_state("meanwhile"), core.KernelState.IDLE.__eq__)
    came: dict[str, Any] = call_tool("wait", {}, session="meanwhile")
    assert (came["result"], came["stdout"].split(), came["success"]) == ("5", ["before", "after"], True)
    assert came["notice"] == "an earlier daemon started this code, which ended before this daemon started"
