"""When the machine runs out of something or loses something: a clear error, nothing corrupted, and it works again."""

import contextlib
import resource
import shutil
import threading
from typing import Any

import psutil
import pytest
from session_processes import descendants, is_supervisor, runs
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus
from rlm_ipc.errors import ToolFailed
from rlm_ipc.session_requests import ListJournal, SaveSession

pytestmark = pytest.mark.usefixtures("everything_ended")
LARGE = "x" * 99 + "\n"


def call(tool: str, session: str = "s", **arguments: Any) -> dict[str, Any]:
    """Call a tool in a session; an error is an answer too."""
    try:
        return call_tool(tool, arguments, session=session)
    except ToolFailed as error:
        return error.answer


def daemon_pid() -> int:
    with DaemonConnection(ShowStatus(), start=True) as control:
        return int(control.pid)


@contextlib.contextmanager
def limited(pid: int, kind: int, limit: int) -> Any:
    """Lower a limit of a running process for a while."""
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, before)


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path) -> None:
    """K-17: no text, no row and no snapshot half written; the first call after there is room works."""
    file = tmp_path / "s.rlmsnap"
    call("load_context", name="kept", content="alpha\nbeta")
    assert call("eval_code", code="import random; x, noise = 1, random.randbytes(20_000)")["success"]
    with DaemonConnection(SaveSession(session="s", file=str(file), embed=True), start=True):
        whole = file.read_bytes()
    with limited(daemon_pid(), resource.RLIMIT_FSIZE, 4096):
        refused = call("load_context", name="large", content=LARGE * 1000)
        assert refused["error"] == "store_unavailable", refused
        assert refused["message"].endswith(" cannot be written (File too large); free some space"), refused
        assert call("eval_code", code="y = '" + "z" * 9000 + "'")["success"]
        with contextlib.suppress(Exception), DaemonConnection(SaveSession(session="s", file=str(file), embed=True)):
            pass
        assert file.read_bytes() == whole
    assert call("load_context", name="large", content=LARGE * 1000)["line_count"] == 1000
    assert call("peek", name="kept")["content"] == "alpha\nbeta"
    assert call("eval_code", code="x, len(y), large['line_count']")["result"] == "(1, 9000, 1000)"
    with DaemonConnection(ListJournal(session="s", last=None)) as control:
        assert [cell.code[:5] for cell in control.reply.cells] == ["impor", "y = '", "x, le"]
    assert [path.name for path in tmp_path.iterdir()] == ["s.rlmsnap"]


def test_a_full_disk_costs_the_whole_of_an_output_and_not_its_cell() -> None:
    """The supervisor keeps what is over the cap in a file; without room for it the shown part arrives all the same."""
    assert call("eval_code", code="x = 1")["success"]
    supervisor = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    assert supervisor is not None
    with supervisor, limited(discovery.peer(supervisor).pid, resource.RLIMIT_FSIZE, 4096):
        answer = call("eval_code", code="print('y' * 3_000_000)")
        assert answer["success"], answer
        assert answer["stdout"].startswith("yyyy")
    assert call("eval_code", code="x")["result"] == "1"


def test_no_more_descriptors_is_over_when_there_are_some_again() -> None:
    """A client that comes meanwhile waits, is served afterwards, and nobody else has lost anything."""
    assert call("eval_code", code="x = 1")["success"]
    pid = daemon_pid()
    answers: list[dict[str, Any]] = []
    with limited(pid, resource.RLIMIT_NOFILE, 3):
        late = threading.Thread(target=lambda: answers.append(call("eval_code", code="x")))
        late.start()
        late.join(1.5)
        assert late.is_alive()
    late.join(60)
    assert [answer["result"] for answer in answers] == ["1"]


def test_a_deleted_runtime_folder_is_made_again(isolation) -> None:
    """K-17: one daemon and one supervisor go on at the end; texts are there, variables too or their loss is told."""
    call("load_context", name="log", content="alpha")
    assert call("eval_code", code="x = 1")["success"]
    first = psutil.Process(daemon_pid())
    # At one instant: a daemon or supervisor that looks while files are being removed puts its own back at once.
    shutil.rmtree(discovery.runtime_dir().rename(isolation.root / "deleted"))
    wait_until(lambda: not runs(first))
    answer = call("eval_code", code="x")
    told = "lost" in str(answer)
    assert answer.get("result") == "1" or told, answer
    assert call("peek", name="log")["content"] == "alpha"
    assert call("eval_code", code="log['content']")["result"] == "'alpha'"
    supervisors = [p for p in descendants() if is_supervisor(p)]
    wait_until(lambda: len([p for p in supervisors if runs(p)]) == 1)
