"""The seccomp filter, run in an interpreter of BPF: what it says to every call on every machine."""

import errno
import re
import signal
import struct
from pathlib import Path

import pytest

from rlm_sandbox.os_wall import bpf, seccomp, syscalls
from rlm_sandbox.policy import FilePolicy, Limits, Policy

PID = 4321
ALLOW, NOTIFY, KILL = bpf.ALLOW, bpf.NOTIFY, bpf.KILL_PROCESS
EPERM, EACCES, ENOSYS, ENOTTY = map(bpf.errno_action, (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTTY))
PRETEND = bpf.errno_action(0)
CLOSED = Policy()
NETWORKED = Policy(network=True)
OPEN = Policy(limits=Limits(processes=8))


def interpret(program: bytes, data: bytes) -> int:
    """Run a classic BPF program on a struct seccomp_data; gives the action."""
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        match operation:
            case bpf.LOAD:
                accumulator = struct.unpack_from("<I", data, constant)[0]
            case bpf.AND:
                accumulator &= constant
            case bpf.RETURN:
                return constant
            case bpf.JUMP:
                at += constant
            case bpf.IF_EQUAL:
                at += if_true if accumulator == constant else if_false
            case bpf.IF_AT_LEAST:
                at += if_true if accumulator >= constant else if_false
            case bpf.IF_ANY_BIT:
                at += if_true if accumulator & constant else if_false
            case _:
                raise ValueError(operation)


class Filter:
    """The filter of a policy on a machine, asked about calls by name or number."""

    def __init__(self, policy: Policy, machine: str, *, ask_supervisor: bool = True) -> None:
        self.machine = machine
        self.program = seccomp.build_filter(policy, machine=machine, pid=PID, ask_supervisor=ask_supervisor)

    def number(self, call: str) -> int | None:
        """The call's number here, None when this machine has no such call."""
        return syscalls.ALL[call].get(self.machine)

    def comes_to(self, call: str, *arguments: int) -> int:
        """What the caller sees of a call.

        For one that stops for the supervisor, and is no fork, the supervisor's error.
        """
        action = self.says(call, *arguments)
        if action == NOTIFY and not seccomp.is_copy(call, *arguments[:1]):
            return bpf.errno_action(seccomp.refusal(call))
        return action

    def says(self, call: str | int, *arguments: int, architecture: int | None = None) -> int:
        """The action for a call with these arguments."""
        number = self.number(call) if isinstance(call, str) else call
        assert number is not None
        padded = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
        arch = bpf.AUDIT_ARCHITECTURE[self.machine] if architecture is None else architecture
        return interpret(self.program, struct.pack("<IIQ6Q", number, arch, 0, *padded))


