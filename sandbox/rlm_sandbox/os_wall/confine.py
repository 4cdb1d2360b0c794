"""Raises every wall of the operating system around this process, for good.

Called in a kernel process after fork and before its first cell, while it has a single thread: a Landlock domain covers
the calling thread and what it starts, not existing threads. The order matters. Descriptors are closed first, because an
open one is beyond Landlock's reach; namespaces need the privileges that are given up next; no_new_privs comes before
Landlock and seccomp, which require it; seccomp comes last, because it refuses what the others need.

The part that does not depend on a session's policy (`isolate`) can be done in advance, while nobody waits.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall import bpf, landlock, namespaces, privileges, readable, rlimits, seccomp
from rlm_sandbox.os_wall.confining import ConfiningPolicy
from rlm_sandbox.os_wall.landlock import FileAccess, Rule, Ruleset
from rlm_sandbox.os_wall.private_root import Root, Seclusion
from rlm_sandbox.os_wall.report import WallReport
from rlm_sandbox.os_wall.syscalls import ARCHITECTURES
from rlm_sandbox.policy.layer_names import WallName

STANDARD_FDS = (0, 1, 2)
UMASK = 0o077

# GLIBC_TUNABLES says how the C library copies and allocates.
HARMLESS_VARIABLES = frozenset("GLIBC_TUNABLES HOME LANG LANGUAGE PATH PWD SHLVL TERM TMPDIR TZ USER LOGNAME _".split())
HARMLESS_PREFIXES = tuple(
    "LC_ PYTHON MPL OMP_ OPENBLAS_ MKL_ NUMEXPR_ RLM_KERNEL_ ARROW_ JE_ARROW_ IPYTHON JUPYTER_".split()
)
"""Variables that may be in the environment in which a kernel process was started; any other may hold a secret."""


@dataclass(frozen=True)
class Isolation:
    """What `isolate` did: the walls that are active since then, and the file rules that every session has."""

    report: WallReport
    network: bool
    ruleset: Ruleset | None
    root: Root | None


@dataclass(frozen=True)
class Confinement:
    """What `confine` did."""

    report: WallReport
    notify_fd: int | None
    """The descriptor for the supervisor's ForkGate. Hand it over and close it before any cell runs."""


def isolate(keep_fds: Collection[int], *, network: bool, seclusion: Seclusion | None = None) -> Isolation:
    """Raise the walls that are the same for every session with, or without, a network; for good.

    ``keep_fds`` stay open, besides 0, 1 and 2. The process must have the environment of its session by now.
    ``seclusion`` is that of a process which was forked for a private session.

    Raises:
        WallSetupError: The process has more than one thread.
    """
    _require_single_thread()
    report = WallReport()
    _close_descriptors(report, {*STANDARD_FDS, *keep_fds})
    os.umask(UMASK)
    _check_environment(report)
    _raise_namespaces(report, network, inside=seclusion is not None and not seclusion.refusal)
    root = None if seclusion is None else _begin_root(report, seclusion)
    ruleset = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # `enforce` builds it again, and reports why that is impossible
            ruleset = _begin_ruleset(network)
    return Isolation(report, network, ruleset, root)


def confine(
    policy: ConfiningPolicy,
    *,
    scratch: Path,
    read: Sequence[Path],
    keep_fds: Collection[int],
    fork_gate: bool,
    protect: Collection[Path] = (),
    isolation: Isolation | None = None,
    seclusion: Seclusion | None = None,
) -> Confinement:
    """Confine this process to ``policy`` for good.

    Walls that this system does not have are reported as not active; call ``report.demand(policy)`` when all walls have
    been reported.

    Args:
        policy: What the session may do, with real paths (`resolve`).
        scratch: The session's own folder, which it may change.
        read: Files and folders it may read beyond the policy and the Python installation.
        keep_fds: Descriptors that stay open, besides 0, 1 and 2.
        fork_gate: Let the supervisor decide about forks, instead of refusing them all. Ignored for a policy that
            allows processes, and where the kernel cannot ask (``notify_fd`` is then None). Hand it over within
            `rlimits.handing_over`.
        protect: Folders that stay closed even where a path of the policy contains them, such as the state folder.
        isolation: What `isolate` did in advance in this process, for as much network as the policy allows.
        seclusion: What `isolate` is told when it was not done in advance.

    Raises:
        WallSetupError: The process has more than one thread, or was isolated for another kind of session.
    """
    if isolation is None:
        isolation = isolate(keep_fds, network=policy.network, seclusion=seclusion)
    else:
        _require_single_thread()
        if isolation.network != policy.network:
            raise WallSetupError("this process was isolated ahead for sessions whose network differs; use a fresh one")
    report = isolation.report
    alone = report["namespaces"].standing and namespaces.counts_alone()
    _raise_wall(report, "rlimits", lambda: rlimits.apply(policy, alone=alone, hands_over=fork_gate))
    if sys.platform != "linux":
        for name in ("no_new_privs", "landlock", "seccomp", "process_creation"):
            report.set(name, False, f"{platform.system()} does not have it; run on Linux")
        return Confinement(report, None)
    # Computed here: a folder that cannot be listed must stop the start, and must not leave the wall out.
    rules = list(file_rules(policy, scratch.resolve(), read, protect))
    if policy.walls.private:
        _raise_private(report, isolation.root, rules)
    _raise_wall(report, "no_new_privs", lambda: _give_up_privileges(policy))
    _raise_wall(report, "landlock", lambda: _raise_landlock(isolation.ruleset, policy, rules))
    return Confinement(report, _raise_seccomp(report, policy, fork_gate))


