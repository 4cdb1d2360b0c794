"""The fork gate: a worker forks when its supervisor lets it and never otherwise.

Each test is a real supervisor process with a real child behind the walls: the child sends the gate's descriptor
over a socket, closes its own copy and runs hostile or honest code; the supervisor answers.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import confined_coverage
import pytest

SCRIPT = """
import atexit, ctypes, errno, json, os, select, signal, socket, sys, tempfile, threading
from pathlib import Path
import confined_coverage
confined_coverage.start(sys.argv[1:])
from rlm_sandbox.os_wall.confine import confine
from rlm_sandbox.os_wall.fork_notifier import ForkGate
from rlm_sandbox.policy import Policy

CLONE = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
CLONE_PARENT = 0x8000
libc = ctypes.CDLL(None, use_errno=True)
pylibc = ctypes.PyDLL(None, use_errno=True)
here, there = socket.socketpair()
scratch = Path(sys.argv[1])
supervisor = os.getpid()
kept = []

def tell(value):
    there.sendall(json.dumps(value).encode() + b'\\n')

def attempt(action):
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno]

def raw_clone(flags):
    pid = pylibc.syscall(CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), '')
    return pid

def clone_without_the_gil():
    pid = libc.syscall(CLONE, signal.SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), '')
    return pid

def fork_and_end():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def child():
@child

kernel = os.fork()
if kernel == 0:
    done = confine(Policy(), scratch=scratch, read=[], keep_fds=[there.fileno()], fork_gate=True)
    socket.send_fds(there, [b'!'], [done.notify_fd])
    if @keep:
        kept.append(done.notify_fd)
    else:
        os.close(done.notify_fd)
    child()
    os._exit(0)
there.close()
_, (fd,), _, _ = socket.recv_fds(here, 1, 1)
gate = ForkGate(fd)
received = bytearray()

def wait_for_attempt():
    assert select.select([gate.fileno()], [], [], 90)[0], 'nobody forks'

def heard():
    while b'\\n' not in received:
        assert select.select([here], [], [], 90)[0], 'the kernel says nothing'
        received.extend(here.recv(4096))
    line, _, rest = received.partition(b'\\n')
    received[:] = rest
    return json.loads(line)

out = {}
atexit.register(os.kill, kernel, signal.SIGKILL)
@supervisor
print(json.dumps(out))
"""

Supervise = Callable[..., dict[str, Any]]


@pytest.fixture
def supervise(own_room: Any) -> Supervise:
    """Run child code behind a gate and supervisor code before it; gives the supervisor's ``out``."""

    def run(child: str, supervisor: str, *, keep: bool = False) -> dict[str, Any]:
        code = SCRIPT.replace("@child", textwrap.indent(textwrap.dedent(child), "    "))
        code = code.replace("@supervisor", textwrap.dedent(supervisor)).replace("@keep", str(keep))
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-P", "-B", "-c", code, str(own_room.scratch), *confined_coverage.arguments()],
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_fork_that_the_supervisor_did_not_ask_for_is_refused(supervise: Supervise) -> None:
    """User code that forks gets EPERM, and the kernel goes on."""
    out = supervise(
        "tell(attempt(os.fork)); tell('still here')",
        """
        wait_for_attempt()
        out['let through'] = gate.answer(False)
        out['kernel'] = [heard(), heard()]
        """,
    )
    assert out == {"let through": False, "kernel": ["EPERM", "still here"]}


def test_a_fork_that_the_supervisor_asked_for_works(supervise: Supervise) -> None:
    """The C library's fork goes through the gate and makes a working copy."""
    out = supervise(
        "tell(attempt(fork_and_end))",
        """
        wait_for_attempt()
        out['let through'] = gate.answer(True, pid=kernel)
        out['exit'] = heard()
        """,
    )
    assert out == {"let through": True, "exit": 7}


def test_a_copy_can_be_the_supervisors_own_child(supervise: Supervise) -> None:
    """A raw clone with CLONE_PARENT makes a copy that the supervisor can wait for."""
    out = supervise(
        """
        pid = raw_clone(CLONE_PARENT)
        if pid == 0:
            os._exit(0 if os.getppid() == supervisor else 1)
        tell(pid)
        """,
        """
        wait_for_attempt()
        out['let through'] = gate.answer(True, pid=kernel)
        out['exit'] = os.waitstatus_to_exitcode(os.waitpid(heard(), 0)[1])
        """,
    )
    assert out == {"let through": True, "exit": 0}


def test_copies_of_copies_go_through_the_same_gate(supervise: Supervise) -> None:
    """The filter is inherited: the supervisor decides about every generation with one descriptor."""
    out = supervise(
        """
        for generation in range(20):
            if raw_clone(CLONE_PARENT) != 0:
                os._exit(0)
            tell(os.getpid())
        tell(attempt(os.fork))
        """,
        """
        asked = kernel
        for _ in range(20):
            wait_for_attempt()
            assert gate.answer(True, pid=asked)
            asked = heard()
        wait_for_attempt()
        out['let through'] = gate.answer(False)
        out['last'] = heard()
        """,
    )
    assert out == {"let through": False, "last": "EPERM"}


