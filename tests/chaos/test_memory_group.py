"""Sessions that need more memory than their control group has: no session loses everything.

The group is a real one, so these tests need root, and a version 1 or 2 hierarchy that can be written.
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from serving import the_daemon, the_supervisor
from session_processes import runs
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.errors import ToolFailed
from rlm_kernel.supervisor.processes.free_memory import available_memory

MIB = 1 << 20
POLICY = "description: Strict.\nextends: default\ncheckpoint: strict\nreopen: true\n"
FILL = "data = bytearray(b'x') * (%d << 20)\nn = 0"
MUTATE = "for i in range(0, len(data), 4096): data[i] = n + 1\nn += 1"
SESSIONS = int(os.environ.get("RLM_MEMORY_SESSIONS", "3"))
SIZE = int(os.environ.get("RLM_MEMORY_SIZE", "60"))
GROUP = int(os.environ.get("RLM_MEMORY_GROUP", "400"))
"""Megabytes."""


def _parent() -> Path | None:
    for folder in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
            return folder
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of 700 MB."""
    if os.getuid() != 0 or (parent := _parent()) is None:
        pytest.skip("no control group can be made here")
    folder = parent / f"rlm-test-{os.getpid()}"
    folder.mkdir()
    try:
        _limit(folder, 700)
        yield folder
    finally:
        wait_until(lambda: _removed(folder))


def _limit(folder: Path, megabytes: int) -> None:
    limit = folder / ("memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes")
    limit.write_text(str(megabytes * MIB))


def _removed(folder: Path) -> bool:
    """Move its processes out, also those that others have forked since the last look, and remove it."""
    for line in (folder / "cgroup.procs").read_text().splitlines():
        with contextlib.suppress(OSError):
            (folder.parent / "cgroup.procs").write_text(line)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def _run(session: str, code: str) -> dict[str, Any]:
    try:
        return call_tool("eval_code", {"code": code}, session=session)
    except ToolFailed as error:
        return error.answer


def _run_until_it_has(session: str, code: str) -> dict[str, Any]:
    """Run a cell, again while it is undone for lack of memory, which must not cost all variables."""

    def ran() -> dict[str, Any]:
        answer = _run(session, code)
        assert "variables are lost" not in str(answer), answer
        return answer

    return wait_until(ran, lambda answer: answer.get("success"), seconds=120)


@pytest.fixture
def crowded(real_starts: None, everything_ended: None, group: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The daemon, the supervisor, its zygote and every kernel are in the group."""
    policies = discovery.config_dir() / "policies"
    policies.mkdir(parents=True, exist_ok=True)
    (policies / "crowded.yaml").write_text(POLICY)
    monkeypatch.setenv("RLM_KERNEL_POLICY", "crowded")
    _run("first", "1")
    kernel = call_tool("status", {}, session="first")["kernel"]["pid"]
    for process in map(psutil.Process, (the_daemon(), the_supervisor())):
        for each in (process, *process.children(recursive=True)):
            (group / "cgroup.procs").write_text(str(each.pid))
    assert str(kernel) in (group / "cgroup.procs").read_text().split()
    return group


def test_no_session_loses_everything_when_its_group_is_too_small(crowded: Path) -> None:
    """Strict sessions of many megabytes each, changed twice: those that idle rest until they are used."""
    _limit(crowded, GROUP)
    served = the_supervisor()
    free = available_memory(str(served))
    assert free is not None
    assert free <= GROUP * MIB, "the supervisor sees the limit of its group"
    names = [f"s{number}" for number in range(SESSIONS)]
    for name in names:
        _run_until_it_has(name, FILL % SIZE)
        for _ in range(2):
            _run_until_it_has(name, MUTATE)
    for name in names:
        assert _run_until_it_has(name, "n, data[0], data[-4096], len(data)")["result"] == f"(2, 2, 2, {SIZE * MIB})"
    assert the_supervisor() == served, "the supervisor is never the victim"


@pytest.mark.parametrize("attended", [True, False], ids=["by the daemon", "without a daemon"])
def test_idle_sessions_are_saved_and_rest_while_memory_is_short(crowded: Path, attended: bool) -> None:
    """They come back with their variables when they are used, and there is room again."""
    names = ("idle", "other")
    for name in names:
        assert _run(name, f"kept = {name!r}")["success"]
    kernels = [psutil.Process(call_tool("status", {}, session=name)["kernel"]["pid"]) for name in names]
    if not attended:
        daemon = psutil.Process(the_daemon())
        daemon.terminate()
        wait_until(lambda: not runs(daemon))
    _limit(crowded, 200)  # less than what is to stay free
    wait_until(lambda: not any(map(runs, kernels)))
    _limit(crowded, 700)
    for name in names:
        assert _run(name, "kept")["result"] == repr(name)


def test_saved_variables_come_back_only_where_they_fit(crowded: Path) -> None:
    """Others rest first, if that makes room for them; if not, the answer says what is short, and they stay saved."""
    served = str(the_supervisor())

    def free() -> int:
        megabytes = available_memory(served)
        assert megabytes is not None
        return megabytes // MIB

    def leave(megabytes: int) -> None:
        """Set the limit once the use is steady: processes that have just ended give their memory back bit by bit."""
        _limit(crowded, 4000)
        last: deque[int] = deque(maxlen=100)

        def look() -> deque[int]:
            last.append(free())
            return last

        wait_until(look, lambda seen: len(seen) == 100 and max(seen) - min(seen) <= 2)
        _limit(crowded, 4000 - last[-1] + megabytes)

    def kernel_of(session: str) -> psutil.Process:
        return psutil.Process(call_tool("status", {}, session=session)["kernel"]["pid"])

    _limit(crowded, 4000)
    assert _run("large", FILL % 150)["success"]
    large = kernel_of("large")
    leave(255)  # less than what is to stay free
    wait_until(lambda: not runs(large))
    leave(300)
    refused = _run("large", "n")
    assert (refused["error"], refused.get("resource")) == ("machine_full", "memory"), refused
    assert "are needed for the saved variables" in refused["message"]
    leave(600)
    assert _run("other", FILL % 120)["success"]
    other = kernel_of("other")
    leave(300)
    back = _run("large", "n, len(data), data[-1]")
    assert back.get("result") == f"(0, {150 * MIB}, 120)", back
    assert not runs(other)
    leave(900)
    assert _run("other", "n, len(data)")["result"] == f"(0, {120 * MIB})"


def test_who_fills_the_group_is_ended_and_not_who_has_most(crowded: Path) -> None:
    """A cell that goes on and on loses only itself; a session with more memory, which cannot make room, stays."""
    policies = discovery.config_dir() / "policies"
    (policies / "crowded.yaml").write_text(f"{POLICY}limits: {{memory_bytes: 2 GiB}}\n".replace("true", "false"))
    assert _run("large", "data = bytearray(b'x') * (380 << 20)")["success"]
    assert _run("small", "n = 1")["success"]
    large = psutil.Process(call_tool("status", {}, session="large")["kernel"]["pid"])
    answer = _run("small", "more = [bytearray(b'x') * (1 << 20) for _ in range(1500)]")
    assert answer.get("error") == "kernel_died", answer
    assert _run("small", "n")["result"] == "1"
    assert runs(large)
    assert _run("large", "len(data)")["result"] == str(380 * MIB)
