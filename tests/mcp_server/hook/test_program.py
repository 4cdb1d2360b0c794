"""The program of the hooks, in real processes: it ends with 0 whatever happens, and loses nothing that it can keep."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlm_ipc.json_lines import PROTOCOL
from rlm_mcp.hook import program
from rlm_mcp.hook.blocks import BLOCKS, Installation
from rlm_mcp.hook.reading import DIALECTS
from rlm_memory.places import tree_of

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
EDIT = {"session_id": "s", "cwd": "/r", "tool_name": "Edit", "tool_input": {"file_path": "/r/a.py"}}


def spooled(installed: Installation) -> list[dict[str, Any]]:
    text = Path(installed.folder, "spool").read_text("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.fixture
def listening(installed: Installation) -> Iterator[Callable[[], socket.socket]]:
    """Listen where the daemon would; nobody accepts unless the test does."""
    with contextlib.ExitStack() as stack:

        def listen() -> socket.socket:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            path = Path(installed.folder, "d.sock")
            server.bind(str(path))
            server.listen(8)
            Path(installed.folder, "daemon").symlink_to(path)
            return server

        yield listen


def test_an_event_waits_in_the_spool_for_the_next_daemon(installed: Installation, run_hook: Run) -> None:
    """E-5: no daemon is started; what happened is kept as it came, with the processes above the hook."""
    done = run_hook("claude-code", "PostToolUse", EDIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (line,) = spooled(installed)
    assert json.loads(line["given"]) == EDIT
    assert (line["client"], line["event"]) == ("claude-code", "PostToolUse")
    assert os.getpid() in [ancestor["pid"] for ancestor in line["ancestors"]]
    assert stat.S_IMODE(Path(installed.folder, "spool").stat().st_mode) == 0o600


def test_what_only_asks_is_not_kept(installed: Installation, run_hook: Run) -> None:
    """A write that nobody could refuse is the client's business."""
    assert run_hook("claude-code", "PreToolUse", EDIT).stdout == b""
    assert not Path(installed.folder, "spool").exists()
    # Codex tells of a patch that a shell applies only before it does.
    assert run_hook("codex", "PreToolUse", EDIT).stdout == b""
    assert len(spooled(installed)) == 1


def test_hooks_that_write_at_once_keep_their_lines_whole(installed: Installation, run_hook: Run) -> None:
    """Each event is one write to a file opened to append."""
    given = EDIT | {"content": "x" * 50_000}
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: run_hook("codex", "PostToolUse", given | {"n": number}), range(24)))
    assert {hook.returncode for hook in done} == {0}
    assert {json.loads(line["given"])["n"] for line in spooled(installed)} == set(range(24))


def test_a_line_that_a_full_disk_has_cut_spoils_no_other(installed: Installation, run_hook: Run) -> None:
    """The next event begins on a line of its own."""
    Path(installed.folder, "spool").write_bytes(b'\n{"client":"claude-co')
    run_hook("claude-code", "PostToolUse", EDIT)
    last = Path(installed.folder, "spool").read_bytes().split(b"\n")[-2]
    assert json.loads(last)["event"] == "PostToolUse"


def test_a_spool_that_nobody_reads_does_not_fill_the_disk(installed: Installation, run_hook: Run) -> None:
    """From a size on events are dropped."""
    os.truncate(os.open(Path(installed.folder, "spool"), os.O_CREAT | os.O_RDWR), program.LARGEST_SPOOL)
    assert run_hook("claude-code", "PostToolUse", EDIT).returncode == 0
    assert Path(installed.folder, "spool").stat().st_size == program.LARGEST_SPOOL