def prepare(policy: ConfiningPolicy) -> None:
    """Do once, in the zygote, what is the same for every kernel of ``policy``; this halves its time."""
    readable.python_paths()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # reported when the wall is raised
            landlock.handled()
        namespaces.try_out(os.geteuid())
    if _has_seccomp():
        for ask_supervisor in (True, False):
            seccomp.build_filter(policy, machine=platform.machine(), pid=os.getpid(), ask_supervisor=ask_supervisor)


def _require_single_thread() -> None:
    tasks = Path("/proc/self/task")
    if tasks.is_dir() and len(list(tasks.iterdir())) != 1:
        raise WallSetupError(
            "confine() was called in a process with several threads, of which it could confine only one; "
            "call it right after fork, before any thread starts"
        )


def _raise_wall(report: WallReport, name: WallName, build: Callable[[], str]) -> None:
    """Raise one wall and report the result; a wall that this system lacks is not an error here."""
    try:
        report.set(name, True, build())
    except (OSError, ValueError, KeyError) as error:
        report.set(name, False, f"this system refuses it: {error}")


def _close_descriptors(report: WallReport, keep: set[int]) -> None:
    """Close every descriptor except those in ``keep``; the one that lists them has already closed itself."""
    try:
        fds = {int(entry.name) for entry in Path("/dev/fd").iterdir()}
    except OSError:  # a container without /proc
        fds = set(range(os.sysconf("SC_OPEN_MAX")))
    for fd in fds - keep:
        with contextlib.suppress(OSError):
            os.close(fd)
    report.set("descriptors", True, f"kept: {', '.join(map(str, sorted(keep)))}")


def _check_environment(report: WallReport) -> None:
    """Report on the environment at the process's start: it stays in memory whatever os.environ says now."""
    try:
        initial = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        initial = []
    names = os.environ.keys() | {os.fsdecode(entry.partition(b"=")[0]) for entry in initial if entry}
    harmless = {name for name in names if name in HARMLESS_VARIABLES or name.startswith(HARMLESS_PREFIXES)}
    others = sorted(names - harmless)
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    advice = f"holds {', '.join(others[:3])}{more}; start the supervisor with an empty environment"
    report.set("environment", not others, advice if others else "no secrets")


def _raise_namespaces(report: WallReport, network: bool, inside: bool) -> None:
    """Give a session that may use no network an empty one of its own."""
    if network:
        report.set("namespaces", False, "the policy allows the network")
    elif sys.platform != "linux":
        report.set("namespaces", False, f"{platform.system()} does not have it; run on Linux")
    else:
        _raise_wall(report, "namespaces", lambda: namespaces.enter(inside=inside))


def _begin_root(report: WallReport, seclusion: Seclusion) -> Root | None:
    """Return a private session's root with what every session sees; None, with the reason, where it is unavailable."""
    try:
        if seclusion.refusal:
            raise OSError(seclusion.refusal)
        root = Root(seclusion.base)
        root.show((*(Rule(path, landlock.READ) for path in readable.import_links()), *_common_rules(landlock.READ)))
    except OSError as error:
        report.set("private", False, f"this system refuses it: {error}")
        return None
    return root


