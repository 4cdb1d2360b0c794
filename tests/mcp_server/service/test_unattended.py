"""Idle sessions while no daemon is there: the supervisor saves or ends them, and the next daemon tells what came of it.

The processes are real ones, and the daemon is stopped as its user does it.
"""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import cli
from session_processes import runs
from waiting import wait_until

from rlm_client.client import Client, call_tool
from rlm_ipc import discovery, left_kernels
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.session_requests import ListSessions

pytestmark = pytest.mark.usefixtures("shared_processes")
SHORT = "extends: default\nlimits: {idle_seconds: 0.5}\nreopen: %s\n"


def _policy(name: str, *, reopen: bool) -> None:
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(SHORT % json.dumps(reopen))


def _left(session: str | None = None) -> list[str]:
    """Return the names of the files that are there, or of those of one session: another test's may have idled, too."""
    folder = discovery.state_dir() / left_kernels.FOLDER
    found = left_kernels.left_kernels(folder)
    return [path.name for path, file in found if session is None or (file and file.left.label["session"] == session)]


def _idles_away(client: Client) -> None:
    """Stop the daemon, and wait until the supervisor has ended the session by itself."""
    found = client.call("status")["kernel"]
    kernel, scratch = psutil.Process(found["pid"]), Path(found["scratch"])
    client.close()
    cli("daemon", "stop")
    wait_until(lambda: not runs(kernel))
    wait_until(lambda: not scratch.exists())


def _used(session: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("RLM_KERNEL_POLICY", policy)
    client = Client(session)
    client.call("load_context", name="log", content="some text")
    assert client.call("eval_code", code="kept = [1, 2]\nother = kept")["success"]
    monkeypatch.delenv("RLM_KERNEL_POLICY")
    return client


def _sessions() -> tuple[list[str], list[str]]:
    with DaemonConnection(ListSessions(), start=True) as control:
        reply = control.reply
    return [row.session for row in reply.sessions], [row.session for row in reply.resting]


def test_a_session_comes_back_that_the_supervisor_has_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests, with text, variables and what refers to what; the answer says as of when."""
    _policy("short", reopen=True)
    _idles_away(_used("back", "short", monkeypatch))
    assert len(_left("back")) == 1
    opened, resting = _sessions()
    assert ("back" in opened, "back" in resting) == (False, True)
    assert _left() == []
    answer = call_tool("eval_code", {"code": "(kept, kept is other, log['content'])"}, session="back")
    assert answer["result"] == "([1, 2], True, 'some text')"
    assert answer["notice"].startswith("variables are as they were saved at ")


def test_a_session_that_does_not_come_back_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-14: the daemon says so as if it had been there."""
    _policy("once", reopen=False)
    _idles_away(_used("ends", "once", monkeypatch))
    assert "ends" not in _sessions()[1]
    answer: dict[str, Any] = call_tool("list_vars", {}, session="ends")
    assert answer["variables"] == []
    assert answer["notice"].startswith("the session was idle for 0.5 seconds and expired at ")
    assert answer["notice"].endswith(": 1 text (9 bytes) and its variables are gone; load them again")


def test_a_file_that_is_damaged_or_of_another_daemon_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session goes on without its variables, and says so; nothing stays behind."""
    _policy("short", reopen=True)
    _idles_away(_used("torn", "short", monkeypatch))
    folder = discovery.state_dir() / left_kernels.FOLDER
    (name,) = _left("torn")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-20])
    (folder / "empty").touch()
    (folder / f"{left_kernels._TEMPORARY}half").write_bytes(b"rlmvars3")
    (folder / "other").write_bytes(whole.replace(b'"owner": "/', b'"owner": "_'))
    _sessions()
    assert _left() == []
    answer = call_tool("eval_code", {"code": "log['content']"}, session="torn")
    assert answer["result"] == "'some text'"
    assert "variables" in answer["notice"]