def test_a_thread_cannot_use_the_supervisors_permission(supervise: Supervise) -> None:
    """While the supervisor waits for its kernel to fork, an attempt by a thread of it is refused."""
    out = supervise(
        """
        said = []
        thread = threading.Thread(target=lambda: said.append(attempt(lambda: raw_clone(0))))
        thread.start(); thread.join()
        tell(said[0])
        """,
        """
        wait_for_attempt()
        out['let through'] = gate.answer(True, pid=kernel)
        out['thread'] = heard()
        """,
    )
    assert out == {"let through": False, "thread": "EPERM"}


def test_nothing_but_plain_copies_is_let_through(supervise: Supervise) -> None:
    """Copies that share memory, descriptors or namespaces are refused.

    So are programs, whatever the supervisor wants.
    """
    out = supervise(
        """
        for flags in (0x100, 0x4100, 0x400, 0x200, 0x10000000, 0x02000000, 0x2000):
            tell(attempt(lambda: raw_clone(flags)))
        tell(attempt(lambda: os.posix_spawn('/bin/true', ['true'], {})))
        """,
        """
        refused = []
        gate._on_refusal = lambda attempt: refused.append(attempt.call)
        out['let through'], out['kernel'] = [], []
        for _ in range(8):
            wait_for_attempt()
            out['let through'].append(gate.answer(True))
            out['kernel'].append(heard())
        out['refused'] = refused
        """,
    )
    assert out.pop("refused")[:7] == ["clone"] * 7
    assert out == {"let through": [False] * 8, "kernel": ["EPERM"] * 8}


def test_what_stops_at_the_gate_fails_as_the_filter_would_have_it(supervise: Supervise) -> None:
    """Programs, signals, debuggers and the network: refused from outside, by name, with the errors of the filter."""
    out = supervise(
        """
        tell(attempt(lambda: os.kill(supervisor, 0)))
        tell(attempt(lambda: os.execv('/bin/true', ['true'])))
        tell(attempt(lambda: socket.socket(socket.AF_INET)))
        """,
        """
        refused = []
        gate._on_refusal = lambda attempt: refused.append([attempt.thread == kernel, attempt.call])
        out['kernel'] = []
        for _ in range(3):
            wait_for_attempt()
            assert not gate.answer(True, pid=kernel)
            out['kernel'].append(heard())
        out['refused'] = refused
        """,
    )
    assert out == {
        "kernel": ["EPERM", "EPERM", "EACCES"],
        "refused": [[True, "kill"], [True, "execve"], [True, "socket"]],
    }


def test_the_kernel_cannot_answer_for_the_supervisor(supervise: Supervise) -> None:
    """Even with a copy of the gate's descriptor, user code cannot let its own fork through."""
    out = supervise(
        """
        said = []
        thread = threading.Thread(target=lambda: said.append(attempt(clone_without_the_gil)))
        thread.start()
        mine = ForkGate(kept[0])
        select.select([kept[0]], [], [], 90)
        tell(attempt(lambda: mine.answer(True)))
        thread.join()
        tell(said[0])
        """,
        """
        out['self'] = heard()
        wait_for_attempt()
        gate.answer(False)
        out['fork'] = heard()
        """,
        keep=True,
    )
    assert out == {"self": "ENOTTY", "fork": "EPERM"}


def test_nobody_forks_when_the_supervisor_is_gone(supervise: Supervise) -> None:
    """A closed gate fails every fork at once, also one that was waiting."""
    out = supervise(
        """
        tell(attempt(os.fork)); tell(attempt(os.fork))
        tell(attempt(lambda: os.execv('/bin/true', ['true'])))
        """,
        """
        wait_for_attempt()
        gate.close()
        out['kernel'] = [heard(), heard(), heard()]
        """,
    )
    assert out == {"kernel": ["ENOSYS", "ENOSYS", "ENOSYS"]}


def test_answering_when_nobody_waits_returns_at_once(supervise: Supervise) -> None:
    """The supervisor never blocks on a gate, also when the kernel was killed in the middle of a fork."""
    out = supervise(
        "attempt(os.fork)",
        """
        wait_for_attempt()
        os.kill(kernel, signal.SIGKILL)
        os.waitpid(kernel, 0)
        out['dead'] = gate.answer(True)
        out['again'] = gate.answer(True)
        out['hung up'] = gate.hung_up
        """,
    )
    assert out == {"dead": False, "again": False, "hung up": True}


def test_an_answer_to_a_kernel_that_has_just_died_lets_nothing_through(supervise: Supervise) -> None:
    """Between the question and the answer; a gate may be closed more than once."""
    out = supervise(
        "attempt(os.fork)",
        """
        wait_for_attempt()
        received_attempt = gate._receive()
        os.kill(kernel, signal.SIGKILL)
        os.waitpid(kernel, 0)
        gate._receive = lambda: received_attempt
        out['let through'] = gate.answer(True)
        gate.close()
        gate.close()
        """,
    )
    assert out == {"let through": False}


def test_a_signal_does_not_disturb_a_fork_that_blocks_it(supervise: Supervise) -> None:
    """An interrupt during a checkpoint loses neither the signal nor the checkpoint."""
    out = supervise(
        """
        caught = []
        signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        tell('ready')
        exit_code = attempt(fork_and_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        tell([exit_code, caught])
        """,
        """
        heard()
        wait_for_attempt()
        os.kill(kernel, signal.SIGUSR1)
        out['let through'] = gate.answer(True, pid=kernel)
        out['kernel'] = heard()
        """,
    )
    assert out == {"let through": True, "kernel": [7, [1]]}