@pytest.fixture(params=syscalls.ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    """Every machine the tables cover, whatever this one is."""
    return str(request.param)


def test_calls_that_no_session_gets_are_refused_by_every_policy(machine: str) -> None:
    """Other processes, namespaces, devices and the machine's state are out of reach of all profiles."""
    for policy in (CLOSED, NETWORKED, OPEN, Policy(files=FilePolicy(metadata=True))):
        filter_ = Filter(policy, machine)
        for call in syscalls.numbers(syscalls.DENIED, machine):
            assert filter_.comes_to(call, 0) == EPERM, call
        for call in syscalls.numbers(syscalls.ABSENT, machine):
            assert filter_.says(call) == ENOSYS, call


def test_a_closed_session_gets_only_the_calls_of_the_table(machine: str) -> None:
    """Deny by default: a number that the table does not know is answered as if it did not exist."""
    filter_ = Filter(CLOSED, machine)
    allowed = set(syscalls.numbers(syscalls.ALLOWED, machine).values())
    known = set(syscalls.numbers(syscalls.ALL, machine).values())
    for number in [*range(1024), 0x3FFFFFFF, 0x40000000, 0x40000027, 0xFFFFFFFF]:
        action = filter_.says(number)
        if number in allowed:
            assert action == ALLOW, number
        elif number not in known:
            assert action == ENOSYS, number


def test_calls_newer_than_the_table_do_not_exist_for_any_session(machine: str) -> None:
    """A kernel that learns new calls opens nothing."""
    for policy in (CLOSED, OPEN):
        filter_ = Filter(policy, machine)
        assert {filter_.says(number) for number in range(syscalls.NEWEST + 1, 700)} == {ENOSYS}


def test_programs_of_another_abi_are_killed(machine: str) -> None:
    """32-bit calls have other numbers; a process that makes one has no innocent reason."""
    assert Filter(CLOSED, machine).says("getpid", architecture=0x40000003) == KILL


def test_forks_wait_for_the_supervisor_and_threads_do_not(machine: str) -> None:
    """fork(), with and without the parent's parent, asks; threads are free; what is between is refused."""
    filter_ = Filter(CLOSED, machine)
    glibc_fork, glibc_thread = 0x01200011, 0x003D0F00
    assert filter_.says("clone", glibc_fork) == NOTIFY
    assert filter_.says("clone", seccomp.CLONE_PARENT | signal.SIGCHLD) == NOTIFY
    assert filter_.says("clone", glibc_thread) == ALLOW
    traced = (glibc_thread | 0x2000, glibc_thread | 0x800000)  # CLONE_PTRACE, CLONE_UNTRACED
    for flags in (0x4111, 0x111, 0x10000011, 0x2011, 0, glibc_thread | 0x10000000, *traced):
        assert filter_.comes_to("clone", flags) == EPERM, hex(flags)
    if filter_.number("fork") is not None:
        assert filter_.says("fork") == NOTIFY
        assert filter_.comes_to("vfork", 0) == EPERM


def test_without_a_supervisor_the_filter_refuses_by_itself(machine: str) -> None:
    """Without a gate there is nobody to ask: the same calls fail with the same errors, and nothing waits."""
    alone, asking = Filter(CLOSED, machine, ask_supervisor=False), Filter(CLOSED, machine)
    assert alone.says("clone", 0x01200011) == EPERM
    refused = syscalls.CLOSED | syscalls.DENIED | syscalls.LINKS | syscalls.NETWORK | syscalls.PROBED
    for call in (*syscalls.numbers(refused, machine), "socket", "kill", "seccomp", "socketpair"):
        assert alone.says(call, 2, 2) == asking.comes_to(call, 2, 2) != ALLOW, call


def test_what_reaches_out_is_counted_and_what_libraries_probe_is_not(machine: str) -> None:
    """Refusals by the supervisor cost it a moment each, and are shown as attempts: ordinary work must not make any."""
    filter_ = Filter(CLOSED, machine)
    for call in syscalls.numbers(syscalls.CLOSED | syscalls.DENIED | syscalls.NETWORK, machine):
        assert filter_.says(call, 0) == NOTIFY, call
    assert filter_.says("socket", 2, 1) == NOTIFY
    for call in syscalls.numbers(syscalls.PROBED, machine):
        assert filter_.says(call) == EPERM, call
    assert filter_.says("socket", 1, 1) == EACCES
    assert filter_.says("mmap", 0, 4096, 3, 0x21) == EPERM
    assert filter_.says("ioctl", 1, 0x8901) == ENOTTY
    assert filter_.says("flock", 3, 2) == EPERM


def test_only_a_plain_copy_counts_as_one(machine: str) -> None:
    """The supervisor lets nothing continue that is more than fork(2), whatever has stopped for it."""
    assert seccomp.is_copy("clone", 0x01200011)
    assert seccomp.is_copy("clone", seccomp.CLONE_PARENT | signal.SIGCHLD)
    assert seccomp.is_copy("fork", 0xFFFFFFFF)
    for flags in (0x4111, 0x111, 0x10000011, 0x2011, 0, 0x003D0F00):
        assert not seccomp.is_copy("clone", flags), hex(flags)
    for call in syscalls.numbers(syscalls.ALL, machine).keys() - {"clone", "fork"}:
        assert not seccomp.is_copy(call, 0x01200011), call


def test_a_process_signals_only_itself(machine: str) -> None:
    """Not the supervisor, not another kernel, not a group, not everyone."""
    filter_ = Filter(CLOSED, machine)
    for call in ("kill", "tgkill"):
        assert filter_.says(call, PID, 9) == ALLOW
        for other in (1, PID + 1, 0, -1, -PID):
            assert filter_.comes_to(call, other, 9) == EPERM, (call, other)


def test_a_process_changes_limits_and_processors_of_itself_only(machine: str) -> None:
    """A copy has the number of the process that the first filter names, and may not reach that one either."""
    filter_, copied = Filter(CLOSED, machine), Filter(CLOSED, machine)
    copied.program = seccomp.build_signal_filter(machine=machine, pid=PID)
    for call in ("prlimit64", "sched_setaffinity"):
        assert [filter_.comes_to(call, pid) for pid in (0, 1, PID + 1)] == [ALLOW, EPERM, EPERM], call
    for call in ("kill", "tgkill", "prlimit64"):
        assert [copied.says(call, pid) for pid in (PID, 1, PID + 1)] == [ALLOW, EPERM, EPERM], call
    assert [copied.says("prlimit64", 0), copied.says("openat")] == [ALLOW, ALLOW]


def test_memory_that_no_limit_counts_cannot_be_mapped(machine: str) -> None:
    """Shared anonymous and growing memory are refused, file mappings and private memory are not."""
    filter_ = Filter(CLOSED, machine)
    verdicts = {0x22: ALLOW, 0x02: ALLOW, 0x01: ALLOW, 0x21: EPERM, 0x23: EPERM, 0x122: EPERM, 0x20022: ALLOW}
    assert {flags: filter_.says("mmap", 0, 4096, 3, flags) for flags in verdicts} == verdicts


def test_a_closed_session_opens_no_socket(machine: str) -> None:
    """K-28: whatever the family; inherited sockets can still be read and written."""
    filter_ = Filter(CLOSED, machine)
    assert {filter_.comes_to("socket", family, 1) for family in range(64)} == {EACCES}
    for call in syscalls.numbers(syscalls.NETWORK, machine):
        assert filter_.comes_to(call, 0) == EACCES
    assert filter_.says("sendto", 3, 0, 1, 0, 0, 0) == ALLOW
    assert filter_.comes_to("sendto", 3, 0, 1, 0, 0, 16) == EACCES
    assert filter_.says("socketpair", 1, 1 | 0o2000000) == ALLOW
    assert filter_.comes_to("socketpair", 1, 2) == EACCES


def test_a_networked_session_opens_internet_sockets_only(machine: str) -> None:
    """No unix socket (other programs of the user), no netlink, no packets."""
    filter_ = Filter(NETWORKED, machine)
    allowed = [family for family in range(64) if filter_.says("socket", family, 1) == ALLOW]
    assert allowed == [2, 10]
    assert filter_.comes_to("socket", 2, 3) == EACCES
    assert filter_.says("connect", 3) == ALLOW


def test_metadata_changes_pretend_unless_the_policy_says_otherwise(machine: str) -> None:
    """Libraries that copy modes and times go on; nothing changes."""
    for call in syscalls.numbers(syscalls.METADATA, machine):
        assert Filter(CLOSED, machine).says(call) == PRETEND
        assert Filter(Policy(files=FilePolicy(metadata=True)), machine).says(call) == ALLOW
    for call in syscalls.numbers(syscalls.LINKS, machine):
        assert Filter(CLOSED, machine).comes_to(call, 0) == EPERM


def test_the_life_line_to_the_supervisor_can_be_tied_but_not_cut(machine: str) -> None:
    """A copy sets PR_SET_PDEATHSIG to SIGKILL; no other value is accepted."""
    filter_ = Filter(CLOSED, machine)
    assert filter_.says("prctl", 1, 9) == ALLOW
    assert filter_.comes_to("prctl", 1, 0) == EPERM
    assert filter_.says("prctl", 22, 1) == EPERM
    assert filter_.says("prctl", 15) == ALLOW


def test_descriptors_can_be_asked_but_not_made_to_signal_or_inject(machine: str) -> None:
    """No terminal injection, no answers to seccomp, no signals by way of a descriptor, no exclusive locks."""
    filter_ = Filter(CLOSED, machine)
    assert filter_.says("ioctl", 1, 0x5401) == ALLOW
    for request in (0x5412, 0x541C, 0xC0182101, 0x8901, 0x8902):
        assert filter_.says("ioctl", 1, request) == ENOTTY, hex(request)
    assert {filter_.comes_to("fcntl", 1, command) for command in (8, 10, 15, 1024, 1026)} == {EPERM}
    assert filter_.says("fcntl", 1, 1) == ALLOW
    assert {filter_.says("flock", 3, operation) for operation in (2, 6)} == {EPERM}
    assert {filter_.says("flock", 3, operation) for operation in (1, 5, 8)} == {ALLOW}


def test_opening_for_reading_cannot_empty_a_file(machine: str) -> None:
    """Landlock before Linux 6.2 does not govern truncation."""
    filter_ = Filter(CLOSED, machine)
    for call, position in (("open", 1), ("openat", 2)):
        if filter_.number(call) is not None:
            before = [0] * position
            assert filter_.says(call, *before, 0o1000) == EPERM
            assert filter_.says(call, *before, 0o1000 | 1) == ALLOW
            assert filter_.says(call, *before, 0) == ALLOW


def test_an_open_session_runs_programs_but_makes_no_namespaces(machine: str) -> None:
    """A developer's session is guarded against accidents, not against the developer."""
    filter_ = Filter(OPEN, machine)
    for call in ("execve", "wait4", "kill", "setpgid", "truncate"):
        assert filter_.says(call, 1) == ALLOW, call
    assert filter_.says("clone", 0x01200011) == ALLOW
    assert filter_.says("clone", 0x10000011) == EPERM
    assert [filter_.says("ioctl", 0, request) for request in (0x5412, 0x541C)] == [EPERM, EPERM]
    assert filter_.says("ioctl", 0, 0x5402) == ALLOW


def test_groups_do_not_overlap() -> None:
    """A call stands in one group, so that its fate does not depend on the order of the rules."""
    groups = (
        syscalls.ALLOWED,
        syscalls.INSPECTED,
        syscalls.PROBED,
        syscalls.METADATA,
        syscalls.LINKS,
        syscalls.NETWORK,
        syscalls.CLOSED,
        syscalls.DENIED,
        syscalls.ABSENT,
    )
    assert sum(map(len, groups)) == len(syscalls.ALL)


def test_every_inspected_call_has_a_rule() -> None:
    """A call that is named as inspected and then forgotten would fall to the default."""
    for machine in syscalls.ARCHITECTURES:
        filter_ = Filter(CLOSED, machine)
        for call in syscalls.numbers(syscalls.INSPECTED, machine):
            assert filter_.says(call) != ENOSYS, call


HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    """The tables were copied from the headers; where headers are installed they must agree."""
    header = next((Path(path) for path in HEADERS[machine] if Path(path).is_file()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    text = header.read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    for call, number in syscalls.numbers(syscalls.ALL, machine).items():
        if call in known:
            assert known[call] == number, call
    assert len(known) > 250


def test_the_manual_counts_the_calls_as_they_are() -> None:
    """SECURITY.md says how many system calls a session has: a longer list has to be said."""
    policy = syscalls.METADATA | syscalls.LINKS
    refused = syscalls.CLOSED | syscalls.DENIED | syscalls.NETWORK
    groups = (syscalls.ALLOWED, syscalls.INSPECTED, policy, refused)
    x86, arm = ([len(syscalls.numbers(group, machine)) for group in groups] for machine in syscalls.ARCHITECTURES)
    said = " ".join((Path(__file__).parents[3] / "SECURITY.md").read_text(encoding="utf-8").split())
    assert f"has {x86[0]} of x86-64's system calls whatever their arguments, {x86[1]} by their arguments" in said
    assert f"and {x86[2]} that pretend or depend on the policy." in said
    assert f"On aarch64 these are {arm[0]}, {arm[1]} and {arm[2]}." in said
    assert f"{x86[3]} that reach out of a session" in said
    assert f"({arm[3]} on aarch64)" in said
