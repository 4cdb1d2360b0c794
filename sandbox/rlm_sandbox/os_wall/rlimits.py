"""Resource limits of a kernel process. The system enforces them exactly and at no cost.

RLIMIT_DATA is the memory limit. It counts writable private memory, so a shared text that is mapped read-only is free.
The seccomp filter refuses the kinds of memory that it does not count. RLIMIT_AS could not be the limit: numpy, glibc's
arenas and shared texts reserve address space that they never use. It only stops absurd reservations.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm_sandbox.os_wall.confining import ConfiningPolicy
from rlm_sandbox.policy.sizes import GIB, MIB

ADDRESS_SPACE_ROOM = 64 * GIB
"""Address space beyond the memory limit: stacks, allocators and shared texts reserve it without using it."""
LOCKED_BYTES = 64 * 1024
STACK_BYTES = 64 * MIB
"""Largest stack of the main thread. RLIMIT_DATA does not count it, because the system maps it as growing down."""


COPIES = 4
"""Threads beyond the policy's, for a worker's companions: its checkpoint, the next one, one that takes over, and the
init process of a private session."""


RESERVED_FILES = 32
"""Open files beyond the policy's, for a worker's own work between cells: the line of a checkpoint, its event loop, a
loaded text. Code that opens all that it may gets an OSError, and nothing else fails."""

RESERVED_BYTES = 8 * MIB
"""Memory beyond the policy's, for a worker's own work before and after code runs: to compile the cell that deletes what
has filled the memory, and to report. Code that takes all that it may gets a MemoryError, and nothing else fails."""


def apply(policy: ConfiningPolicy, *, alone: bool, hands_over: bool = False) -> str:
    """Set the limits of this process, soft and hard. Returns what was set, in words.

    The memory that the process already uses does not count against the policy: a warm kernel has numpy and pandas
    mapped. ``alone`` says that the system counts only threads of this process and its copies, and not all of the
    user's. A caller that still ``hands_over`` a descriptor does it in `handing_over`, which makes the limit of open
    files final.
    """
    limits = policy.limits
    data, address_space = _mapped_bytes()
    wanted = {
        "RLIMIT_DATA": data + limits.memory_bytes + RESERVED_BYTES,
        "RLIMIT_AS": address_space + limits.memory_bytes + limits.content_bytes + ADDRESS_SPACE_ROOM,
        "RLIMIT_STACK": STACK_BYTES,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files + RESERVED_FILES,
        "RLIMIT_CORE": 0,  # a core file would hold the session's whole memory
        "RLIMIT_MEMLOCK": LOCKED_BYTES,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_NICE": 0,
        "RLIMIT_RTPRIO": 0,
    }
    if sys.platform == "linux" and os.getuid() != 0:  # the kernel never applies this one to root
        # The count is per user, not per process. Without a user namespace it starts from all that the user runs now,
        # so it is a brake on a thread bomb and not an exact limit.
        wanted["RLIMIT_NPROC"] = (COPIES if alone else _own_tasks()) + limits.threads + limits.processes
    for name, value in wanted.items():
        _lower(name, value, for_good=not (hands_over and name == "RLIMIT_NOFILE"))
    if not hands_over:
        close_reserve()
    keep_memory_back()
    return (
        f"memory {limits.memory_bytes // MIB} MiB, file {limits.file_bytes // MIB} MiB, "
        f"{limits.open_files} open files, no core dumps"
    )


@contextmanager
def handing_over(policy: ConfiningPolicy) -> Iterator[None]:
    """Raise the soft limit of open files while a descriptor is sent, then make the policy's limit final.

    Linux counts the descriptors in flight per user, and refuses to send (ETOOMANYREFS) when they exceed the sender's
    RLIMIT_NOFILE. A hostile session can keep as many in flight as it may open, so the sender needs a higher limit.
    """
    open_reserve()
    try:
        yield
    finally:
        _lower("RLIMIT_NOFILE", policy.limits.open_files + RESERVED_FILES)
        close_reserve()


def open_reserve() -> None:
    """In a session's worker, while no code of the session runs: allow the files that are kept back from that."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def close_reserve() -> None:
    """Keep these files back from what runs next."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(0, hard - RESERVED_FILES), hard))


def release_memory() -> None:
    """In a session's worker, while no code of the session runs: allow the memory that is kept back from that."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def keep_memory_back() -> None:
    """Keep this memory back from what runs next."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (max(0, hard - RESERVED_BYTES), hard))


def tighten(inner: ConfiningPolicy, outer: ConfiningPolicy) -> None:
    """Lower the limits of a process under ``outer`` to those of ``inner``.

    The limits include what the process used before its first cell, so they are lowered by the difference.
    """
    mine, theirs = inner.limits, outer.limits
    less = theirs.memory_bytes - mine.memory_bytes
    lowered = {
        "RLIMIT_DATA": less,
        "RLIMIT_AS": less + theirs.content_bytes - mine.content_bytes,
        "RLIMIT_FSIZE": theirs.file_bytes - mine.file_bytes,
        "RLIMIT_NOFILE": theirs.open_files - mine.open_files,
        "RLIMIT_NPROC": theirs.threads + theirs.processes - mine.threads - mine.processes,
    }
    for name, difference in lowered.items():
        limit = getattr(resource, name, None)
        if limit is not None and (hard := resource.getrlimit(limit)[1]) != resource.RLIM_INFINITY:
            _lower(name, max(0, hard - difference))
    close_reserve()


def _lower(name: str, value: int, *, for_good: bool = True) -> None:
    """Set one limit, never above what the process may have already."""
    limit = getattr(resource, name, None)
    if limit is None:  # not on this system
        return
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value if for_good else hard))


def _mapped_bytes() -> tuple[int, int]:
    """Bytes of writable private memory, and of address space, that the process has now."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {
        key: int(value.split()[0]) * 1024
        for key, _, value in (line.partition(":") for line in lines)
        if key in ("VmData", "VmSize")
    }
    return sizes.get("VmData", 0), sizes.get("VmSize", 0)


def _own_tasks() -> int:
    """How many threads the user runs on this machine. RLIMIT_NPROC counts them all, not only this process's."""
    return sum(_tasks(entry) for entry in os.scandir("/proc") if entry.name.isdigit())


def _tasks(process: os.DirEntry[str]) -> int:
    """The threads of a process of this user, 0 for others'. ``/proc/PID/task`` has two links plus one per thread."""
    try:
        ours = process.stat().st_uid == os.getuid()
        return Path(process.path, "task").stat().st_nlink - 2 if ours else 0
    except OSError:  # it has ended meanwhile
        return 0
