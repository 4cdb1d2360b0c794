"""The client of the context lock's protocol, on a real daemon with a real scanner."""

import json
import random
import socket
import string
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_client import Client
from rlm_client.jcode import JCodeClient
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeHttp
from rlm_ipc.errors import DaemonUnavailable, ToolFailed


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def here(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a small repository, with a real daemon."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("import json\n\n\ndef main():\n    return json\n")
    (folder / "AGENTS.md").write_text("Run the tests before you commit.\n")
    git(folder, "init", "--quiet")
    git(folder, "add", "-A")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(params=["socket", "HTTP"])
def way(request: pytest.FixtureRequest, here: Path) -> Iterator[dict[str, str]]:
    """How a client reaches the daemon: the arguments for it."""
    session = here.parent.name[:60]
    if request.param == "socket":
        yield {"session": session}
        return
    with Client(session) as opened:
        opened.eval_code("1")  # the session has the project that its first client works in
    with DaemonConnection(ServeHttp(port=0)) as control:
        token = Path(control.reply.token_file).read_text().strip()
        yield {"url": control.reply.url, "token": token, "session": session}


def test_the_client_of_the_protocol_runs_the_examples_of_its_document(way: dict[str, str]) -> None:
    """L-15: P0, then a quick check whose count differs once a file was added."""
    with JCodeClient(context_lock_id="omo_session_abc123", **way) as client:
        named = {"lock_id": client.context_lock_id}
        fields = ["project", "keyfiles", "rules", "history"]
        lock_data = client.call_tool("jcode.lock", {**named, "priority": "P0", "fields": fields})
        assert lock_data["ttl_seconds"] == 3600
        assert set(lock_data["content"]) == set(fields)
        previous_count = lock_data["content"]["project"]["files"]["count"]
        quick = {**named, "priority": "P3", "fields": ["project"]}
        assert client.call_tool("jcode.lock", quick)["content"]["project"]["files"]["count"] == previous_count
        with pytest.raises(ToolFailed) as refused:
            client.call_tool("jcode.lock", {"lock_id": "unknown", "priority": "P1"})
        assert refused.value.answer["verifiability"] == "NON-VERIFIABLE"


def test_a_client_that_nobody_answers_over_http_says_what_to_do(here: Path) -> None:
    """L-15: whether nothing listens there, or the token is wrong."""
    with DaemonConnection(ServeHttp(port=0)) as control, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
        for url in (control.reply.url, f"http://127.0.0.1:{nobody.getsockname()[1]}/mcp"):
            with JCodeClient("x", url=url, token="wrong") as client, pytest.raises(DaemonUnavailable, match="serve"):
                client.call_tool("jcode.lock")


def test_the_client_of_the_protocol_gets_what_an_answer_had_no_room_for(here: Path, way: dict[str, str]) -> None:
    """L-13, L-15: whole sections, unless they are larger than a megabyte when compressed."""
    for number in range(300):
        folder = here / f"packages/package_{number:03}"
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(f"{number}\n")
    git(here, "add", "-A")
    with JCodeClient("big", **way) as client:
        told = client.call_tool("lock", {"lock_id": "big", "priority": "P0"})
        assert len(told["content"]["project"]["directories"]["paths"]) == 302
        assert "truncated" not in told
        assert client.call_tool("list_vars")["variables"]


def test_what_is_larger_than_a_megabyte_when_compressed_is_cut_and_said_to_be(here: Path, way: dict[str, str]) -> None:
    """L-13, L-15: the program gets as much as fits, all fields of it, and how many there are."""
    chance = random.Random(28)
    for _ in range(7_000):
        folder = here / "".join(chance.choices(string.ascii_letters + string.digits, k=250))
        folder.mkdir()
        (folder / "x").touch()
    git(here, "add", "-A")
    with JCodeClient("huge", **way) as client:
        named = {"lock_id": "huge", "priority": "P0"}
        while (told := client.call_tool("lock", named))["content"]["project"]["files"]["count"] != 7_002:
            pass
    assert told["truncated"]
    assert len(zlib.compress(json.dumps(told).encode())) <= 1 << 20
    directories = told["content"]["project"]["directories"]
    assert 0 < len(directories["paths"]) < directories["count"] == 7_001
    assert set(told["content"]) == {"project", "keyfiles", "rules"}
