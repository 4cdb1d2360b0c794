"""When the system itself has no more processes or no more room on a disk: what is told, what goes on, what comes back.

The limits are real: the system's own for processes or a control group, a small file system. Where none is to be had the
test is skipped.
"""

import contextlib
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
from rlm_ipc.errors import ToolFailed

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
    wait_until(lambda: Inventory.take().kernels <= 2)
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
        call("unload", name="log"),
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
    assert "could not be written down" in failed["result"], failed
    assert "q_000 failed" in failed["notice"], failed
    full.free()
    assert call("load_context", name="more", content=large)["line_count"] == 1000
    assert call("fork_session", name="f")["contexts"] == ["log", "more"]
    again = call("eval_code", code="answer = llm_query('why?'); x")
    assert (again["result"], len(again["pending_llm_queries"])) == ("2", 1), again
    for session in ("s", "f"):
        assert call("end_session", session=session)["ended"] == session


def test_a_full_disk_under_sockets_and_scratch_folders_is_told(disk, everything_ended, isolation) -> None:
    """K-17: nothing is left of a session that could not begin; those that are there go on, a lost process too."""
    full = disk(isolation.runtime)
    assert call("eval_code", code="x = 1")["success"]
    wait_until(lambda: call("status")["kernel"]["checkpoint"])
    wait_until(lambda: Inventory.take().kernels == 4)
    before = Inventory.take()
    full.fill()
    for answer in (call("eval_code", session="t", code="1"), call("fork_session", name="f")):
        assert (answer["error"], answer["resource"]) == ("machine_full", "disk"), answer
        assert str(isolation.runtime) in answer["hint"]
    psutil.Process(call("status")["kernel"]["pid"]).kill()
    wait_until(lambda: call("eval_code", code="x").get("result") == "1")
    # One more than before: the copy that undoes the last cell is kept beside the newest one.
    wait_until(lambda: Inventory.take().kernels == 5 and Inventory.take().files == before.files)
    full.free()
    assert call("eval_code", session="t", code="1")["result"] == "1"
    assert call("fork_session", name="f")["session"] == "f"
    for session in ("s", "t", "f"):
        assert call("end_session", session=session)["ended"] == session
    wait_until(lambda: Inventory.take().kernels <= 2)
    wait_until(lambda: Inventory.take().files == [])
