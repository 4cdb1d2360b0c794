"""The command line while a load takes long: a bar on a terminal, nothing elsewhere."""

import http.server
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("rlm-kernel"))
SECONDS = 60


class Halves(http.server.BaseHTTPRequestHandler):
    """A page whose second half comes when it is told to."""

    seen: threading.Event

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4000")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"x" * 2000)
            self.seen.wait(SECONDS)
            self.wfile.write(b"y" * 2000)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def page(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, threading.Event]]:
    """A page's URL, which the policy permits, and what lets its second half come."""
    seen = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Halves,), {"seen": seen}))
    url = f"http://127.0.0.1:{server.server_port}/"
    (tmp_path / "web.yaml").write_text(f"description: A server.\nextends: default\nurls: ['{url}']\n")
    monkeypatch.setenv("RLM_KERNEL_POLICY", str(tmp_path / "web.yaml"))
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    yield url + "page", seen
    seen.set()
    server.shutdown()
    server.server_close()


def test_a_terminal_shows_how_far_a_load_has_come(page: tuple[str, threading.Event]) -> None:
    """Ours: the second half comes when the bar is seen."""
    url, seen = page
    master, slave = pty.openpty()
    command = [PROGRAM, "load", "log", url, "--session", "bar"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(slave)
        shown = b""
        while b"loading log" not in shown:
            shown += os.read(master, 4096)
        seen.set()
        printed, _ = process.communicate(timeout=SECONDS)
    os.close(master)
    assert process.returncode == 0
    assert b"size: 4000" in printed


def test_a_pipe_gets_the_answer_only(page: tuple[str, threading.Event]) -> None:
    """What a program reads has no bar in it."""
    url, seen = page
    seen.set()
    command = [PROGRAM, "load", "log", url, "--session", "pipe", "--json"]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
    assert done.stderr == b""
    assert b'"size": 4000' in done.stdout
