"""The system calls that a kernel process may make, as a seccomp filter.

There are two profiles. *Closed* is for policies with ``limits.processes: 0``. A call that the tables do not name fails
with ENOSYS. There are no programs, no new processes unless the supervisor allows one (`fork_notifier`), no sockets but
inherited ones, and no signals except to the process itself. *Open* is for a developer's own session: everything except
what reaches beyond it.

In a closed session with a supervisor, calls that reach out of the session stop in the kernel until the supervisor has
refused and counted them. Refusals that ordinary libraries run into are not worth counting, so the filter itself makes
them.

A filter sees the arguments of a call but not the memory that they point to. Where that memory decides, the call is
refused altogether (clone3, openat2) or left to Landlock (paths).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import signal
import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple

from rlm_sandbox.os_wall import bpf, libc, syscalls
from rlm_sandbox.os_wall.bpf import IF_ANY_BIT, IF_EQUAL, Block, verdict, when, when_masked
from rlm_sandbox.os_wall.confining import ConfiningPolicy

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5

ALLOW = verdict(bpf.ALLOW)
NOT_PERMITTED = verdict(bpf.errno_action(errno.EPERM))
NO_ACCESS = verdict(bpf.errno_action(errno.EACCES))
MISSING = verdict(bpf.errno_action(errno.ENOSYS))
PRETEND = verdict(bpf.errno_action(0))
"""The call reports success and does nothing."""
ASK_SUPERVISOR = verdict(bpf.NOTIFY)

# Flags of clone(2).
CLONE_THREAD, CLONE_PARENT = 0x00010000, 0x00008000
_CLONE_SETTIDS = 0x00100000 | 0x00200000 | 0x01000000  # where glibc's fork wants the child's number written
_CLONE_NEW = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_CLONE_TRACED = 0x00002000 | 0x00800000
_COPY_OPTIONS = CLONE_PARENT | _CLONE_SETTIDS

# Flags of mmap(2). RLIMIT_DATA does not count memory that is shared and anonymous, nor memory that grows down. A
# session could fill the machine with either and stay below its limit.
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_GROWSDOWN = 0x01, 0x20, 0x0100

# prctl(2) options that concern only the caller: names, timer slack, huge pages, reading its own state.
_PR_SET_PDEATHSIG = 1
_PRCTL_OPTIONS = (2, 3, 15, 16, 21, 23, 29, 30, 38, 39, 41, 42, 52, 0x53564D41)

# fcntl(2) commands that send signals to others, or tell about others' use of a file.
_FCNTL_REFUSED = (fcntl.F_SETOWN, 10, 15, 1024, 1026)  # F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY

# ioctl(2) requests a program needs on its own descriptors: is it a terminal, how wide, how much can be read.
_IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_IOCTL_TYPE_MASK, _IOCTL_SECCOMP = 0xFF00, ord("!") << 8
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_SOCK_TYPE_MASK = 0xF
_REFUSED_WITH_EACCES = {"socket", "socketpair", "sendto", "setsockopt", *syscalls.NETWORK}
_O_TRUNCATE_ONLY = os.O_ACCMODE | os.O_TRUNC


class _Profile(NamedTuple):
    """What the filter depends on."""

    closed: bool
    metadata: bool
    network: bool
    ask_supervisor: bool
    second: bool

    @property
    def leave(self) -> Block:
        """The verdict on calls that the first filter of a closed session decides under any policy, such as forks.

        Of several filters on a process the strictest verdict counts, and ERRNO is stricter than USER_NOTIF. So a second
        filter has to allow these, or the supervisor would never be asked.
        """
        return ASK_SUPERVISOR if self.ask_supervisor else ALLOW if self.second else NOT_PERMITTED

    @property
    def refuse(self) -> Block:
        """EPERM, by the supervisor if there is one."""
        return ASK_SUPERVISOR if self.ask_supervisor else NOT_PERMITTED

    @property
    def no_network(self) -> Block:
        """EACCES, by the supervisor if there is one."""
        return ASK_SUPERVISOR if self.ask_supervisor else NO_ACCESS


_ANY_PID = 0x7FFFFFFF
"""Stands for the process's own number, which no process ever has, until the filter is installed."""


def available_actions() -> set[int]:
    """Which of the actions used here this kernel has; empty when it has no seccomp filters."""
    machine = os.uname().machine
    found = set()
    for action in (bpf.NOTIFY, bpf.errno_action(0), bpf.KILL_PROCESS):
        try:
            libc.syscall(_SECCOMP[machine], _GET_ACTION_AVAIL, 0, struct.pack("=I", action))
        except (OSError, KeyError):
            continue
        found.add(action)
    return found


