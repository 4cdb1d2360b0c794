"""Ctrl-C at a prompt: each command says what was stopped and what is kept, and ends with exit code 130."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from command_line import answer, cli
from waiting import wait_until

from rlm_ipc.daemon_connection import ask
from rlm_ipc.errors import DaemonUnavailable
from rlm_ipc.session_requests import ListSessions

RUN = [sys.executable, "-P", "-m", "rlm_mcp"]


def interrupted(*arguments: str, when: Callable[[], bool]) -> str:
    """Run a command and press Ctrl-C at it; return what it says then."""
    process = subprocess.Popen([*RUN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(when)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    return said


def kernels() -> dict[str, str]:
    """The open sessions, each with what its kernel does."""
    try:
        return {row.session: row.kernel for row in ask(ListSessions()).sessions}
    except DaemonUnavailable:
        return {}


def test_code_stops_and_the_journal_has_what_it_printed(daemon: Path) -> None:
    """Variables stay; what was printed by then is not lost, though the command shows nothing of it."""
    cli("run", "1", "--session", "loop")
    there = Path(answer("sessions", "loop")["kernel"]["scratch"]) / "there"
    code = f"print('begun'); kept = 1; open({str(there)!r}, 'w').close()\nwhile True: pass"
    said = interrupted("run", code, "--session", "loop", when=there.exists)
    assert "interrupted: the code was stopped; the session keeps its variables" in said
    assert "`rlm-kernel journal loop --last 1` shows what it printed" in said
    assert "begun" in cli("journal", "loop", "--last", "1").stdout
    assert cli("run", "kept", "--session", "loop").stdout == "1\n"


def test_a_replay_ends_its_session(daemon: Path, tmp_path: Path) -> None:
    """The session was there for the replay alone."""
    cell = {"cell_type": "code", "id": "a", "source": "while True: pass", "metadata": {}, "outputs": []}
    file = tmp_path / "endless.ipynb"
    file.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, "execution_count": 1}]})
    )
    said = interrupted("replay", str(file), when=lambda: "busy" in replays())
    assert "interrupted: the replay was stopped, and its session has ended" in said
    assert not replays()


def replays() -> list[str]:
    return [kernel for session, kernel in kernels().items() if session.startswith("replay-")]


def test_a_demonstration_leaves_no_session(daemon: Path, tmp_path: Path) -> None:
    """What is half done, nobody looks at."""
    (tmp_path / "app.log").write_text("10:00:00 INFO started\n")
    said = interrupted("demo", "--file", str(tmp_path / "app.log"), when=lambda: any(map(is_demo, kernels())))
    assert "interrupted: the demonstration was stopped, and its session has ended" in said
    assert not any(map(is_demo, kernels()))


def is_demo(session: str) -> bool:
    return session.startswith("demo-")


def test_a_command_that_reads_the_terminal_says_so(daemon: Path) -> None:
    """Without a word it looks as if it hung; Ctrl-C then loads nothing."""
    keyboard, terminal = pty.openpty()
    command = [*RUN, "load", "log", "-", "--session", "typed"]
    with subprocess.Popen(command, stdin=terminal, stderr=subprocess.PIPE, text=True) as process:
        os.close(terminal)
        assert process.stderr is not None
        assert "end the text with Ctrl-D on its own line" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert "interrupted: nothing was loaded; the session is unchanged" in process.stderr.read()
    os.close(keyboard)
    assert process.returncode == 130
    assert "typed" not in kernels()


def test_a_fork_takes_its_name_as_people_write_it(daemon: Path) -> None:
    """``fork A B`` as ``cp A B``; two different names are wrong usage."""
    cli("run", "kept = 1", "--session", "stem")
    assert answer("fork", "stem", "twig")["session"] == "twig"
    assert cli("run", "kept", "--session", "twig").stdout == "1\n"
    assert "give the new session only one name: a or b" in cli("fork", "stem", "a", "--name", "b", code=2).stderr
