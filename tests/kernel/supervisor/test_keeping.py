"""The line between a supervisor and its keeper, and what each of them holds of sessions."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from session_processes import keeper_of, runs, standby_of, zygote_of
from waiting import SECONDS, until, wait_until

from rlm_contexts.store.store import ContextStore
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.keeper import keeper
from rlm_kernel.supervisor.keeping import keeping
from rlm_kernel.supervisor.keeping.keeping import Keeping, Standby
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio
Lines = tuple[socket.socket, socket.socket, socket.socket]
Find = Callable[[int], psutil.Process | None]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """A supervisor's line to its keeper, the keeper's end of it, and the line to a process that stands by."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    standby, waits = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, standby, waits:
        yield ours, theirs, standby


def _said(of_keeper: socket.socket) -> list[bytes]:
    """What the supervisor has said to its keeper; the descriptors beside it are closed."""
    said = []
    with ExitStack() as closing:
        while True:
            try:
                data, descriptors = keeper.receive(of_keeper, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return said
            for descriptor in descriptors:
                closing.callback(os.close, descriptor)
            said.append(data)


async def test_the_keeper_tells_how_a_child_of_its_own_has_ended(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for that hears it at once, and of no other process."""
    monkeypatch.setattr(keeping, "REAPED_SECONDS", 600.0)
    ours, of_keeper, standby = lines
    kept, told = Keeping(ours, 1, [sys.executable]), list[int | None]()
    kept.follows(Standby(os.getpid(), standby))
    kept.listen()
    kept.when_reaped(12, told.append)
    for said in (keeper.FAILED, b"X11 1", b"X12 -9"):
        keeper.send(of_keeper, said)
    await until(lambda: told == [-9])
    kept.quit()
    assert _said(of_keeper)[-1] == keeper.QUIT


async def test_a_supervisor_that_hands_over_has_nobody_of_its_own_version_stand_by(lines: Lines) -> None:
    """Else the keeper would wake that process, and not start the other program."""
    ours, of_keeper, standby = lines
    kept = Keeping(ours, 1, ["one"])
    kept.follows(Standby(os.getpid(), standby))
    kept.listen()
    kept.hand_over(["other", "version"])
    number = b"%d" % os.getpid()
    assert _said(of_keeper) == [b"G1\0one", b"Pstandby\0" + number, b"Dstandby", b"G1\0other\0version"]
    kept.quit()


def test_what_is_replaced_or_dropped_is_let_go_of(lines: Lines) -> None:
    """A supervisor that goes on for months must not run out of descriptors."""
    ours, of_keeper, _ = lines
    kept, ends = Keeping(ours, 1, [sys.executable]), list[int]()
    for _ in range(2):
        end, descriptor = os.pipe()
        kept.put("name", (descriptor,))
        os.close(descriptor)
        ends.append(end)
    _said(of_keeper)
    with open(ends[0], "rb") as replaced, open(ends[1], "rb") as dropped:
        assert replaced.read() == b""  # nobody has the other end of the pipe any more
        kept.drop("name")
        assert dropped.read() == b""
    kept.quit()


async def _value(client: SupervisorClient, kernel_id: str, code: str) -> str | None:
    async with asyncio.timeout(SECONDS):
        result = await client.execute(kernel_id, code).result()
    assert result.error is None, result.error
    return result.result


def _supervisor(client: SupervisorClient) -> int:
    assert client.pid is not None
    return client.pid


async def _replaced(client: SupervisorClient) -> None:
    """Kill the supervisor, and wait for the next one."""
    before = _supervisor(client)
    os.kill(before, signal.SIGKILL)
    await until(lambda: client.pid != before)


async def test_who_is_killed_beside_a_supervisor_is_replaced_each_time(
    own_supervisor: SupervisorClient, tmp_path: Path
) -> None:
    """By the same supervisor, twice: the process that stands by, and the keeper."""
    await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), load_policy("trusted"))
    await _value(own_supervisor, "k1", "x = 1")
    supervisor = _supervisor(own_supervisor)
    finds: tuple[Find, ...] = (standby_of, keeper_of)
    for find in finds:
        for _ in range(2):
            before = find(supervisor)
            assert before is not None
            before.kill()
            wait_until(lambda find=find: _found(find, supervisor), lambda now, old=before: now not in (None, old))
    await _replaced(own_supervisor)
    assert await _value(own_supervisor, "k1", "x") == "1"


def _found(find: Find, supervisor: int) -> psutil.Process | None:
    try:
        return find(supervisor)
    except (LookupError, psutil.Error):
        return None


async def test_a_zygote_that_is_nobodys_child_serves_the_next_supervisor(
    own_supervisor: SupervisorClient, tmp_path: Path
) -> None:
    """It outlives the keeper that was its parent, and what it forks has the same parent as itself from then on."""
    await own_supervisor.spawn(SpawnRequest("k0", str(tmp_path)), load_policy("trusted"))
    supervisor = _supervisor(own_supervisor)
    zygote, before = zygote_of(supervisor), keeper_of(supervisor)
    assert zygote is not None
    before.kill()
    wait_until(lambda: _found(keeper_of, supervisor), lambda now: now not in (None, before))
    standby = standby_of(supervisor)
    assert standby is not None
    os.kill(supervisor, signal.SIGSTOP)  # so that nobody stands by: the new keeper is the parent of the next one
    standby.kill()
    await _replaced(own_supervisor)
    for name in ("k1", "k2"):
        info = await own_supervisor.spawn(SpawnRequest(name, str(tmp_path)), load_policy("trusted"))
        assert info.pid is not None
        assert psutil.Process(info.pid).ppid() == zygote.ppid()
    assert runs(zygote)


async def test_contexts_of_several_supervisors_are_held_apart(own_supervisor: SupervisorClient, tmp_path: Path) -> None:
    """And one that another has replaced is held no longer: its memory is free again."""
    store = ContextStore(tmp_path / "store")
    await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), load_policy("default"))

    async def bind(name: str, text: str) -> None:
        with store.shared_text(store.put_text(text)) as shared_text:
            await own_supervisor.bind("k1", name, shared_text, name, {})

    await bind("one", "alpha")
    await _replaced(own_supervisor)
    await bind("two", "beta")
    await _replaced(own_supervisor)
    assert await _value(own_supervisor, "k1", "one['content'], two['content']") == "('alpha', 'beta')"
    assert len(_texts(own_supervisor)) == 2
    for text in ("gamma", "delta", "epsilon"):
        await bind("two", text)
        assert await _value(own_supervisor, "k1", "two['content']") == repr(text)
    await until(lambda: len(_texts(own_supervisor)) == 2)


def _texts(client: SupervisorClient) -> list[str]:
    """The texts of which the keeper has a descriptor."""
    return [link for link in _links(keeper_of(_supervisor(client)).pid) if link.endswith(".text")]


def _links(pid: int) -> list[str]:
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(path))
    return links


async def test_nobody_holds_file_and_gate_of_a_session_that_has_ended(
    own_supervisor: SupervisorClient, tmp_path: Path
) -> None:
    """A machine that runs for months has many of them."""
    await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), load_policy("default"))
    holders = _supervisor(own_supervisor), keeper_of(_supervisor(own_supervisor)).pid
    assert all(_held(pid) == set(_OF_A_SESSION) for pid in holders)
    await own_supervisor.shutdown("k1")
    await until(lambda: not any(map(_held, holders)))


_OF_A_SESSION = ("/memfd:session", "/memfd:gate", "anon_inode:seccomp notify")


def _held(pid: int) -> set[str]:
    """What of a session a process has open."""
    return {kind for kind in _OF_A_SESSION for link in _links(pid) if link.startswith(kind)}


def test_who_stands_by_and_is_not_needed_any_more_ends() -> None:
    """Its line closes without a message; that is no failure, of which a log would tell."""
    script = "import socket, sys; from rlm_kernel.supervisor.keeping import keeping; "
    script += "keeping.await_turn(socket.socket(fileno=int(sys.argv[1])))"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-c", script, str(theirs.fileno())]
    with ours, subprocess.Popen(argv, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        assert ours.recv(1) == b"w"
        ours.close()
        assert process.wait(SECONDS) == 0


def test_a_supervisor_may_open_as_many_files_as_the_system_allows() -> None:
    """Each session has dozens, and a shell allows far fewer than it may."""
    script = "import resource as r; from rlm_kernel.supervisor.keeping import keeper_start; "
    script += "_, most = r.getrlimit(r.RLIMIT_NOFILE); "
    script += "r.setrlimit(r.RLIMIT_NOFILE, (64, most)); line = keeper_start.start_under_keeper(); "
    script += "print(r.getrlimit(r.RLIMIT_NOFILE) == (most, most))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "True\n"