def build_filter(
    policy: ConfiningPolicy, *, machine: str, pid: int, ask_supervisor: bool, second: bool = False
) -> bytes:
    """The filter for ``policy`` on ``machine``, ready for `install`.

    ``pid`` is the process that may signal itself. ``ask_supervisor`` sends forks and refused calls to the supervisor;
    without it both fail here. The filters of one policy differ only in ``pid``, so the zygote builds each one once and
    its kernels only fill that in. A ``second`` filter of a closed session leaves to the first what that refuses under
    every policy.
    """
    closed = policy.limits.processes == 0
    profile = _Profile(closed, policy.files.metadata, policy.network, ask_supervisor and closed, second and closed)
    return _program(profile, machine).replace(_compares_with(_ANY_PID), _compares_with(pid))


def build_signal_filter(*, machine: str, pid: int) -> bytes:
    """A second filter for a copy of a process, which takes away signals to the process that it was copied from.

    The first filter allows signals to the pid in which it was installed. In a copy that pid is another process.
    """
    only_self = when(0, IF_EQUAL, pid, ALLOW, NOT_PERMITTED)
    rules = {"kill": only_self, "tgkill": only_self, "prlimit64": when(0, IF_EQUAL, 0, ALLOW, only_self)}
    numbers = syscalls.numbers(syscalls.INSPECTED, machine)
    block = bpf.assemble(machine, {numbers[name]: rule for name, rule in rules.items()}, ALLOW, syscalls.NEWEST, ALLOW)
    return b"".join(instruction.pack() for instruction in block)


@functools.lru_cache
def _program(profile: _Profile, machine: str) -> bytes:
    rules = _closed_rules(profile) if profile.closed else _open_rules(profile)
    by_number = {
        number: rules[name] for name, number in syscalls.numbers(syscalls.ALL, machine).items() if name in rules
    }
    default = MISSING if profile.closed else ALLOW
    block = bpf.assemble(machine, by_number, default, syscalls.NEWEST, MISSING)
    return b"".join(instruction.pack() for instruction in block)


def _compares_with(pid: int) -> bytes:
    return bpf.Instruction(IF_EQUAL, 1, 0, pid).pack()


