"""Hostile code with ctypes tries to leave a confined process; the same code gets out without walls.

Each probe defines ``attack()``, which returns a true value when the effect really happened. It is run
twice: in a confined child, where it must fail, and in an unconfined one as control, where it must succeed
(so that a probe cannot pass because it is broken).
"""

import os
import textwrap
from typing import Any, NamedTuple

import pytest


class Probe(NamedTuple):
    """One way out."""

    name: str
    code: str
    control: bool | str = True
    """Whether the probe works unconfined: for everyone, for ``"root"``, or (False) not everywhere."""
    sibling: bool = False


HEADER = """
import ctypes, errno, fcntl, mmap, os, signal, socket, struct, subprocess, time
def call(number, *arguments):
    libc.syscall.restype = ctypes.c_long
    value = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value
NR = {'x86_64': 0, 'aarch64': 1}[os.uname().machine]
def child_of(pid):
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[0] == pid
"""

FOOTER = """
try:
    result = bool(attack())
except (OSError, MemoryError, ValueError):
    result = False
"""

PROGRAMS = [
    Probe("os.system runs a shell", "return os.system('true') == 0"),
    Probe("subprocess runs a program", "return subprocess.run(['/bin/true']).returncode == 0"),
    Probe("posix_spawn runs a program", "return child_of(os.posix_spawn('/bin/true', ['true'], {}))"),
    Probe("execve replaces the process", "os.execv('/bin/true', ['true'])"),
    Probe(
        "a program in memory is executed",
        """
        fd = os.memfd_create('x')
        os.write(fd, open('/bin/true', 'rb').read())
        os.execve(fd, ['true'], {})
        """,
    ),
    Probe("memory outside every limit is made with memfd", "return os.memfd_create('x') > 0"),
    Probe("os.fork copies the process", "return child_of(os.fork())"),
    Probe("a raw clone copies the process", "return child_of(call((56, 220)[NR], signal.SIGCHLD, 0, 0, 0, 0))"),
    Probe(
        "a raw clone makes a sibling",
        "return call((56, 220)[NR], 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) != 0 or os._exit(0)",
    ),
    Probe(
        "clone3 copies the process",
        """
        plain_fork = ctypes.create_string_buffer(struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0))
        return child_of(call(435, plain_fork, 64))
        """,
    ),
    Probe(
        "a fork bomb grows",
        """
        made = 0
        for _ in range(50):
            made += child_of(os.fork())
        return made
        """,
    ),
    Probe(
        "multiprocessing starts a worker",
        "import multiprocessing as m; return m.get_context('fork').Pool(1)",
        False,
    ),
    Probe("a user namespace is entered", "return call((272, 97)[NR], 0x10000000) == 0", control="root"),
    Probe("a network namespace is entered", "return call((272, 97)[NR], 0x40000000) == 0", control="root"),
    Probe(
        "a thread with a namespace is cloned",
        "return child_of(call((56, 220)[NR], 0x10000000 | 17, 0, 0, 0, 0))",
        control="root",
    ),
]

