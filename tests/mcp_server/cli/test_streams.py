"""Streams that are closed or full, a folder that is gone, what is no text: what scripts hand to commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import cli

RUN = [sys.executable, "-P", "-m", "rlm_mcp"]


def shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose streams a shell redirects."""
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", *RUN, *arguments]
    return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("redirection", "code", "ends"),
    [(">&-", "print(1)", 0), ("<&-", "print(1)", 0), ("2>&-", "1 / 0", 1), ("<&- >&- 2>&-", "1 / 0", 1)],
)
def test_a_command_works_without_a_stream_that_the_caller_has_closed(redirection: str, code: str, ends: int) -> None:
    """A service may have none of them: what would be printed is dropped, and the exit code is right."""
    done = shell(redirection, "run", code, "--session", "closed")
    assert (done.returncode, done.stderr) == (ends, "")


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("arguments", [("run", "1 + 1"), ("sessions", "--json"), ("--help",)])
@pytest.mark.parametrize("buffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_one_line(
    arguments: tuple[str, ...], buffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, at once or at the end of the program: no traceback, and no exit code that says all is well."""
    monkeypatch.setenv("PYTHONUNBUFFERED", buffered)
    done = shell(">/dev/full", *arguments)
    assert (done.returncode, done.stderr) == (
        1,
        "rlm-kernel: cannot write the output: No space left on device\n",
    )


def test_a_reader_that_has_gone_is_no_error_to_speak_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `rlm-kernel sessions --json | head -1` has it: nothing on standard error."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, "policy", "schema"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.usefixtures("daemon")
def test_a_file_whose_name_is_no_text_is_named_with_another_way(tmp_path: Path) -> None:
    """Every message of ours is text; the file can be read from standard input."""
    (tmp_path / os.fsdecode(b"b\xe4d.txt")).write_text("x")
    refused = cli("load", "bad", str(tmp_path / os.fsdecode(b"b\xe4d.txt")), code=2)
    assert "is not UTF-8; rename it, or load it with: rlm-kernel load bad - < FILE" in refused.stderr


@pytest.mark.usefixtures("daemon")
def test_text_that_is_not_utf_8_is_said_and_how_to_go_on(tmp_path: Path) -> None:
    """In a file, and in an answer that comes from standard input."""
    (tmp_path / "latin").write_bytes(b"b\xe4d")
    said = cli("work", "handoff", "f1", "--summary", "s", "--details", str(tmp_path / "latin"), code=2).stderr
    assert said.endswith("latin is not UTF-8 text; save it as UTF-8\n")
    done = shell(f"<{tmp_path}/latin", "answer", "q_000", "-")
    assert (done.returncode, "save as UTF-8 what it was read from" in done.stderr) == (1, True)


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    """As after somebody has removed a worktree in which a shell still is."""
    (tmp_path / "gone").mkdir()
    line = ["sh", "-c", 'cd "$1"; rmdir "$1"; shift; exec "$@"', "sh", str(tmp_path / "gone"), *RUN, "lock"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stderr == "rlm-kernel: the working directory does not exist any more; change to one that does\n"
    assert done.returncode == 4