def install(program: bytes, *, listener: bool) -> int | None:
    """Load the filter into this process for good. With ``listener``, return the descriptor that receives forks.

    Needs no_new_privs and a single thread: without SECCOMP_FILTER_FLAG_TSYNC the filter covers only the calling thread.
    Raises OSError when the kernel refuses.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a 16-bit count, then the pointer at its natural alignment.
    head = struct.pack("@HP", len(program) // bpf.INSTRUCTION_BYTES, ctypes.addressof(buffer))
    if not listener:
        _set_filter(0, head)
        return None
    # WAIT_KILLABLE_RECV: once the supervisor has received a call, only a fatal signal interrupts it. Else a signal
    # could restart a fork that the supervisor has answered already.
    try:
        return _set_filter(_NEW_LISTENER | _WAIT_KILLABLE, head)
    except OSError as error:  # kernels before 5.19 do not know the second flag
        if error.errno != errno.EINVAL:
            raise
        return _set_filter(_NEW_LISTENER, head)


def _set_filter(flags: int, program: bytes) -> int:
    return libc.syscall(_SECCOMP[os.uname().machine], _SET_MODE_FILTER, flags, program)


def _closed_rules(profile: _Profile) -> Mapping[str, Block]:
    rules: dict[str, Block] = dict.fromkeys(syscalls.ALLOWED, ALLOW)
    rules |= dict.fromkeys(syscalls.CLOSED, profile.leave)
    rules |= dict.fromkeys(syscalls.METADATA, ALLOW if profile.metadata else PRETEND)
    rules |= dict.fromkeys(syscalls.LINKS, ALLOW if profile.metadata else profile.refuse)
    rules |= _common_rules(profile)
    # `raise` and `abort` of libc signal their own pid, and so does Python's `signal.raise_signal`.
    only_self = when(0, IF_EQUAL, _ANY_PID, ALLOW, profile.refuse)
    rules |= {
        "clone": _clone_rule(profile),
        "fork": profile.leave,
        "kill": only_self,
        "tgkill": only_self,
        "prlimit64": when(0, IF_EQUAL, 0, ALLOW, only_self),
        "sched_setaffinity": when(0, IF_EQUAL, 0, ALLOW, NOT_PERMITTED),
        "mmap": when_masked(
            3,
            _MAP_SHARED | _MAP_ANONYMOUS,
            _MAP_SHARED | _MAP_ANONYMOUS,
            NOT_PERMITTED,
            when(3, IF_ANY_BIT, _MAP_GROWSDOWN, NOT_PERMITTED, ALLOW),
        ),
        # Landlock governs truncation only since Linux 6.2. Before, O_RDONLY | O_TRUNC empties a file that its rules
        # make read-only.
        "open": when_masked(1, _O_TRUNCATE_ONLY, os.O_TRUNC, NOT_PERMITTED, ALLOW),
        "openat": when_masked(2, _O_TRUNCATE_ONLY, os.O_TRUNC, NOT_PERMITTED, ALLOW),
        "prctl": when(
            0,
            IF_EQUAL,
            _PR_SET_PDEATHSIG,
            when(1, IF_EQUAL, signal.SIGKILL, ALLOW, profile.refuse),
            bpf.one_of(0, _PRCTL_OPTIONS, ALLOW, NOT_PERMITTED),
        ),
        # A process may confine itself further, as a forked session with a stricter policy does. But it may not install
        # a listener, which would answer system calls in place of the supervisor.
        "seccomp": when(0, IF_EQUAL, _SET_MODE_FILTER, when(1, IF_EQUAL, 0, ALLOW, profile.refuse), profile.refuse),
        "fcntl": bpf.one_of(1, _FCNTL_REFUSED, profile.refuse, ALLOW),
        # Every session has the same file of a shared text open. An exclusive lock would make all others wait.
        "flock": when(1, IF_ANY_BIT, fcntl.LOCK_EX, NOT_PERMITTED, ALLOW),
        "ioctl": bpf.one_of(1, _IOCTL_ALLOWED, ALLOW, verdict(bpf.errno_action(errno.ENOTTY))),
    }
    return rules


def _open_rules(profile: _Profile) -> Mapping[str, Block]:
    rules = (
        {}
        if profile.metadata
        else dict.fromkeys(syscalls.METADATA, PRETEND) | dict.fromkeys(syscalls.LINKS, NOT_PERMITTED)
    )
    return (
        rules
        | _common_rules(profile)
        | {
            "clone": when(0, IF_ANY_BIT, _CLONE_NEW, NOT_PERMITTED, ALLOW),
            "ioctl": when_masked(
                1,
                _IOCTL_TYPE_MASK,
                _IOCTL_SECCOMP,
                NOT_PERMITTED,
                bpf.one_of(1, (_TIOCSTI, _TIOCLINUX), NOT_PERMITTED, ALLOW),
            ),
        }
    )


def _common_rules(profile: _Profile) -> dict[str, Block]:
    """The rules that both profiles share: the calls that nobody gets, and the network."""
    rules: dict[str, Block] = dict.fromkeys(syscalls.DENIED, profile.leave) | dict.fromkeys(syscalls.ABSENT, MISSING)
    rules |= dict.fromkeys(syscalls.PROBED, NOT_PERMITTED)
    # A datagram socket can be addressed to any other program's socket, even one of a pair. A stream pair can only talk
    # to its other end.
    rules["socketpair"] = when_masked(1, _SOCK_TYPE_MASK, socket.SOCK_STREAM, ALLOW, profile.no_network)
    if profile.network:
        internet = when_masked(1, _SOCK_TYPE_MASK, socket.SOCK_RAW, profile.no_network, ALLOW)
        others = when(0, IF_EQUAL, socket.AF_UNIX, NO_ACCESS, profile.no_network)
        rules["socket"] = bpf.one_of(0, (socket.AF_INET, socket.AF_INET6), internet, others)
        rules |= dict.fromkeys((*syscalls.NETWORK, "sendto", "setsockopt"), ALLOW)
        return rules
    rules |= dict.fromkeys(syscalls.NETWORK, profile.no_network)
    # libc asks nscd over a unix socket for a user's name, in `os.path.expanduser` for example: no attack to count.
    rules["socket"] = when(0, IF_EQUAL, socket.AF_UNIX, NO_ACCESS, profile.no_network)
    # Without an address (length 0) it is `send` on an inherited socket, which glibc implements as sendto.
    rules["sendto"] = when(5, IF_EQUAL, 0, ALLOW, profile.no_network)
    rules["setsockopt"] = when(1, IF_EQUAL, socket.SOL_SOCKET, ALLOW, profile.no_network)
    return rules


def _clone_rule(profile: _Profile) -> Block:
    """Allow threads; let the supervisor decide about a copy of the process, and refuse any other clone."""
    copy = when_masked(0, ~_COPY_OPTIONS, signal.SIGCHLD, profile.leave, profile.refuse)
    thread = when(0, IF_ANY_BIT, CLONE_THREAD, ALLOW, copy)
    return when(0, IF_ANY_BIT, _CLONE_NEW | _CLONE_TRACED, profile.refuse, thread)


def is_copy(call: str, flags: int) -> bool:
    """Whether the call makes a copy of the process, and nothing else that clone(2) can make.

    A copy is exactly what fork(2) makes, optionally with the caller's parent as its parent (CLONE_PARENT): no
    shared memory, no shared descriptors, no namespaces.
    """
    return call == "fork" or (call == "clone" and flags & 0xFFFFFFFF & ~_COPY_OPTIONS == signal.SIGCHLD)


def refusal(call: str) -> int:
    """The error with which the supervisor refuses a call that has stopped for it."""
    return errno.EACCES if call in _REFUSED_WITH_EACCES else errno.EPERM
