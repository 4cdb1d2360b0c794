"""Network and IPC namespaces of the process's own, with nothing in them but a loopback interface that is down.

seccomp refuses the calls that would reach the network. This wall removes what they would reach. Root enters the
namespaces directly. Any other user goes through a user namespace, in which the process keeps its own user and group.
Some systems let a process into a user namespace and then give it no rights there (AppArmor on Ubuntu). There is no way
back from it, so entering is first tried in a throw-away process.

Namespaces of files and processes are another wall, for policies that ask for it (`rlm_sandbox.os_wall.private_root`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rlm_sandbox.os_wall import libc

_UNSHARE = {"x86_64": 272, "aarch64": 97}
_NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x08000000, 0x10000000, 0x40000000
NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000

COUNTS_BY_NAMESPACE_SINCE = (5, 14)
"""The first Linux that counts the threads of a user separately in each user namespace."""


def enter(*, inside: bool = False) -> str:
    """Move this (single-threaded) process into its own namespaces, for good. Return what they are, in words.

    Call it before privileges are given up, and before Landlock closes /proc. ``inside`` says that the process is
    already in a user namespace of its own, if it needs one.

    Raises:
        OSError: The system does not allow it; nothing has changed for the process.
    """
    user = os.geteuid()
    refusal = "" if inside else try_out(user)
    if refusal:
        raise OSError(refusal)
    _enter(inside=inside)
    return "network and IPC of its own" + (", entered through a user namespace" if user else "")


def counts_alone() -> bool:
    """Return whether RLIMIT_NPROC counts only this process and its copies, once it has entered."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    return os.geteuid() != 0 and release >= COUNTS_BY_NAMESPACE_SINCE


def _enter(*, inside: bool = False) -> None:
    unshare(_NEW_NETWORK | _NEW_IPC, user=not inside)


def unshare(spaces: int, *, user: bool = False) -> None:
    """Leave the namespaces ``spaces``; with ``user``, through a user namespace unless this is root. Raises OSError."""
    number, group = os.geteuid(), os.getegid()
    through = _NEW_USER if user and number else 0
    libc.syscall(_UNSHARE[os.uname().machine], spaces | through)
    if through:
        # The kernel accepts a group map from an unprivileged process only after setgroups(2) is denied for good:
        # leaving a group could otherwise give access that a mode takes away from the group.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{number} {number} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


@functools.cache
def try_out(user: int) -> str:
    """Return why a process of ``user`` cannot `enter`, or an empty string. Forks of the zygote inherit the answer."""
    return in_throw_away(_enter)


def in_throw_away(work: Callable[[], None]) -> str:
    """Do ``work`` in a child that ends with it. Return why it failed, or an empty string."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _try(work, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _try(work: Callable[[], None], writing: int) -> NoReturn:
    said = "the process that tried it ended early"
    try:
        work()
        said = ""
    except OSError as error:
        said = (error.strerror or str(error)) + _advice(error)
    finally:
        os.write(writing, said.encode())
        os._exit(0)  # not `sys.exit`: the exit handlers that it inherited are the parent's


def _advice(error: OSError) -> str:
    if error.errno is None:  # it says what it means
        return ""
    needs = "root needs CAP_SYS_ADMIN" if os.geteuid() == 0 else "unprivileged user namespaces must be allowed"
    return f"; {needs}"
