"""Two versions of rlm-kernel meet: sessions go on, or are saved and come back, in both directions; nothing goes unsaid.

The other version is a copy of this one that says so. Its daemon, supervisor and kernels are real ones.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import cli
from command_line import run as run_here
from other_version import other_version
from serving import kernel_state
from waiting import PROGRAM_SECONDS, wait_until

from rlm_client.client import Client, call_tool
from rlm_ipc import discovery
from rlm_ipc import supervisor_core as core
from rlm_ipc.errors import DaemonUnavailable, ToolFailed
from rlm_ipc.version import VERSION

pytestmark = pytest.mark.usefixtures("real_starts", "ended")
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


class Other:
    """The command line of the other version."""

    def __init__(self, python: Path) -> None:
        self.python = python

    def run(self, *arguments: str) -> tuple[int, Any]:
        """Run a command with ``--json``: its exit code and its answer."""
        argv = [str(self.python), "-P", "-m", "rlm_mcp", *arguments, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
        return done.returncode, json.loads(done.stdout or json.dumps(done.stderr))

    def cell(self, session: str, code: str) -> dict[str, Any]:
        """Run a cell."""
        _, answer = self.run("run", "--session", session, code)
        assert isinstance(answer, dict), answer
        return answer


@pytest.fixture(autouse=True)
def policy(isolation: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Sessions may look at files; the working folder is that of the test."""
    monkeypatch.setenv("RLM_KERNEL_POLICY", "trusted")
    monkeypatch.chdir(tmp_path)
    yield
    cli("daemon", "stop", "--all")


def _here(*arguments: str) -> tuple[int, Any]:
    done = run_here([*arguments, "--json"])
    return done.returncode, json.loads(done.stdout or json.dumps(done.stderr))


def test_sessions_go_on_in_a_version_that_speaks_with_their_kernels(tmp_path: Path) -> None:
    """With a cell that runs meanwhile, there and back; its kernel is the same process."""
    other = Other(other_version(tmp_path / "other", "0.2.0", calls=99))
    with Client("s") as client:
        client.call("eval_code", code="import os\nx = [1]\ny = x")
        pid = client.call("status")["kernel"]["pid"]
    waiting = threading.Thread(target=_run_until_the_daemon_ends, args=(WAITS + "x.append(2)",))
    waiting.start()
    wait_until(lambda: kernel_state("s"), core.KernelState.BUSY.__eq__)
    assert other.run("upgrade", "--check")[1]["sessions"] == [
        {"session": "s", "state": "busy", "lost": [], "what": "keeps running"}
    ]
    status, answer = other.run("upgrade")
    assert (status, answer["version"], answer["supervisor"], answer["done"]) == (0, "0.2.0", "0.1.0", True)
    waiting.join()
    Path("go").touch()
    assert other.cell("s", "x, y is x, os.getpid()")["result"] == f"([1, 2], True, {pid})"
    status, answer = _here("upgrade")
    assert (status, answer["supervisor"], answer["done"]) == (0, "0.2.0", True)
    assert call_tool("eval_code", {"code": "x, y is x, os.getpid()"}, session="s")["result"] == f"([1, 2], True, {pid})"


def test_new_sessions_run_the_code_of_another_build_of_the_same_version(tmp_path: Path) -> None:
    """Who tries a change would else see the code from before it; sessions that live keep theirs."""
    other = Other(other_version(tmp_path / "other", VERSION))
    asked = "import rlm_kernel; rlm_kernel.__file__"
    before = call_tool("eval_code", {"code": asked}, session="old")["result"]
    status, answer = other.run("upgrade")
    assert (status, answer["version"], answer["done"]) == (0, VERSION, True)
    assert str(tmp_path / "other") in other.cell("new", asked)["result"]
    assert other.cell("old", asked)["result"] == before


def _run_until_the_daemon_ends(code: str) -> None:
    try:
        call_tool("eval_code", {"code": code}, session="s")
    except (DaemonUnavailable, ToolFailed):
        pass


def test_sessions_of_other_kernels_are_saved_and_come_back(tmp_path: Path) -> None:
    """Both ways; what is not kept is named before and after, and a session that keeps nothing is told to be lost."""
    other = Other(other_version(tmp_path / "other", "0.2.0", calls=99, kernels=99))
    call_tool("load_context", {"name": "log", "content": "a text"}, session="s")
    call_tool("eval_code", {"code": "x = [1]\ny = x\ncount = (n for n in x)"}, session="s")
    status, answer = other.run("upgrade", "--check")
    (row,) = answer["sessions"]
    assert (status, row["what"], [item["name"] for item in row["lost"]]) == (
        1,
        "is saved, and restored when it is used",
        ["count"],
    )
    status, answer = other.run("upgrade")
    assert (status, answer["done"]) == (1, False)
    call_tool("eval_code", {"code": "del count"}, session="s")
    assert other.run("upgrade", "--check")[0] == 0
    status, answer = other.run("upgrade")
    assert (status, answer["done"]) == (0, True)
    answer = other.cell("s", "x.append(2); (x, y is x, log['content'])")
    assert answer["result"] == "([1, 2], True, 'a text')"
    assert answer["notice"].startswith("variables are as they were saved at ")
    other.cell("s", "count = (n for n in x)")
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True)
    (folder / "once.yaml").write_text("extends: trusted\nreopen: false\n")
    other.run("run", "--session", "ends", "--policy", "once", "z = 1")
    answer = _here("upgrade", "--anyway")[1]
    assert answer["done"]
    nothing = "its policy keeps no variables (reopen: false)"
    assert answer["sessions"][0]["what"] == f"is lost: {nothing}"
    answer = call_tool("eval_code", {"code": "1"}, session="ends")
    assert answer["notice"] == f"variables are lost, contexts are kept: {nothing}"
    answer = call_tool("eval_code", {"code": "x, y is x, log['content']"}, session="s")
    assert answer["result"] == "([1, 2], True, 'a text')"
    assert "; without count: " in answer["notice"]


def test_a_version_that_meets_another_one_takes_over_by_itself(tmp_path: Path) -> None:
    """Nobody has to know of the command: the next daemon hands the kernels over, with what a running cell has made.

    The daemon that ended could not save that.
    """
    other = Other(other_version(tmp_path / "other", "0.2.0", calls=99, kernels=99))
    call_tool("eval_code", {"code": "x = [1]"}, session="s")
    waiting = threading.Thread(target=_run_until_the_daemon_ends, args=(WAITS + "x.append(2)",))
    waiting.start()
    wait_until(lambda: kernel_state("s"), core.KernelState.BUSY.__eq__)
    cli("daemon", "stop")
    waiting.join()
    Path("go").touch()
    answer = other.cell("s", "x")
    assert (answer["result"], answer["notice"][:36]) == ("[1, 2]", "variables are as they were saved at ")
