"""When the system itself has no more processes or no more room on a disk: what is told, what goes on, what comes back.

The limits are real: the system's own for processes or a control group, a small file system. Where none is to be had the
test is skipped.
"""

import contextlib
import itertools
import os
import resource
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import inventory
import psutil
import pytest
from inventory import Inventory
from session_processes import keeper_of
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.errors import DaemonNotStarted, DaemonRefused, ToolFailed
from rlm_ipc.session_requests import SaveSession
from rlm_mcp.cli import doctor

_AT_ONCE = 16  # texts that are opened together: more than a daemon has threads


def call(tool: str, session: str = "s", **arguments: Any) -> dict[str, Any]:
    """Call a tool in a session; an error is an answer too."""
    try:
        return call_tool(tool, arguments, session=session)
    except ToolFailed as error:
        return error.answer


class Group:
    """A control group that counts the tasks of the processes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, *processes: psutil.Process) -> None:
        """Let neither these processes nor what they start from now on start any more."""
        for process in processes:
            (self.folder / "cgroup.procs").write_text(str(process.pid))
        (self.folder / "pids.max").write_text("0")  # nor in place of one that ends

    def let_go(self) -> None:
        """Let them start what they like."""
        (self.folder / "pids.max").write_text("max")

    def removed(self) -> bool:
        """Delete it, if everything in it has ended or could be put back to where it came from."""
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self.folder.parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):  # what has just ended may still be counted
            self.folder.rmdir()
        return not self.folder.exists()


class Limit:
    """The system's own limit of processes, which holds for everybody but root."""

    def __init__(self) -> None:
        self.processes: tuple[psutil.Process, ...] = ()

    def take(self, *processes: psutil.Process) -> None:
        """Let these processes start no more."""
        self.processes = processes
        self._set(lambda _hard: 0)

    def let_go(self) -> None:
        """Let them start what they may."""
        self._set(lambda hard: hard)

    def _set(self, soft: Callable[[int], int]) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_NPROC)
                resource.prlimit(process.pid, resource.RLIMIT_NPROC, (soft(hard), hard))


@pytest.fixture
def scarce() -> Iterator[Group | Limit]:
    """Give the way to have no more processes, as root or an ordinary user, or skip."""
    if os.getuid() != 0:
        yield Limit()
        return
    made = None
    for parent in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids")):
        folder = parent / f"rlm-test-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            if (folder / "pids.max").exists():
                made = Group(folder)
                break
            folder.rmdir()
    if made is None:
        pytest.skip("no control group can be made here that counts tasks, and no other limit holds for root")
    yield made
    made.let_go()
    wait_until(made.removed)


POLICY = "description: Test.\nextends: default\ncheckpoint: strict\n"


def test_no_more_processes_is_told_and_costs_nobody_anything(scarce, everything_ended, isolation, monkeypatch) -> None:
    """K-17: what needs a process or a thread is refused and says so, what is there goes on, a restart too."""
    (isolation.config / "policies").mkdir()
    (isolation.config / "policies" / "strictly.yaml").write_text(POLICY)
    monkeypatch.setenv("RLM_KERNEL_POLICY", "strictly")
    texts = {f"log{number}": f"alpha\nbeta {number}" for number in range(_AT_ONCE)}
    for name, text in texts.items():
        call("load_context", name=name, content=text)
    assert call("eval_code", code="x = [i for i in range(3)]")["success"]
    wait_until(lambda: call("status")["kernel"]["checkpoint"])
    daemon, supervisor = inventory.daemon(), inventory.supervisor()
    assert daemon is not None
    assert supervisor is not None
    keeper = keeper_of(supervisor.pid)
    scarce.take(daemon, keeper, *keeper.children(recursive=True))
    call("eval_code", session="ahead", code="1")  # a process that was made ahead is still there for it
    refused = [call("eval_code", session="t", code="1"), call("fork_session", name="f"), call("restart_session")]
    for answer in refused:
        assert (answer["error"], answer["resource"]) == ("machine_full", "processes"), answer
        assert "start more processes or threads" in answer["message"]
        assert "ulimit -u" in answer["hint"]
    for answer in (call("scan", name="log0", pattern="beta"), call("load_context", name="more", path=__file__)):
        assert answer.get("error") in (None, "machine_full"), answer
    with ThreadPoolExecutor(_AT_ONCE) as readers:  # each opens a text, in a thread that it may have to wait for
        assert list(readers.map(lambda name: call("peek", name=name).get("content"), texts)) == list(texts.values())
    assert call("eval_code", code="x.append(3); x")["result"] == "[0, 1, 2, 3]"
    psutil.Process(call("status")["kernel"]["pid"]).kill()
    wait_until(lambda: call("eval_code", code="x[:3]").get("result") == "[0, 1, 2]")
    scarce.let_go()
    assert call("eval_code", session="t", code="1")["result"] == "1"
    assert call("fork_session", name="f")["session"] == "f"
    assert len(call("scan", name="log0", pattern="beta")["results"]) == 1
    assert inventory.supervisor() == supervisor
    for session in ("s", "ahead", "t", "f"):
        call("end_session", session=session)
    wait_until(lambda: Inventory.take().kernels <= inventory.WARM)
    wait_until(lambda: Inventory.take().files == [])


