"""What passes through the front: a real process between a client and a running daemon."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from rlm_mcp.front.__main__ import StdioFront, main


def test_the_daemon_learns_who_the_client_is(
    open_front: Callable[..., Any], shared_daemon: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """K-12: folder, process and the session variables of the client's environment reach the tools."""
    monkeypatch.setenv("PARENT_SESSION_ID", "ses_parent")
    monkeypatch.setenv("SECRET_TOKEN", "not for the daemon")
    front = open_front(cwd=tmp_path)
    front.initialize()
    who = json.loads(front.text(front.call("who")))
    assert who["cwd"] == str(tmp_path)
    assert who["env"] == {"PARENT_SESSION_ID": "ses_parent"}
    assert who["pid"] == front.process.pid


def test_fronts_that_start_at_once_share_one_daemon(open_front: Callable[..., Any], shared_daemon: Any) -> None:
    """K-9: agents whose clients start one server process each still meet in one daemon."""
    fronts = [open_front() for _ in range(6)]
    for front in fronts:
        front.initialize()
    daemons = {json.loads(front.text(front.call("who")))["daemon"] for front in fronts}
    assert len(daemons) == 1


def test_the_front_ends_when_its_client_is_gone(open_front: Callable[..., Any], shared_daemon: Any) -> None:
    """End of input ends the front with exit code 0, and not the daemon."""
    front = open_front()
    front.initialize()
    front.text(front.call("who"))
    assert front.close() == 0
    assert shared_daemon.pid() is not None


def test_an_endless_line_is_refused_and_the_next_call_works(open_front: Callable[..., Any], shared_daemon: Any) -> None:
    """A 200 MB line gets a JSON-RPC error with its id and the way to load a large text."""
    front = open_front()
    front.initialize()
    front.write(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"size","arguments":{"text":"')
    for _ in range(200):
        front.write(b"x" * 1_000_000)
    front.write(b'"}}}\n')
    error = front.answer(77)["error"]
    assert "load_context" in error["message"]
    assert front.text(front.call("echo", text="after")) == "after"


def test_a_line_of_ten_megabytes_passes(open_front: Callable[..., Any], shared_daemon: Any) -> None:
    """Large but allowed arguments reach the tool whole."""
    front = open_front()
    front.initialize()
    assert front.text(front.call("size", text="y" * 10_000_000)) == "10000000"


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1',
        b"[]",
        b"null",
        b'{"id":{}}',
        b"[" * 100_000,
        b"\0",
    ],
    ids=["words", "not-utf8", "cut-off", "batch", "null", "odd-id", "deep", "nul"],
)
def test_garbage_is_answered_and_does_no_harm(open_front: Callable[..., Any], shared_daemon: Any, line: bytes) -> None:
    """Hostile lines: an error for each, and the same connection goes on."""
    front = open_front()
    front.initialize()
    front.write(line + b"\n")
    assert "error" in front.receive()
    assert front.text(front.call("echo", text="after")) == "after"


def test_the_front_imports_nothing_but_the_standard_library() -> None:
    """Clients wait for the front: no pydantic, typer or SDK in it, and not even pathlib or typing."""
    code = (
        "import sys; before = set(sys.modules); import rlm_mcp.front.__main__\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded <= sys.stdlib_module_names | {"rlm_mcp", "rlm_ipc"}
    assert not loaded & {"typing", "pathlib", "subprocess", "asyncio", "tempfile", "inspect"}


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_sdks_own_client_works_in_both_eras(shared_daemon: Any, era: Any) -> None:
    """K-27: the official client over stdio, with the handshake of 2025 and with the envelope of 2026."""
    arguments = ["-P", "-m", "rlm_mcp.front", "--server", shared_daemon.server]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    with anyio.fail_after(60):
        async with Client(stdio_client(server), mode=era) as client:
            result = await client.call_tool("echo", {"text": "hello"})
            assert result.content[0].text == "hello"  # type: ignore[union-attr]
            assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")


def test_a_front_that_fails_lets_go_of_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its tasks would stay claimed until its process has ended, if something waits for that."""
    let_go: list[StdioFront] = []

    def fails(_: StdioFront) -> None:
        raise RuntimeError("unforeseen")

    def lets_go(front: StdioFront) -> None:
        let_go.append(front)

    monkeypatch.setattr(StdioFront, "run", fails)
    monkeypatch.setattr(StdioFront, "let_go", lets_go)
    with pytest.raises(RuntimeError, match="unforeseen"):
        main()
    assert len(let_go) == 1
