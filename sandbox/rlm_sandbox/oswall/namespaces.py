"""A network and an IPC space of the process's own, in which there is nothing: no interface but a loopback that is down.

seccomp refuses the calls that would reach the network; this wall takes away what they would reach. Root enters the
new spaces directly, anybody else by way of a user namespace, in which the process keeps its own user and group. Some
systems let a process into a user namespace and then give it no rights there (AppArmor on Ubuntu), and there is no way
back, so the way in is tried in a throw-away process first.

Not used: a mount namespace would hide whether paths exist, but costs a mount for each path of the policy (some
milliseconds a session); a process namespace would hold only the copies of a kernel, not the kernel itself, and their
numbers would no longer be those that the host knows.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from rlm_sandbox.oswall import libc

_UNSHARE = {"x86_64": 272, "aarch64": 97}
_NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x08000000, 0x10000000, 0x40000000

COUNTS_BY_NAMESPACE_SINCE = (5, 14)
"""The first Linux that counts the threads of a user separately in each user namespace."""


def enter() -> str:
    """Move this (single-threaded) process into spaces of its own, for good. Returns what they are, in words.

    Call it before privileges are given up, and before Landlock closes /proc.

    Raises:
        OSError: The system does not let it; the process is where it was.
    """
    user = os.geteuid()
    refusal = try_out(user)
    if refusal:
        raise OSError(refusal)
    _enter()
    return "network and IPC of its own" + (", entered through a user namespace" if user else "")


def counts_alone() -> bool:
    """Whether the limit of threads counts this process and its copies only, once it has entered."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    return os.geteuid() != 0 and release >= COUNTS_BY_NAMESPACE_SINCE


def _enter() -> None:
    user, group = os.geteuid(), os.getegid()
    spaces = _NEW_NETWORK | _NEW_IPC | (_NEW_USER if user else 0)
    libc.syscall(_UNSHARE[os.uname().machine], spaces)
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


@functools.cache
def try_out(user: int) -> str:
    """Why a process of ``user`` cannot `enter`, or nothing. Kernels forked from a zygote that asked inherit it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "the process that tried it ended early"
        try:
            _enter()
            said = ""
        except OSError as error:
            said = f"{error.strerror}; " + (
                "root needs CAP_SYS_ADMIN" if os.geteuid() == 0 else "unprivileged user namespaces must be allowed"
            )
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