class Disk:
    """A file system of its own on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Leave no room on it."""
        with contextlib.suppress(OSError), (self.folder / "filler").open("ab", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        """Leave room again."""
        (self.folder / "filler").unlink()


@pytest.fixture
def disk() -> Iterator[Callable[[Path], Disk]]:
    """Give the way to put a file system of 4 MB on a folder, or skip; what uses it has to end before this fixture."""
    mounted = []

    def mount(folder: Path) -> Disk:
        command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", folder]
        if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("this user may not mount a file system")
        mounted.append(folder)
        return Disk(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_under_rows_and_texts_is_told(disk, everything_ended, isolation) -> None:
    """K-17: reading and cells go on; what would be written is refused, a query fails; nothing is half there."""
    full = disk(isolation.state)
    call("load_context", name="log", content="alpha\nbeta")
    assert call("eval_code", code="x = 1")["success"]
    full.fill()
    large = "gamma\n" * 1000
    refused = [
        call("eval_code", session="t", code="1"),
        call("fork_session", name="f"),
        call("load_context", name="more", content=large),
        call("load_context", name="more", path=__file__),
    ]
    for answer in refused:
        assert (answer["error"], answer["resource"]) == ("machine_full", "disk"), answer
        assert str(isolation.state) in answer["hint"]
    assert call("peek", name="log")["content"] == "alpha\nbeta"
    assert len(call("scan", name="log", pattern="beta")["results"]) == 1
    assert call("eval_code", code="x += 1; x, log['content']")["result"] == "(2, 'alpha\\nbeta')"
    asked = call("eval_code", code="answer = llm_query('why?')")
    assert asked["success"], asked
    assert asked["pending_llm_queries"] == []
    failed = call("eval_code", code="str(answer)")
    assert "could not be recorded" in failed["result"], failed
    assert "q_000 failed" in failed["notice"], failed
    full.free()
    assert call("load_context", name="more", content=large)["line_count"] == 1000
    assert call("fork_session", name="f")["contexts"] == ["log", "more"]
    again = call("eval_code", code="answer = llm_query('why?'); x")
    assert (again["result"], len(again["pending_llm_queries"])) == ("2", 1), again
    for session in ("s", "f"):
        assert call("end_session", session=session)["ended"] == session


BRIEF = "description: Brief.\nextends: default\nreopen: false\nlimits: {idle_seconds: 0.5}\n"
DURABLE = "description: Durable.\nextends: default\ncheckpoint: durable\nlimits: {unsaved_seconds: 0.1}\n"


def _policy(folder: Path, name: str, text: str) -> None:
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / f"{name}.yaml").write_text(text)


def _opened(session: str, policy: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("RLM_KERNEL_POLICY", policy)
        assert call("eval_code", session=session, code=code)["success"]


def test_on_a_full_disk_people_make_room_and_save_elsewhere(
    disk, everything_ended, isolation, tmp_path, monkeypatch
) -> None:
    """What deletes rows has room of its own, a daemon that starts has too, and what idles is in nobody's way."""
    full = disk(isolation.state)
    _policy(isolation.config, "brief", BRIEF)
    _policy(isolation.config, "durable", DURABLE)
    for session in ("s", "t", "u"):
        assert call("load_context", session=session, name="log", content="alpha\nbeta" * 1000)["line_count"]
        assert call("eval_code", session=session, code="x = [1]")["success"]
    _opened("idles", "brief", "x = 1", monkeypatch)
    _opened("durable", "durable", "x = 1", monkeypatch)
    wait_until(lambda: call("status", session="durable")["unsaved"]["cells"] == 0)
    full.fill()
    assert call("eval_code", code="x.append(2); x")["result"] == "[1, 2]"
    starts = itertools.count()

    def refused() -> str | None:
        full.fill()  # with what somebody has freed meanwhile, which may have been enough for the save before
        assert call("eval_code", session="durable", code=f"x = list(range({next(starts)}, 100_000))")["success"]
        reason: str | None = call("status", session="durable")["unsaved"]["reason"]
        return reason

    told = wait_until(refused)
    assert told == f"the disk of {isolation.state / 'snapshots' / 'lasting'} is full"
    assert call("unload", name="log") == {"unloaded": "log"}
    assert call("end_session", session="t")["unloaded"] == ["log"]
    full.fill()  # with what that has left
    file = tmp_path / "u.rlmsnap"
    with DaemonConnection(SaveSession(session="u", file=str(file), embed=True)) as control:
        assert (control.reply.variables, control.reply.contexts) == (("x",), ("log",))
    before = discovery.state_dir() / "own.rlmsnap"

    def refused_beside() -> str:
        before.unlink(missing_ok=True)
        full.fill()  # texts that nobody has any more go a moment later
        try:
            with DaemonConnection(SaveSession("u", str(before), embed=True)):
                return ""
        except DaemonRefused as error:
            return str(error)

    assert "No space left" in wait_until(refused_beside)
    daemon = inventory.daemon()
    assert daemon is not None
    daemon.terminate()
    wait_until(lambda: inventory.daemon() is None)
    answer = call("eval_code", code="x")  # another daemon has started
    assert answer.get("result") == "[1, 2]", answer
    assert call("end_session", session="u")["ended"] == "u"
    full.free()
    assert call("eval_code", session="idles", code="2")["notice"].startswith("the session was idle for 0.5 seconds")
    wait_until(lambda: call("status", session="durable")["unsaved"]["cells"] == 0)
    assert call("load_context", name="more", content="gamma")["line_count"] == 1
    for session in ("s", "idles", "durable"):
        assert call("end_session", session=session)["ended"] == session


def test_a_disk_that_is_full_from_the_start_is_named(disk, everything_ended, isolation) -> None:
    """By whoever needs the daemon, and by `doctor`; with room again the next call works."""
    full = disk(isolation.state)
    full.fill()
    with pytest.raises(DaemonNotStarted, match=f"the disk of {isolation.state} is full; free space on that disk"):
        call("eval_code", code="1")
    (check,) = [check for check in doctor.checks() if check.name == "state folder"]
    assert (check.ok, check.detail) == (False, f"{isolation.state} (its disk is full)")
    full.free()
    assert call("eval_code", code="1")["result"] == "1"
    call("end_session")


def test_a_full_disk_under_sockets_and_scratch_folders_is_told(disk, everything_ended, isolation) -> None:
    """K-17: nothing is left of a session that could not begin; those that are there go on, a lost process too."""
    full = disk(isolation.runtime)
    assert call("eval_code", code="x = 1")["success"]
    wait_until(lambda: call("status")["kernel"]["checkpoint"])
    wait_until(lambda: Inventory.take().kernels == inventory.WARM + 2)
    before = Inventory.take()
    full.fill()
    for answer in (call("eval_code", session="t", code="1"), call("fork_session", name="f")):
        assert (answer["error"], answer["resource"]) == ("machine_full", "disk"), answer
        assert str(isolation.runtime) in answer["hint"]
    psutil.Process(call("status")["kernel"]["pid"]).kill()
    wait_until(lambda: call("eval_code", code="x").get("result") == "1")
    # One more than before: the copy that undoes the last cell is kept beside the newest one.
    wait_until(lambda: Inventory.take().kernels == inventory.WARM + 3 and Inventory.take().files == before.files)
    full.free()
    assert call("eval_code", session="t", code="1")["result"] == "1"
    assert call("fork_session", name="f")["session"] == "f"
    for session in ("s", "t", "f"):
        assert call("end_session", session=session)["ended"] == session
    wait_until(lambda: Inventory.take().kernels <= inventory.WARM)
    wait_until(lambda: Inventory.take().files == [])
