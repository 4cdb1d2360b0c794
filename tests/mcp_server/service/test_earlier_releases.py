"""Sessions cross from releases of the past to this version and back: with their variables, texts and processes.

The releases are built from the repository's tags, the latest and the oldest. `RLM_EARLIER="COMMIT ..."` names others.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import cli
from command_line import run as run_here
from earlier_version import earlier, installed
from waiting import PROGRAM_SECONDS

pytestmark = pytest.mark.usefixtures("real_starts", "ended")
LOOK = "import os; (x, y is x, log['line_count'], os.getpid())"


def _said(command: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [command, *arguments, "--json"], capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _here(*arguments: str) -> Any:
    done = run_here([*arguments, "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("release", earlier())
def test_a_session_crosses_from_a_release_and_back(release: str, tmp_path: Path) -> None:
    """Whichever way a user goes, `upgrade` says before that nothing is lost, and nothing is."""
    command, text = installed(release, tmp_path), tmp_path / "text.txt"
    text.write_text("a line\n" * 100)
    _said(command, "load", "log", str(text), "--session", "s")
    kernel = _said(command, "run", "--session", "s", "import os\nx = [1]\ny = x\nos.getpid()")["result"]
    assert [row["lost"] for row in _here("upgrade", "--check")["sessions"]] == [[]]
    assert _here("upgrade")["done"]
    assert _here("run", "--session", "s", LOOK)["result"] == f"([1], True, 100, {kernel})"
    _here("run", "--session", "s", "x.append(2)")
    assert _said(command, "upgrade")["done"]
    assert _said(command, "run", "--session", "s", LOOK)["result"] == f"([1, 2], True, 100, {kernel})"
    _said(command, "daemon", "stop")
    assert _here("run", "--session", "s", LOOK)["result"] == f"([1, 2], True, 100, {kernel})", "without a command"
    cli("daemon", "stop", "--all")