def _raise_private(report: WallReport, root: Root | None, rules: Sequence[Rule]) -> None:
    if root is not None:
        _raise_wall(report, "private", lambda: _enter_root(root, rules))
    elif "private" not in report:
        report.set("private", False, "the process was not forked for a private session")


def _enter_root(root: Root, rules: Sequence[Rule]) -> str:
    root.show(rules)
    root.enter()
    return "root folder, /proc and process numbers of its own"


def _give_up_privileges(policy: ConfiningPolicy) -> str:
    privileges.no_new_privs()
    if policy.limits.processes:
        return "programs gain no privileges"
    privileges.drop_capabilities()
    return "no privileges to gain, capabilities given up"


def file_rules(
    policy: ConfiningPolicy, scratch: Path, read: Sequence[Path], protect: Collection[Path]
) -> Iterator[Rule]:
    """Yield everything the process may touch. What it may write it may read."""
    run = FileAccess.EXECUTE if policy.limits.processes else FileAccess(0)
    reading = landlock.READ | run
    writing = reading | landlock.WRITE | (landlock.SPECIAL if policy.files.metadata else FileAccess(0))
    yield from _common_rules(reading)
    network = map(Path, readable.NETWORK_DATA if policy.network else ())
    yield from (Rule(path, reading) for path in (*network, *read))
    if policy.limits.processes:
        yield from (Rule(Path(path), writing | FileAccess.IOCTL_DEV) for path in readable.PROGRAM_DEVICES)
    yield Rule(scratch, writing)
    closed = [place.resolve() for place in protect]
    for access, paths in ((reading, policy.files.read), (writing, policy.files.write)):
        for path in map(Path, paths):
            if not path.is_relative_to(scratch):
                yield from landlock.carve(path, access, closed)


def _common_rules(reading: FileAccess) -> Iterator[Rule]:
    """Yield what any Python process needs: the installation, libraries, /dev/null."""
    system = map(Path, (*readable.SYSTEM_LIBRARIES, *readable.SYSTEM_DATA))
    yield from (Rule(path, reading) for path in (*readable.python_paths(), *system))
    yield Rule(Path("/dev/null"), FileAccess.READ_FILE | FileAccess.WRITE_FILE)


def _begin_ruleset(network: bool) -> Ruleset:
    ruleset = Ruleset(network=network)
    try:
        ruleset.allow(_common_rules(landlock.READ))
    except OSError:
        ruleset.close()
        raise
    return ruleset


def _raise_landlock(begun: Ruleset | None, policy: ConfiningPolicy, rules: Iterable[Rule]) -> str:
    with contextlib.closing(begun or _begin_ruleset(policy.network)) as ruleset:
        ruleset.allow(rules)
        ruleset.enforce()
    return landlock.summary(landlock.abi_version(), network=policy.network)


def _has_seccomp() -> bool:
    return sys.platform == "linux" and platform.machine() in ARCHITECTURES and bool(seccomp.available_actions())


def _raise_seccomp(report: WallReport, policy: ConfiningPolicy, fork_gate: bool) -> int | None:
    """Install the filter and report on the two walls it carries. Returns the gate's descriptor."""
    programs = policy.limits.processes > 0
    try:
        if not _has_seccomp():
            raise OSError(f"Linux with seccomp filters on {' or '.join(ARCHITECTURES)} is needed")
        fd = _install_filter(policy, fork_gate and not programs)
    except OSError as error:
        for name in ("seccomp", "process_creation"):
            report.set(name, False, f"this system refuses it: {error}")
        return None
    report.set("seccomp", True, "developer's calls" if programs else "only the calls a kernel needs")
    copies = "only when the supervisor asks" if fd is not None else "never"
    allowed = f"the policy allows {policy.limits.processes} processes"
    report.set("process_creation", not programs, allowed if programs else f"no programs; copies {copies}")
    return fd


def _install_filter(policy: ConfiningPolicy, ask_supervisor: bool) -> int | None:
    """Install the filter; without a listener (an old kernel, or another listener) forks are refused."""
    ask_supervisor = ask_supervisor and bpf.NOTIFY in seccomp.available_actions()
    program = seccomp.build_filter(policy, machine=platform.machine(), pid=os.getpid(), ask_supervisor=ask_supervisor)
    try:
        return seccomp.install(program, listener=ask_supervisor)
    except OSError:
        if not ask_supervisor:
            raise
        return _install_filter(policy, ask_supervisor=False)
