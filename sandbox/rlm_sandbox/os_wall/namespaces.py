"""A network and an IPC space of the process's own, in which there is nothing: no interface but a loopback that is down.

seccomp refuses the calls that would reach the network; this wall takes away what they would reach. Root enters the
new spaces directly, anybody else by way of a user namespace, in which the process keeps its own user and group. Some
systems let a process into a user namespace and then give it no rights there (AppArmor on Ubuntu), and there is no way
back, so the way in is tried in a throw-away process first.

Spaces of files and processes are another wall, for policies that ask for it (`rlm_sandbox.os_wall.private_root`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from rlm_sandbox.os_wall import libc

_UNSHARE = {"x86_64": 272, "aarch64": 97}
_NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x08000000, 0x10000000, 0x40000000
NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000

COUNTS_BY_NAMESPACE_SINCE = (5, 14)
"""The first Linux that counts the threads of a user separately in each user namespace."""


def enter(*, inside: bool = False) -> str:
    """Move this (single-threaded) process into spaces of its own, for good. Returns what they are, in words.

    Call it before privileges are given up, and before Landlock closes /proc. ``inside`` says that it has a user
    namespace of its own where it needs one.

    Raises:
        OSError: The system does not let it; the process is where it was.
    """
    user = os.geteuid()
    refusal = "" if inside else try_out(user)
    if refusal:
        raise OSError(refusal)
    _enter(inside=inside)
    return "network and IPC of its own" + (", entered through a user namespace" if user else "")


def counts_alone() -> bool:
    """Whether the limit of threads counts this process and its copies only, once it has entered."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    return os.geteuid() != 0 and release >= COUNTS_BY_NAMESPACE_SINCE


def _enter(*, inside: bool = False) -> None:
    unshare(_NEW_NETWORK | _NEW_IPC, user=not inside)


def unshare(spaces: int, *, user: bool = False) -> None:
    """Leave ``spaces``, with ``user`` by way of a user namespace unless this is root. Raises OSError."""
    number, group = os.geteuid(), os.getegid()
    through = _NEW_USER if user and number else 0
    libc.syscall(_UNSHARE[os.uname().machine], spaces | through)
    if through:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{number} {number} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


@functools.cache
def try_out(user: int) -> str:
    """Why a process of ``user`` cannot `enter`, or nothing. Kernels forked from a zygote that asked inherit it."""
    return in_throw_away(_enter)


def in_throw_away(work: Callable[[], None]) -> str:
    """Do ``work`` in a child that ends with it; returns why it could not be done, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "the process that tried it ended early"
        try:
            work()
            said = ""
        except OSError as error:
            said = (error.strerror or str(error)) + _advice(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _advice(error: OSError) -> str:
    if error.errno is None:  # it says what it means
        return ""
    needs = "root needs CAP_SYS_ADMIN" if os.geteuid() == 0 else "unprivileged user namespaces must be allowed"
    return f"; {needs}"
