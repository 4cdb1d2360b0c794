"""When the machine runs out of something or loses something: a clear error, nothing corrupted, and it works again."""

import asyncio
import contextlib
import os
import resource
import shutil
import threading
from typing import Any

import inventory
import psutil
import pytest
from inventory import MORE_DESCRIPTORS, WARM, Inventory
from session_processes import descendants, runs
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection, is_running
from rlm_ipc.daemon_requests import ShowStatus, StopDaemon
from rlm_ipc.errors import DaemonUnavailable, ToolFailed
from rlm_ipc.session_requests import ListJournal, RestoreSession, SaveSession
from rlm_kernel.supervisor_client import SupervisorClient

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
        assert refused["error"] in ("store_unavailable", "internal_error"), refused
        assert "arge" in refused["message"] or "full" in refused["message"] or "space" in refused["message"], refused
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
    supervisors = [p for p in descendants() if "rlm_kernel.supervisor" in " ".join(_command(p))]
    wait_until(lambda: len([p for p in supervisors if runs(p)]) == 1)


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_a_daemon_killed_while_it_saves_leaves_no_half_snapshot() -> None:
    """What is there is the earlier snapshot, whole; what was being written is removed by the next daemon."""
    assert call("eval_code", code="data = [bytes([n]) * 300_000 for n in range(60)]")["success"]
    folder = discovery.state_dir() / "snapshots"
    with DaemonConnection(SaveSession(session="s", file=None, embed=True), start=True) as control:
        first = os.stat(control.reply.file)
    daemon = psutil.Process(daemon_pid())
    saving = threading.Thread(target=_save_and_lose)
    saving.start()
    wait_until(lambda: any(path.name.startswith(".snapshot-") for path in folder.iterdir()) or not saving.is_alive())
    daemon.kill()
    wait_until(lambda: not is_running())  # a thread that writes may outlast the others by a moment
    saving.join(60)
    assert call("eval_code", code="len(data)")["result"] == "60"
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["key", "s.rlmsnap"]
    with DaemonConnection(RestoreSession(source="s", file=None, session="t", policy=None)) as control:
        assert control.reply.variables == ("data",)
    assert first.st_size > 0


def test_the_daemon_does_not_grow_with_what_cells_print() -> None:
    """It keeps the latest answers for who asks again: as they were shown, not the megabyte that each had written."""

    def held() -> int:
        return psutil.Process(daemon_pid()).memory_full_info().uss

    for _ in range(5):
        call("eval_code", code="print('x' * 900_000)")
    before = held()
    for _ in range(50):
        call("eval_code", code="print('x' * 900_000)")
    assert held() - before < 30_000_000


def _save_and_lose() -> None:
    with (
        contextlib.suppress(DaemonUnavailable, OSError),
        DaemonConnection(SaveSession(session="s", file=None, embed=True)),
    ):
        pass


@pytest.mark.parametrize(
    ("setting", "value", "resource", "detail"),
    [
        ("RLM_KERNEL_MAX_SESSIONS", "1", "sessions", "1 sessions run, and at most 1 may"),
        ("RLM_KERNEL_KEEP_FREE_MB", str(1 << 30), "memory", "MB are free"),
    ],
)
def test_a_full_machine_takes_no_further_session(monkeypatch, setting, value, resource, detail) -> None:
    """The answer says what is short and what to do; sessions that are there go on, nothing is left of the other."""
    monkeypatch.setenv(setting, value)
    if resource == "memory":
        full = call("eval_code", code="1")
    else:
        call("load_context", name="log", content="alpha")
        assert call("eval_code", code="x = 1")["success"]
        for refused in (call("fork_session", name="f"), full := call("eval_code", session="t", code="1")):
            assert refused["error"] == "machine_full", refused
        assert call("eval_code", code="x, len(log['lines'])")["result"] == "(1, 1)"
        call("end_session")
        assert call("eval_code", session="t", code="1")["result"] == "1"
        call("end_session", session="t")
    assert (full["error"], full["resource"]) == ("machine_full", resource)
    assert detail in full["message"], full
    assert "rlm-kernel sessions" in full["hint"]
    wait_until(lambda: Inventory.take().files == [])


