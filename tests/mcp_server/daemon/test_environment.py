"""What the daemon's environment holds stays there: each process that the daemon starts is looked at while it lives."""

import contextlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from serving import the_daemon, the_supervisor
from session_processes import keeper_of, kernels_below, standby_of

from rlm_client.client import call_tool
from rlm_ipc.environment import HELPER, SUPERVISOR, TRUST, ZYGOTE
from rlm_ipc.errors import ToolFailed
from rlm_kernel.supervisor.processes.zygote_start import LARGE_COPIES, QUIET_LIBRARIES

pytestmark = pytest.mark.usefixtures("real_starts")
SECONDS = 60
SECRETS = {
    "MY_PASSPHRASE": "correct horse",
    "DATABASE_URL": "postgres://me:correct-horse@db/x",
    "HTTPS_PROXY": "http://me:correct-horse@proxy:3128",
    "RLM_KERNEL_OURS": "correct horse",
    "AWS_SECRET_ACCESS_KEY": "correct horse",
    "LC_PASS": "correct horse",
}
OWN_FOLDER = {"HOME", "TMPDIR"}
FOR_KERNELS = {"LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE", *QUIET_LIBRARIES, *LARGE_COPIES}


def environment(pid: int) -> dict[str, str]:
    """What a process was started with, as anybody can read it who may read its memory."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if entry)


def new_helper(daemon: psutil.Process, known: set[psutil.Process], call: Future[Any] | None = None) -> psutil.Process:
    """The first helper process that is not known yet, as soon as there is one; ``call`` is what has it started.

    The process for searches is kept, so it lives beside those that do one job.
    """
    until = threading.Event()
    for _ in range(SECONDS * 100):
        for child in daemon.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child not in known and "rlm_contexts.helpers" in child.cmdline():
                    known.add(child)
                    return child
        assert call is None or not call.done(), call.result()
        until.wait(0.01)
    raise AssertionError("there is no new helper process")


@pytest.fixture
def waiting_site() -> Any:
    """A server that answers when it is told to, so that what asks it lives until then; and its address."""
    go_on = threading.Event()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            go_on.wait(SECONDS)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"late\n")

        def log_message(self, *_: object) -> None:
            """Tell nobody."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", go_on
        go_on.set()
        server.shutdown()


@pytest.mark.usefixtures("ended")
def test_no_process_that_is_started_has_a_secret_whatever_it_is_called(
    isolation: Any, monkeypatch: pytest.MonkeyPatch, waiting_site: Any
) -> None:
    """Ours: supervisor, zygote, workers, helper processes and searches have the variables of a list, and no other."""
    site, go_on = waiting_site
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    (isolation.config / "policies").mkdir()
    (isolation.config / "policies" / "reader.yaml").write_text(f"extends: default\nurls: ['{site}']\n")

    def call(tool: str, **arguments: Any) -> Any:
        return call_tool(tool, arguments, session="s", policy="reader")

    call("eval_code", code="1")
    call("load_context", name="log", content="aab\n" * 10)
    call("scan", name="log", pattern=r"(a+)b\1?(?=x|$)")
    daemon, supervisor = psutil.Process(the_daemon()), psutil.Process(the_supervisor())
    assert environment(daemon.pid).items() >= SECRETS.items()
    known: set[psutil.Process] = set()
    found = {
        "supervisor": (supervisor, set(SUPERVISOR)),
        "search": (new_helper(daemon, known), {*HELPER, *OWN_FOLDER}),
    }
    keeper, standby = keeper_of(supervisor.pid), standby_of(supervisor.pid)
    assert standby is not None
    found |= {f"kernel {child.pid}": (child, FOR_KERNELS | set(ZYGOTE)) for child in kernels_below(keeper)}
    found |= {"keeper": (keeper, set(SUPERVISOR)), "standby": (standby, set(SUPERVISOR))}
    assert len(found) > 5
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(call, "load_context", name="page", path=site)
        found["url"] = new_helper(daemon, known, loading), {*HELPER, *TRUST, *OWN_FOLDER}
        assert set(environment(found["url"][0].pid)) <= found["url"][1]
        go_on.set()
        assert loading.result()["size"] == 5
        asking = pool.submit(call, "query", name="log", sql="SELECT count(*) FROM range(1000000000000)")
        found["sql"] = new_helper(daemon, known, asking), {*HELPER, *OWN_FOLDER}
        has = {what: environment(process.pid) for what, (process, _) in found.items() if what != "url"}
        found["sql"][0].kill()
        assert isinstance(asking.exception(), ToolFailed)
    for what, variables in has.items():
        assert set(variables) <= found[what][1], what
        assert "horse" not in repr(variables), what
