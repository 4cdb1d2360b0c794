"""A session's own root folder and pid namespace: what is outside can be neither inspected nor named.

Landlock refuses to read a file, but not to ask whether it exists, how large it is and when it changed. seccomp refuses
signals to other processes, but not to look them up. Here they do not exist at all. The root is an empty folder in
memory with a bind mount for each path of the file rules, and a /proc of the session's own namespace.

unshare(CLONE_NEWPID) does not move the caller, only its later children. So a session's process is forked after
`leave_processes`, behind an init process (`lower_first`): when that ends, the system ends the whole namespace.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import signal
import struct
import tempfile
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlm_sandbox.os_wall import libc, namespaces, privileges, syscalls
from rlm_sandbox.os_wall.landlock import FileAccess, Rule

_MOST_LINKS = 40
"""Maximum number of symbolic links on the way to a path, as many as the system follows."""
_CURRENT_FOLDER = -100

# Flags of mount(2) and umount2(2), attributes of mount_setattr(2).
_NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _PRIVATE, _SLAVE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18, 1 << 19
_DETACH = 2
_ATTR_RDONLY, _ATTR_NOSUID, _AT_RECURSIVE = 1, 2, 0x8000

_PROC = Path("/proc")
_WAITS = "/bin/cat"


@dataclass(frozen=True)
class Seclusion:
    """How far a process got that was forked for a private session."""

    base: Path
    """The folder on which its root is mounted. It hides everything below, so nothing needed may be there."""
    refusal: str = ""
    """Why it shares the pid namespace of all others; empty if it has its own."""


class Root:
    """A root folder that is being built. The process sees the old one until it enters."""

    def __init__(self, base: Path) -> None:
        """Start one on the folder ``base``, in this process's own mounts. Raises OSError where that is not allowed."""
        self._base = str(base)
        self._shown: dict[Path, bool] = {}
        self._held: set[Rule] = set()
        namespaces.unshare(namespaces.NEW_MOUNTS)
        # Slave: what is mounted outside later still appears here, but no mount of ours appears outside.
        _mount(None, "/", None, _RECURSIVE | _SLAVE)
        _mount("tmpfs", self._base, "tmpfs", _NOSUID | _NODEV, b"mode=0755,size=1m")
        os.mkdir(self._at(_PROC))
        _mount("proc", self._at(_PROC), "proc", _NOSUID | _NODEV | _NOEXEC, b"hidepid=ptraceable")

    def show(self, rules: Iterable[Rule]) -> None:
        """Mount the paths of the rules in it. Missing paths are left out."""
        new = set(rules) - self._held
        self._held |= new
        for path, access in sorted(new, key=lambda rule: len(rule.path.parts)):
            if path == Path("/"):
                raise OSError("the policy names the whole file system")
            place = self._way_to(path)
            if place != _PROC and place.exists():
                if access == FileAccess.READ_DIR:
                    os.makedirs(self._at(place), exist_ok=True)
                else:
                    self._bind(place, writable=bool(access & FileAccess.WRITE_FILE))

    def enter(self) -> None:
        """Enter it for good: anything else is gone for this process and its copies."""
        working = Path.cwd()
        os.chdir(self._base)
        # pivot_root(".", ".") stacks the old root on the new one, and the unmount takes it off (pivot_root(2)). chroot
        # would leave it reachable for a process that holds a descriptor outside.
        _call("pivot_root", b".", b".")
        _call("umount2", b".", _DETACH)
        _mount(None, "/", None, _RECURSIVE | _PRIVATE)
        _set_attributes("/", _ATTR_RDONLY, 0)
        os.chdir(working)

    def _at(self, path: Path) -> str:
        return f"{self._base}{path}"

    def _bind(self, place: Path, *, writable: bool) -> None:
        if any(place.is_relative_to(shown) and can >= writable for shown, can in self._shown.items()):
            return
        self._shown[place] = writable
        target = self._at(place)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if place.is_dir():
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        _mount(str(place), target, None, _BIND | _RECURSIVE)
        _set_attributes(target, _ATTR_NOSUID | (0 if writable else _ATTR_RDONLY), _AT_RECURSIVE)

    def _way_to(self, path: Path) -> Path:
        """Return where a path leads; the symbolic links on the way are created in the new root too."""
        place, parts, links = Path("/"), deque(path.parts[1:]), 0
        while parts:
            part = parts.popleft()
            if part == "..":
                place = place.parent
                continue
            if not (step := place / part).is_symlink():
                place = step
                continue
            target, links = os.readlink(step), links + 1
            if links > _MOST_LINKS:
                raise OSError(f"{path} goes through too many symbolic links")
            if not os.path.lexists(made := self._at(step)):
                os.makedirs(os.path.dirname(made), exist_ok=True)
                os.symlink(target, made)
            place = Path("/") if target.startswith("/") else place
            parts.extendleft(reversed([part for part in target.split("/") if part not in ("", ".")]))
        return place


def leave_processes() -> None:
    """Put later children into a new pid namespace, which ends with the first of them. Raises OSError."""
    namespaces.unshare(namespaces.NEW_PROCESSES, user=True)


def lower_first(lifeline: int) -> None:
    """In the init process of a new pid namespace: only wait until the other end of ``lifeline`` is closed.

    It has no privileges and no other open file. It ignores SIGCHLD, so the system reaps the orphans that it inherits.
    It becomes the smallest program that waits for the end of its input, and so needs almost no memory. It returns if
    that program is missing.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd, source in enumerate((lifeline, null, null)):
        os.dup2(source, fd)
    os.closerange(3, lifeline)
    os.closerange(lifeline + 1, os.sysconf("SC_OPEN_MAX"))
    privileges.no_new_privs()
    privileges.drop_capabilities()
    with contextlib.suppress(OSError):
        os.execve(_WAITS, [_WAITS], {})


@functools.cache
def try_out(user: int) -> str:
    """Return why a process of ``user`` cannot have its own root and process numbers, or an empty string.

    Tried in throw-away processes, as there is no way back. Kernels forked from a zygote that asked inherit the answer.
    """
    with tempfile.TemporaryDirectory(prefix="rlm-root-") as base:
        return namespaces.in_throw_away(lambda: _try(Path(base)))


def _try(base: Path) -> None:
    leave_processes()
    if why := namespaces.in_throw_away(lambda: _go_in(base)):
        raise OSError(why)


def _go_in(base: Path) -> None:
    os.chdir("/")
    root = Root(base)
    root.show([Rule(Path("/dev/null"), FileAccess.READ_FILE)])
    root.enter()


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: bytes | None = None) -> None:
    _call("mount", source and os.fsencode(source), os.fsencode(target), kind and kind.encode(), flags, data)


def _set_attributes(path: str, attributes: int, flags: int) -> None:
    # struct mount_attr: what to set, what to clear, propagation, user namespace.
    wanted = struct.pack("=4Q", attributes, 0, 0, 0)
    _call("mount_setattr", _CURRENT_FOLDER, os.fsencode(path), flags, wanted, len(wanted))


def _call(name: str, *arguments: object) -> None:
    libc.syscall(syscalls.numbers(syscalls.DENIED, platform.machine())[name], *arguments)
