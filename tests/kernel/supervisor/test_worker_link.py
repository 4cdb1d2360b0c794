"""What the supervisor believes of a kernel process: nothing that it has not checked."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from played_worker import kept_by_a_test, link_of, played_worker
from session_processes import copies_of
from waiting import SECONDS, until

from rlm_ipc import framing, worker_protocol
from rlm_kernel.supervisor.keeping import keeping
from rlm_kernel.supervisor.processes.patience import answered
from rlm_kernel.supervisor.processes.proc_status import effort

pytestmark = pytest.mark.anyio


@pytest.fixture
def child():
    """A process of ours that waits."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.wait()
    process.stdin.close()


class Mourner:
    """Takes note of the end of a process."""

    def __init__(self):
        self.ended = asyncio.Event()

    def heard(self, link, message):
        raise AssertionError("it says nothing")

    def died(self, link):
        self.ended.set()


async def test_a_kernel_cannot_name_the_process_of_another_as_its_own(child) -> None:
    """Whoever ends the one would end the other: a session is not to be ended by its neighbour."""
    with kept_by_a_test() as kept, played_worker(kept) as (first, _), played_worker(kept) as (second, _):
        assert first.watch(child)
        assert not second.watch(child)
        owner = Mourner()
        first.report_to(owner)
        first.kill()
        await asyncio.wait_for(owner.ended.wait(), SECONDS)
        assert first.status == -signal.SIGKILL


async def test_nobody_waits_for_a_status_that_will_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper tells how its own children ended. After its death the kernels that it had are those of others."""
    monkeypatch.setattr(keeping, "REAPED_SECONDS", 3600.0)
    line, of_keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = keeping.Keeping(line, 1, [sys.executable])
    parent = subprocess.Popen(["sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    lifeline, its_own = framing.lifelines()
    link, owner = link_of(lifeline, kept), Mourner()
    link.take_over(pid, os.pidfd_open(pid), dead=False)
    link.report_to(owner)
    link.kill()
    await asyncio.wait_for(owner.ended.wait(), SECONDS)
    parent.communicate(timeout=SECONDS)
    for one in (line, of_keeper, its_own):
        one.close()


@pytest.mark.parametrize("pid", [1, 0, -1, 1 << 40, "a text", None, [2]])
async def test_only_a_child_of_the_supervisor_is_followed(pid) -> None:
    """A hostile kernel may say that it is any process, or none."""
    with kept_by_a_test() as kept, played_worker(kept) as (peer, _):
        assert not peer.watch(pid)
        assert not peer.watch(os.getpid())
        assert peer.pid is None


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next() -> None:
    """Of a kernel that was kept waiting for the processor: else no copy of it would be believed any more."""
    tag = worker_protocol.Forked.TAG
    with kept_by_a_test() as kept, played_worker(kept) as (peer, line):
        given_up, next_one = peer.expect(tag), peer.expect(tag)
        given_up.cancel()
        line.sendall(framing.pack(tag, (b"late",)) + framing.pack(tag, (b"its own",)))
        assert list((await asyncio.wait_for(next_one, SECONDS)).parts) == [b"its own"]


@pytest.fixture
def kept_waiting(tmp_path):
    """A process of ours that waits without sleeping: for the file of a program that it starts, and which is no file."""
    file = tmp_path / "pipe"
    os.mkfifo(file)
    start = f"import os; os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(0, 0, {str(file)!r}, 0, 0)])"
    process = subprocess.Popen([sys.executable, "-c", start])
    yield process.pid
    other_end = os.open(file, os.O_RDWR)
    process.wait()
    os.close(other_end)


async def test_a_process_that_is_kept_from_running_is_waited_for(kept_waiting) -> None:
    """A copy on a machine that has too much to do is slow, not dead: giving it up would lose a recovery."""
    await until(lambda: psutil.Process(kept_waiting).children())
    answer = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(answered(answer, 0.02, kept_waiting))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    answer.set_result("late")
    assert await waiting == "late"


async def test_a_process_that_does_nothing_is_not_waited_for(child) -> None:
    """One that sleeps, or that is there no more, does not answer."""
    await until(lambda: psutil.Process(child).status() == psutil.STATUS_SLEEPING)
    for pid in (child, 1 << 22, -1, None):
        answer = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answered(answer, 0.2, pid), 60)
        assert answer.done()


async def test_a_process_that_works_in_vain_is_not_waited_for_ever() -> None:
    """It may take so much of the processor, and no more."""
    command = [sys.executable, "-uc", "print()\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            before = effort(process.pid).used
            async with asyncio.timeout(60):
                with pytest.raises(TimeoutError):
                    await answered(asyncio.get_running_loop().create_future(), 0.2, process.pid)
            assert effort(process.pid).used - before >= 0.2
        finally:
            process.kill()


async def test_a_copy_that_is_only_kept_has_run_nothing(supervisor, spawn, policy) -> None:
    """From its first moment on it waits as it was forked, signals held back, so it shares nearly all of its memory."""
    kernel = await spawn(policy(checkpoint="strict"))
    await supervisor.execute(kernel.kernel_id, "kept = [object()]").result()
    held_back = [blocked(pid) for pid in copies_of(kernel.pid)]
    assert held_back
    assert all(signals >> (signal.SIGTERM - 1) & 1 for signals in held_back)
    # The live process reports the copy a moment before it waits, and only the wait lets signals through again.
    await until(lambda: not blocked(kernel.pid) >> (signal.SIGTERM - 1) & 1)


async def test_only_the_copies_that_are_needed_are_kept(supervisor, spawn, policy) -> None:
    """The newest, and the one that a rollback of one cell goes back to; every other has ended."""
    kernel = await spawn(policy(checkpoint="strict", rollback_cells=1))
    for _ in range(8):
        await supervisor.execute(kernel.kernel_id, "kept = [object()]").result()
    await until(lambda: len(copies_of(kernel.pid)) == 2)


def blocked(pid: int) -> int:
    """The signals that a process holds back, as a mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("SigBlk:")[2].split()[0], 16)