NETWORK = [
    Probe(
        "some family of sockets can be opened",
        """
        made = []
        for family in range(46):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
                try:
                    socket.socket(family, kind).close()
                    made.append(family)
                except OSError:
                    pass
        return made
        """,
    ),
    Probe(
        "a datagram pair can write to other sockets",
        "return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    ),
    Probe("a name is resolved over the network", "return socket.create_connection(('192.0.2.1', 9), 1)", False),
    Probe("a server listens", "return socket.create_server(('127.0.0.1', 0))"),
    Probe("an abstract socket is bound", "s = socket.socket(socket.AF_UNIX); s.bind('\\0walls'); return True"),
    Probe("io_uring is set up", "return call(425, 4, ctypes.create_string_buffer(256)) > 0", control=False),
]

FILES = [
    Probe("/etc/passwd is read", "return open('/etc/passwd').read()"),
    Probe("the root folder is listed", "return os.listdir('/')"),
    Probe("another session's scratch is read", "return open(other + '/secret.txt').read()"),
    Probe("another session's scratch is listed", "return os.listdir(other)"),
    Probe("another session's file is changed", "return open(other + '/secret.txt', 'a').write('x')"),
    Probe("another session's file is emptied", "os.truncate(other + '/secret.txt', 0); return True"),
    Probe(
        "a file is emptied by opening it for reading",
        "return os.open(other + '/secret.txt', os.O_RDONLY | os.O_TRUNC)",
    ),
    Probe("another session's file is deleted", "os.unlink(other + '/secret.txt'); return True"),
    Probe("a file is made beside the scratch", "return open(other + '/new', 'w')"),
    Probe("a file is made in /tmp", "import tempfile; return tempfile.TemporaryFile(dir='/tmp').fileno()"),
    Probe(
        "a file is made in /dev/shm",
        "return os.open('/dev/shm/walls', os.O_CREAT | os.O_RDWR)",
        control=False,
    ),
    Probe("a file is moved out", "os.rename(scratch + '/secret.txt', other + '/moved'); return True"),
    Probe("a file is moved in", "os.rename(other + '/secret.txt', scratch + '/moved'); return True"),
    Probe("a hard link brings a file in", "os.link(other + '/secret.txt', scratch + '/link'); return True"),
    Probe("a symbolic link is left for the host", "os.symlink('/etc/passwd', scratch + '/link'); return True"),
    Probe("a FIFO is left for the host", "os.mkfifo(scratch + '/fifo'); return True"),
    Probe(
        "another session's mode is changed",
        "os.chmod(other, 0o777); return os.stat(other).st_mode & 0o777 == 0o777",
    ),
    Probe(
        "another session's times are changed",
        "os.utime(other + '/secret.txt', (5, 5)); return os.stat(other + '/secret.txt').st_mtime == 5",
    ),
    Probe("a folder is watched", "return call((254, 27)[NR], call((294, 26)[NR], 0), b'/etc', 0xFFF)"),
    Probe(
        "a file is opened by handle",
        "return call((303, 264)[NR], -100, b'/etc', bytes(8), bytes(8), 0)",
        False,
    ),
    Probe(
        "memory of the kernel's own files is reached by /proc",
        "return open('/proc/self/mem', 'rb').fileno()",
    ),
    Probe("the root is changed", "os.chroot(scratch); return True", control="root"),
    Probe(
        "something is mounted",
        "return call((165, 40)[NR], b'x', scratch.encode(), b'tmpfs', 0, None) == 0",
        False,
    ),
]

PROCESSES = [
    Probe(
        "the supervisor's environment is read",
        "return open(f'/proc/{supervisor_pid}/environ', 'rb').read()",
        control="root",
    ),
    Probe("the supervisor's command line is read", "return open(f'/proc/{supervisor_pid}/cmdline', 'rb').read()"),
    Probe(
        "the supervisor's memory is opened",
        "return open(f'/proc/{supervisor_pid}/mem', 'rb').fileno()",
        control="root",
    ),
    Probe(
        "a sibling's environment is read",
        "return open(f'/proc/{sibling_pid}/environ', 'rb').read()",
        True,
        True,
    ),
    Probe(
        "a sibling's memory is read from /proc",
        """
        with open(f'/proc/{sibling_pid}/mem', 'rb', buffering=0) as memory:
            memory.seek(sibling_address)
            return memory.read(len(secret)) == secret.encode()
        """,
        sibling=True,
    ),
    Probe(
        "a sibling's memory is read by a call",
        """
        buffer = ctypes.create_string_buffer(len(secret))
        here = struct.pack('QQ', ctypes.addressof(buffer), len(secret))
        there = struct.pack('QQ', sibling_address, len(secret))
        call((310, 270)[NR], sibling_pid, here, 1, there, 1, 0)
        return buffer.raw == secret.encode()
        """,
        sibling=True,
    ),
    Probe("a sibling is traced", "return call((101, 117)[NR], 16, sibling_pid, 0, 0) == 0", True, True),
    Probe(
        "a sibling is traced without stopping it",
        "return call((101, 117)[NR], 0x4206, sibling_pid, 0, 0) == 0",
        True,
        True,
    ),
    Probe("the supervisor is signalled", "os.kill(supervisor_pid, 0); return True", control="root"),
    Probe("a sibling is killed", "os.kill(sibling_pid, signal.SIGTERM); return True", True, True),
    Probe("everyone is signalled", "os.kill(-1, 0); return True", True, True),
    Probe("the process group is signalled", "os.killpg(0, 0); return True"),
    Probe(
        "a sibling's thread is killed",
        "return call((234, 131)[NR], sibling_pid, sibling_pid, 0) == 0",
        True,
        True,
    ),
    Probe("a thread anywhere is killed", "return call((200, 130)[NR], sibling_pid, 0) == 0", True, True),
    Probe(
        "a signal with data is queued",
        "return call((129, 138)[NR], sibling_pid, 10, struct.pack('iii', 10, 0, -1) + bytes(116)) == 0",
        True,
        True,
    ),
    Probe("a sibling gets a descriptor", "return os.pidfd_open(sibling_pid) > 0", True, True),
    Probe(
        "a descriptor's owner is signalled",
        """
        left, right = socket.socketpair()
        fcntl.fcntl(left, fcntl.F_SETOWN, sibling_pid)
        return fcntl.fcntl(left, fcntl.F_GETOWN) == sibling_pid
        """,
        sibling=True,
    ),
    Probe(
        "a sibling's limits are changed",
        "import resource as r; return r.prlimit(sibling_pid, r.RLIMIT_CPU)",
        True,
        True,
    ),
    Probe(
        "a sibling's processors are changed",
        "os.sched_setaffinity(sibling_pid, [0]); return True",
        True,
        True,
    ),
    Probe(
        "a sibling's priority is changed",
        "os.setpriority(os.PRIO_PROCESS, sibling_pid, 5); return True",
        True,
        True,
    ),
]

KERNEL = [
    Probe("shared memory of System V is made", "return call((29, 194)[NR], 0, 4096, 0o1600) >= 0"),
    Probe("a System V queue is made", "return call((68, 186)[NR], 0, 0o1600) >= 0"),
    Probe(
        "a key is added to the keyring",
        "return call((248, 217)[NR], b'user', b'k', b'v', 1, -3) > 0",
        control=False,
    ),
    Probe("a BPF map is made", "return call((321, 280)[NR], 0, bytes(72), 72)", control=False),
    Probe(
        "performance events are opened",
        "return call((298, 241)[NR], bytes(128), 0, -1, -1, 0)",
        control=False,
    ),
    Probe("page faults are handled", "return call((323, 282)[NR], 1) > 0", control=False),
    Probe("the execution domain is changed", "return call((135, 92)[NR], 0x0040000) >= 0"),
    Probe("the life line to the supervisor is cut", "return libc.prctl(1, 0, 0, 0, 0) == 0"),
    Probe("the process adopts orphans", "return libc.prctl(36, 1, 0, 0, 0) == 0"),
    Probe("another filter answers for the kernel", "return libc.prctl(22, 1, 0, 0, 0) == 0", control=False),
    Probe(
        "an exclusive lock is taken",
        "return fcntl.flock(os.open(scratch, os.O_RDONLY), fcntl.LOCK_EX) is None",
    ),
    Probe("a call of the future is made", "return call(460, 0, 0, 0, 0)", control=False),
    Probe(
        "a call of another machine's numbering is made",
        "return call(0x40000000 | 39) > 0",
        control=False,
    ),
]

MEMORY = [
    Probe("shared memory is mapped beyond the limit", "return len(mmap.mmap(-1, 128 << 20))"),
    Probe(
        "growing memory is mapped beyond the limit",
        "return len(mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100))",
    ),
    Probe("private memory is mapped beyond the limit", "return len(mmap.mmap(-1, 128 << 20, flags=0x22))"),
    Probe("memory is allocated beyond the limit", "return len(bytearray(128 << 20))"),
    Probe(
        "many small allocations pass the limit",
        """
        kept = []
        while len(kept) < 128:
            kept.append(bytes(1 << 20))
        return True
        """,
    ),
    Probe(
        "the limit is raised",
        "import resource as r; r.setrlimit(r.RLIMIT_DATA, (1 << 40, 1 << 40)); return True",
        control="root",
    ),
    Probe(
        "a large file is written",
        """
        with open(scratch + '/big', 'wb') as file:
            file.write(bytes(2 << 20))
        return True
        """,
    ),
    Probe(
        "a large file is claimed",
        "return os.posix_fallocate(os.open(scratch + '/b', 66), 0, 2 << 20) is None",
    ),
    Probe("many files are opened", "return [open(scratch + '/secret.txt') for _ in range(100)]"),
]

PROBES = [*PROGRAMS, *NETWORK, *FILES, *PROCESSES, *KERNEL, *MEMORY]


def names(probe: Probe) -> str:
    """The probe's name as a test id."""
    return probe.name.replace(" ", "-").replace("/", "")


def run(room: Any, probe: Probe, *, confine: bool) -> dict[str, Any]:
    """Run a probe; its answer has ``out``: whether the effect happened."""
    body = textwrap.indent(textwrap.dedent(probe.code).strip(), "    ")
    code = f"{HEADER}def attack():\n{body}\n{FOOTER}"
    answer = room.answer(code, confine=confine, sibling=probe.sibling)
    replaced = answer["status"] == 0 and answer["error"] == "no answer"
    return answer | {"out": replaced or bool(answer["result"])}


@pytest.mark.parametrize("probe", PROBES, ids=names)
def test_hostile_code_does_not_get_out(room: Any, probe: Probe) -> None:
    """With the language wall down, the walls of the system hold; the process survives its own attempt."""
    answer = run(room, probe, confine=True)
    assert not answer["out"], answer
    assert answer["error"] is None, answer
    assert answer.get("sibling_alive", True)


CONTROLS = [probe for probe in PROBES if probe.control is True or (probe.control == "root" and os.getuid() == 0)]


@pytest.mark.parametrize("probe", CONTROLS, ids=names)
def test_the_same_code_gets_out_without_walls(own_room: Any, probe: Probe) -> None:
    """The control: what the walls hold back really works here, so no probe passes because it is broken."""
    answer = run(own_room, probe, confine=False)
    assert answer["out"], answer
