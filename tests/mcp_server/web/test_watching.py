"""`rlm-kernel top` and `rlm-kernel web`: the sessions in a terminal, and the way to the page."""

import json
import os
import pty
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import cli
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery

PROGRAM = Path(sys.executable).with_name("rlm-kernel")


@pytest.fixture(scope="module")
def sessions(daemon: Path) -> None:
    """A session with an open query, and its fork, beside the daemon's first session."""
    call_tool("eval_code", {"code": "x = b'x' * 8_000_000; q = llm_query('what\\nnow?')"}, session="trunk")
    call_tool("fork_session", {"name": "branch"}, session="trunk")


def _top(*options: str) -> str:
    return cli("top", *options).stdout


def test_a_script_gets_the_sessions_as_json(sessions: None) -> None:
    """One object: open sessions with memory, walls and queries, what has ended, and what waits for an answer."""
    seen = json.loads(_top("--json"))
    rows = {row["session"]: row for row in seen["sessions"]}
    assert rows["branch"]["parent"] == "trunk"
    assert rows["trunk"]["memory_bytes"] > 4_000_000
    assert [(query["session"], query["id"], query["prompt"]) for query in seen["asked"]] == [
        ("trunk", "q_000", "what\nnow?"),
    ]


def test_once_prints_a_table_and_ends(sessions: None) -> None:
    """The fork stands below its parent; sums come first, open queries last."""
    lines = _top("--once").splitlines()
    assert lines[0].startswith("3 sessions, 0 running, ")
    [trunk] = [number for number, line in enumerate(lines) if line.startswith("trunk  ")]
    assert lines[trunk + 1].lstrip().startswith("└\u00a0branch")
    assert "trunk q_000: what" in lines


def test_each_running_goal_has_a_line_that_fits(sessions: None) -> None:
    """Id, status, session, and of the goal what the width has room for; what would move the cursor is left out."""
    goal = "count\x1b[2J the errors of " + "every service " * 10
    pushed = call_tool("push", {"goal": goal}, session="trunk")
    planned = call_tool("plan", {"goal": "not begun"}, session="trunk")
    [line] = [line for line in _on_terminal(60) if line.startswith(f"{pushed['frame']} ")]
    assert line.split()[:3] == [pushed["frame"], "in_progress", pushed["session"]]
    assert "count the" in line
    assert len(line) <= 60
    assert line.endswith("…")
    assert planned["frame"] not in _top("--once").split()
    [row] = [row for row in json.loads(_top("--json"))["frames"] if row["id"] == pushed["frame"]]
    assert (row["session"], row["goal"][:9]) == (pushed["session"], "count the")
    call_tool("pop", {"id": pushed["frame"]}, session="trunk")
    assert pushed["frame"] not in _top("--once").split()


def test_it_follows_in_a_terminal_until_it_is_interrupted(sessions: None) -> None:
    """Ctrl-C ends it in order, also where a shell has it ignored, and the terminal has its own screen back."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", PROGRAM, "top", "--interval", "0.1"]
    process = subprocess.Popen(command, stdout=slave, stdin=slave, env=environment)
    os.close(slave)
    seen = b""
    while seen.count(b"trunk") < 3:
        seen += os.read(master, 65536)
    process.send_signal(signal.SIGINT)
    while chunk := _read(master):
        seen += chunk
    os.close(master)
    assert process.wait(60) == 0
    assert seen.rstrip().endswith((b"\x1b[?1049l\x1b[?25h", b"\x1b[?25h\x1b[?1049l"))


def _on_terminal(width: int) -> list[str]:
    """What `top --once` prints on a terminal of that width."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(width)}
    process = subprocess.Popen([PROGRAM, "top", "--once"], stdout=slave, stdin=slave, env=environment)
    os.close(slave)
    seen = b""
    while chunk := _read(master):
        seen += chunk
    os.close(master)
    assert process.wait(60) == 0
    return [line.rstrip() for line in seen.decode().splitlines()]


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the other end is closed
        return b""


# --- the way to the page --------------------------------------------------------------------------


@contextmanager
def _web(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Open the page as a person does; gives the process and its address. It ends by Ctrl-C, in order."""
    process = subprocess.Popen([PROGRAM, "web", "--port", "0", *options], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            yield process, said.split()[-1]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_the_address_that_is_printed_opens_the_page(sessions: None) -> None:
    """What stands behind the # is the key: with it the sessions are told, and soon after Ctrl-C nobody answers."""
    with _web() as (_, address):
        url, _, token = address.partition("#token=")
        request = urllib.request.Request(f"{url}api/live", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert "trunk" in {row["session"] for row in json.loads(answer.readline())["sessions"]}
    wait_until(lambda: not _answers(url))


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except OSError:  # nobody listens, or it hung up on this very request
        return False
    return True


def test_the_browser_is_opened_by_a_file_that_only_its_user_can_read(
    sessions: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is in no program's arguments, which other users can see; the file is gone when the page is."""
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    os.mkfifo(seen)
    browser.write_text(f'#!/bin/sh\nstat -c %a "${{1#file://}}" >{seen}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with _web("--open") as (_, address):
        assert seen.read_text().strip() == "600"
        [file] = discovery.runtime_dir().glob("web-*.html")
        assert address in file.read_text()
    assert not file.exists()
