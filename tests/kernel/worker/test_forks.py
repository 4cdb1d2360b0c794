"""Forks of kernel processes: siblings, and copies that sleep (`rlm_kernel.worker._forks`)."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap

import pytest

from rlm_kernel.worker._forks import fork_asleep

ROOM = b'{"pid":         0}'


def run(code: str) -> str:
    """Run code in a process with one thread, whose parent is this one's child; return what it prints."""
    lines = "import os, signal, socket, sys, time\nfrom rlm_kernel.worker._forks import fork_asleep, fork_sibling\n"
    done = subprocess.run(
        [sys.executable, "-c", lines + textwrap.dedent(code)], capture_output=True, text=True, timeout=10, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sibling_is_the_child_of_our_parent() -> None:
    """The supervisor is the parent of every kernel process, whichever of them has forked it."""
    told = run(
        """
        reading, writing = os.pipe()
        parent = os.getppid()
        if fork_sibling() == 0:
            os.write(writing, b"%d" % os.getppid())
            os._exit(0)
        print(int(os.read(reading, 100)) == parent)
        """
    )
    assert told == "True\n"


def test_a_copy_sleeps_until_its_lifeline_speaks() -> None:
    """It does what is to be done first, and nothing else until then."""
    told = run(
        """
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        if fork_asleep(theirs.fileno(), lambda: os.write(writing, b"first")) == 0:
            os.write(writing, b"awake")
            os._exit(0)
        print(os.read(reading, 100).decode())
        os.set_blocking(reading, False)
        try:
            print(os.read(reading, 100))
        except BlockingIOError:
            print("asleep")
        os.set_blocking(reading, True)
        ours.send(b"wake up")
        print(os.read(reading, 100).decode())
        """
    )
    assert told == "first\nasleep\nawake\n"


def test_a_copy_whose_first_step_fails_ends() -> None:
    """Otherwise two processes would serve one line."""
    told = run(
        """
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        pid = fork_asleep(theirs.fileno(), lambda: 1 / 0)
        theirs.close()
        print(ours.recv(1))
        """
    )
    assert told == "b''\n"


def test_the_process_reports_its_copy_and_waits() -> None:
    """It closes its end of the lifeline, so that the copy ends with whoever holds the other."""
    told = run(
        f"""
        ours, theirs = socket.socketpair()
        line, there = socket.socketpair()
        there.send(b"go on")
        lifeline = theirs.detach()
        pid = fork_asleep(lifeline, None, line.fileno(), {ROOM!r})
        if pid == 0:
            os._exit(0)
        print(eval(there.recv(100))["pid"] == pid, line.recv(100), os.path.exists(f"/proc/self/fd/{{lifeline}}"))
        os.kill(pid, signal.SIGKILL)
        """
    )
    assert told == "True b'go on' False\n"


def test_no_signal_arrives_during_a_fork() -> None:
    """The supervisor lets one call through: it must not be interrupted, and then begin again."""
    told = run(
        """
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        def first():
            os.write(writing, b"%d" % (signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        pid = fork_asleep(theirs.fileno(), first)
        if pid == 0:
            os._exit(0)
        print(os.read(reading, 1), signal.pthread_sigmask(signal.SIG_BLOCK, []))
        os.kill(pid, signal.SIGKILL)
        """
    )
    assert told == "b'1' set()\n"


def test_pythons_own_work_for_a_fork_is_done() -> None:
    """Locks of libraries, such as those of `logging`, are put in order by it."""
    told = run(
        """
        for name in ("before", "after_in_parent", "after_in_child"):
            os.register_at_fork(**{name: lambda name=name: os.write(1, name.encode() + b" ")})
        ours, theirs = socket.socketpair()
        theirs.send(b"wake up")
        for fork in fork_sibling, lambda: fork_asleep(ours.fileno()):
            reading, writing = os.pipe()
            if fork() == 0:
                os._exit(0)
            os.close(writing)
            os.read(reading, 1)  # until the child has ended
        """
    )
    assert sorted(told.split()) == sorted(2 * ["before", "after_in_parent", "after_in_child"])


def test_signals_wait_until_the_fork_is_over() -> None:
    """Those that were held back before stay so; the others interrupt the wait."""
    told = run(
        f"""
        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        ours, theirs = socket.socketpair()
        line, there = socket.socketpair()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        pid = fork_asleep(theirs.detach(), None, line.fileno(), {ROOM!r})
        if pid == 0:
            os._exit(0)
        os.kill(pid, signal.SIGKILL)
        print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])) == [signal.SIGUSR1])
        """
    )
    assert told == "alarm\nTrue\n"


@pytest.mark.parametrize("told", [b"", b'{"pid":1}', b"x" * 257])
def test_a_report_without_room_for_a_pid_is_refused(told: bytes) -> None:
    """Nothing is forked then."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ValueError, match="no room"):
        fork_asleep(theirs.fileno(), None, ours.fileno(), told)


def test_a_refused_fork_is_an_error_with_its_number() -> None:
    """As when the system has no process left, or a gate refuses."""
    told = run(
        """
        import resource
        if os.getuid() == 0:  # whom this limit does not stop
            os.setgid(65534)
            os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        ours, theirs = socket.socketpair()
        for fork in fork_sibling, lambda: fork_asleep(theirs.fileno()):
            try:
                fork()
            except OSError as error:
                print(error.errno == 11)
        """
    )
    assert told == "True\nTrue\n"


def test_waiting_touches_hardly_a_page() -> None:
    """Two processes that wait share their memory: of dozens of pages that Python code would touch, some remain."""
    told = run(
        f"""
        def private(pid):
            with open(f"/proc/{{pid}}/smaps_rollup") as rows:
                return sum(int(row.split()[1]) for row in rows if row.startswith("Private_Dirty:")) // 4
        ours, theirs = socket.socketpair()
        line, there = socket.socketpair()
        before = os.fork()  # so that what this process has written is shared with someone
        if before == 0:
            signal.pause()
        watcher = os.fork()
        if watcher == 0:
            there.recv(100)
            print(private(os.getppid()), flush=True)
            there.send(b"go on")
            os._exit(0)
        pid = fork_asleep(theirs.detach(), None, line.fileno(), {ROOM!r})
        if pid == 0:
            os._exit(0)
        os.waitpid(watcher, 0)
        for sleeper in pid, before:
            os.kill(sleeper, signal.SIGKILL)
        """
    )
    assert int(told) < 10