async def _all_have_copies() -> bool:
    client = await SupervisorClient.connect(start=False)
    try:
        return all(kernel.checkpoint for kernel in await client.kernels())
    finally:
        client.close()


def test_a_supervisor_without_descriptors_refuses_sessions_and_keeps_those_it_has(isolation, monkeypatch) -> None:
    """A kernel that dies meanwhile is replaced by its copy all the same; with descriptors again a session starts."""
    (isolation.config / "policies").mkdir()
    (isolation.config / "policies" / "strictly.yaml").write_text(
        "description: Test.\nextends: default\ncheckpoint: strict\n"
    )
    monkeypatch.setenv("RLM_KERNEL_POLICY", "strictly")
    assert call("eval_code", code="x = [i for i in range(3)]")["success"]
    wait_until(lambda: asyncio.run(_all_have_copies()))
    process = inventory.supervisor()
    assert process is not None
    with limited(process.pid, resource.RLIMIT_NOFILE, process.num_fds() + 1):
        full = call("eval_code", session="t", code="1")
        assert (full["error"], full["resource"]) == ("machine_full", "descriptors"), full
        assert call("fork_session", name="f")["error"] == "machine_full"
        assert call("eval_code", code="x.append(3); x")["result"] == "[0, 1, 2, 3]"
        psutil.Process(call("status")["kernel"]["pid"]).kill()
        wait_until(lambda: call("eval_code", code="x[:3]").get("result") == "[0, 1, 2]")
    assert call("eval_code", session="t", code="1")["result"] == "1"
    assert inventory.supervisor() == process


def test_a_session_that_reopens_is_saved_when_the_daemon_stops(isolation, monkeypatch) -> None:
    """K-17: nobody has asked for it.

    After the machine took daemon and supervisor, its variables are there and it is told.
    """
    monkeypatch.setenv("RLM_KERNEL_POLICY", "compat")  # whose sessions do not reopen
    call("eval_code", session="other", code="x = 1")
    monkeypatch.setenv("RLM_KERNEL_POLICY", "default")
    assert call("eval_code", code="x = [1, 2]")["success"]
    process = inventory.supervisor()
    assert process is not None
    with DaemonConnection(StopDaemon()) as control:
        control.wait_for_end()
    wait_until(lambda: not is_running())
    process.kill()
    wait_until(lambda: not runs(process))
    answer = call("eval_code", code="x")
    if answer.get("error") == "kernel_died":
        answer = call("eval_code", code="x")
    assert answer.get("result") == "[1, 2]", answer
    assert "as they were saved at" in answer["notice"]
    assert len(list((discovery.state_dir() / "snapshots" / "lasting").glob("*.rlmsnap"))) == 1


def test_an_inventory_sees_what_a_session_holds() -> None:
    """What counting leaks relies on: of each kind there is more with a session, and nothing when it has ended."""
    assert call("eval_code", code="1")["success"]
    call("end_session")
    empty = Inventory.at_rest()
    call("load_context", name="log", content="alpha")
    assert call("eval_code", code="len(log['content']), [i for i in range(3)]")["success"]
    wait_until(lambda: Inventory.take().kernels > WARM + 1)  # the kernel, its copy, and the one made ahead for the next
    full = Inventory.take()
    assert full.pins > 0
    assert full.descriptors["supervisor"] > empty.descriptors["supervisor"] + MORE_DESCRIPTORS
    said = " ".join(full.beyond(empty))
    assert all(word in said for word in ("pins", "kernel processes", "descriptors of the supervisor", "scratch")), said
    call("end_session")
    wait_until(lambda: Inventory.take().beyond(empty) == [])