@pytest.mark.parametrize(
    "before",
    ["exec <&-; ", "exec >&-; ", "exec 2>&-; ", "exec <&- >&- 2>&-; ", "ulimit -f 0; ", "cd / && ", "ulimit -n 3; "],
)
@pytest.mark.parametrize("event", ["PostToolUse", "SessionStart", "PreToolUse"])
def test_nothing_that_is_closed_or_full_makes_it_fail(run_hook: Run, before: str, event: str) -> None:
    """E-5: closed pipes, a full disk (no byte may be written), no descriptors."""
    done = run_hook("claude-code", event, EDIT, before=before)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    "given", [b"", b"{", b"\xff\xfe\x00", b'"' * 70_000, b"null", b"[" * 300_000, b"x" * 40_000_000]
)
def test_a_broken_event_is_no_failure(run_hook: Run, given: bytes) -> None:
    """Whatever a client gives is taken, read to its end, and never answered with an error."""
    done = run_hook("claude-code", "PostToolUse", given)
    assert (done.returncode, done.stdout) == (0, b"")


def test_an_installation_that_is_gone_stops_no_agent(installed: Installation, tmp_path: Path) -> None:
    """E-5: `python3 /missing.py` alone ends with 2, and five clients then refuse every call of a tool."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    crashing = tmp_path / "crashing"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    for python in ("/missing/python", str(tmp_path), str(broken), str(crashing), "/bin/cat", "/bin/false"):
        for packages, folder in ((installed.packages, installed.folder), ("/missing", "/missing"), ("", "")):
            command = Installation(python, packages, folder).command("codex", "PreToolUse")
            done = subprocess.run(["/bin/sh", "-c", command], input=b"{}", capture_output=True, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), command
    command = replace(installed, packages="/missing").command("claude-code", "SessionStart")
    assert subprocess.run(["/bin/sh", "-c", command], input=b"{}", capture_output=True, check=False).stdout == b""


def test_a_client_that_gives_nothing_is_not_waited_for(installed: Installation) -> None:
    """Its end of the pipe stays open: the program gives up by itself."""
    reader, writer = os.pipe()
    command = installed.command("claude-code", "PostToolUse")
    try:
        assert (
            subprocess.run(["/bin/sh", "-c", command], stdin=reader, capture_output=True, check=False).returncode == 0
        )
    finally:
        os.close(writer)
        os.close(reader)


def test_a_daemon_that_hangs_is_not_waited_for(
    installed: Installation, run_hook: Run, listening: Callable[[], socket.socket]
) -> None:
    """E-5: its connections are taken by the system and never answered. What happened is kept; a write goes on."""
    listening()
    assert run_hook("claude-code", "PostToolUse", EDIT).returncode == 0
    assert len(spooled(installed)) == 1
    asked = run_hook("claude-code", "PreToolUse", EDIT)
    assert (asked.returncode, asked.stdout) == (0, b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n",
        b'{"ok": false, "error": "x"}\n',
        b"\xff\n",
        b'"output": "',
        b'{"ok": true, "output": "cu',
        b"x" * 1000,
    ],
)
def test_a_daemon_that_answers_nonsense_refuses_nothing(
    installed: Installation, run_hook: Run, listening: Callable[[], socket.socket], answer: bytes
) -> None:
    """An older daemon does not know hooks at all."""
    server = listening()
    with ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            line, _ = server.accept()
            with line, contextlib.suppress(OSError):
                line.recv(65536)
                line.sendall(answer)

        serving = pool.submit(serve)
        done = run_hook("claude-code", "PostToolUse", EDIT)
        serving.result()
    assert (done.returncode, done.stdout) == (0, b"")
    assert len(spooled(installed)) == 1


def test_a_long_event_keeps_its_ends(installed: Installation, run_hook: Run) -> None:
    """What was written to a file is of no interest, the path and the end of an output are."""
    given = EDIT | {"tool_response": {"stdout": "a" * 300_000 + "2 passed in 0.1s"}}
    run_hook("claude-code", "PostToolUse", given)
    (line,) = spooled(installed)
    kept = json.loads(line["given"])
    assert kept["tool_input"] == EDIT["tool_input"]
    assert kept["tool_response"]["stdout"].endswith("2 passed in 0.1s")
    assert len(line["given"]) < 100_000


def git(*arguments: str, at: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=at, check=True, capture_output=True)


def places(tmp_path: Path) -> dict[str, Path]:
    """Make every kind of folder that a client may begin in."""
    repo = tmp_path / "a repo"
    (repo / "sub" / "deep").mkdir(parents=True)
    git("init", "-q", at=repo)
    git("commit", "-q", "--allow-empty", "-m", "x", at=repo)
    git("worktree", "add", "-q", str(tmp_path / "worktree"), at=repo)
    (tmp_path / "plain").mkdir()
    (tmp_path / "linked").symlink_to(repo)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / ".git").write_text("gitdir: /missing\n")
    return {
        "repository": repo,
        "below": repo / "sub" / "deep",
        "worktree": tmp_path / "worktree",
        "no repository": tmp_path / "plain",
        "link": tmp_path / "linked",
        "broken": tmp_path / "broken",
    }


def test_the_program_finds_the_tree_that_the_daemon_means(
    installed: Installation, run_hook: Run, tmp_path: Path
) -> None:
    """What is printed at the start of a client is that of its repository, from each of its worktrees."""
    for name, place in places(tmp_path).items():
        tree = tree_of(str(place), "s")
        file = Path(installed.folder, "prime", tree.lstrip("/"), "prime.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(f"where was I: {name} \u2713"))
        done = run_hook("claude-code", "SessionStart", {}, cwd=place)
        said = json.loads(done.stdout)["hookSpecificOutput"]
        assert said == {"hookEventName": "SessionStart", "additionalContext": f"where was I: {name} \u2713"}
        file.unlink()


@pytest.mark.parametrize(
    ("client", "event", "primed"),
    [
        ("claude-code", "SubagentStart", True),
        ("codex", "SessionStart", True),
        ("gemini-cli", "BeforeAgent", True),
        ("qwen-code", "SessionStart", True),
        ("copilot-cli", "sessionStart", True),
        ("claude-code", "PostCompact", False),
        ("claude-code", "PostToolUse", False),
    ],
)
def test_a_client_is_told_where_it_was_when_it_begins(
    installed: Installation, run_hook: Run, tmp_path: Path, client: str, event: str, primed: bool
) -> None:
    """Without a daemon too; after a compaction by the session that begins anew, and not by its end as well."""
    file = Path(installed.folder, "prime", str(tmp_path.resolve()).lstrip("/"), "prime.json")
    file.parent.mkdir(parents=True)
    file.write_text('"where was I"')
    out = run_hook(client, event, {}).stdout
    assert ("where was I" in out.decode()) is primed
    if primed:
        said = json.loads(out)
        assert (said if client == "copilot-cli" else said["hookSpecificOutput"])["additionalContext"] == "where was I"


@pytest.mark.parametrize("client", BLOCKS)
def test_every_event_that_is_registered_is_one_that_is_read(installed: Installation, client: str) -> None:
    """Each costs its client a process: none is registered for nothing."""
    block = BLOCKS[client]
    assert installed.folder in block.render(block.events, partial(installed.command, client), installed)
    for event in block.events:
        assert event in DIALECTS[client].kinds or event in program.PRIMED, event


def test_the_program_speaks_the_protocol_of_the_daemon() -> None:
    """It cannot import the number: that would cost more than all that it does."""
    assert program.PROTOCOL == PROTOCOL


def test_the_program_imports_nothing_that_has_to_be_read(installed: Installation) -> None:
    """Twenty milliseconds are the start of the interpreter: neither `os` nor `json` is in them."""
    code = (
        "import sys; sys.path.append(sys.argv[1]); import rlm_mcp.hook.program as program; import posix;"
        "posix.chdir(sys.argv[2]); program._spool(program._request('c', 'e', '{}'));"
        "program._ask(b''); print(sorted({'os', 'json', 're', 'socket', 'site'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, installed.packages, installed.folder], capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"
