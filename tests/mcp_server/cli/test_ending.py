"""Sessions that a person ends on the command line."""

import os
import pty
import subprocess
from pathlib import Path

from command_line import answer, cli


def open_sessions() -> set[str]:
    return {row["session"] for row in answer("sessions")["sessions"]}


def ended_on_a_terminal(program: Path, said: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """Run `rlm-kernel end` with a person at the terminal who types an answer."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, said.encode())
        return subprocess.run([program, "end", *arguments], stdin=terminal, capture_output=True, check=False)
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_sessions_end_with_everything_in_them(daemon: Path) -> None:
    """Several in one command, each named once. One that is not there is told before any ends."""
    for session in ("trial", "other"):
        cli("run", "--session", session, "kept = 1")
    assert "there is no open session 'mistyped'" in cli("end", "trial", "mistyped", code=1).stderr
    assert {"trial", "other"} <= open_sessions()
    assert cli("end", "trial", "other", "trial").stdout == "ended trial\nended other\n"
    assert not {"trial", "other"} & open_sessions()
    assert "NameError" in cli("run", "--session", "trial", "kept", code=1).stderr


def test_a_person_at_a_terminal_is_asked(daemon: Path) -> None:
    """What is deleted cannot be brought back; `--yes` is an answer."""
    cli("run", "--session", "asked", "kept = 1")
    refused = ended_on_a_terminal(daemon, "n\n", "asked")
    assert refused.returncode == 1
    assert b"End asked, and delete everything in it?" in refused.stderr
    assert "asked" in open_sessions()
    assert ended_on_a_terminal(daemon, "", "asked", "--yes").returncode == 0
    assert "asked" not in open_sessions()
