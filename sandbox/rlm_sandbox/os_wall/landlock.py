"""Landlock: which files a process and everything it starts may touch (Linux 5.13 and later).

A domain is inherited and can only shrink. A process in it can never trace a process outside, nor read its memory or
environment. `ADDED_BY` lists what else it refuses, by the version that added it.

Landlock grants every right that a ruleset does not "handle". So the running kernel is asked for all rights that it
knows, and the ruleset handles them all. A right that is newer than this file has no rule, and is refused everywhere.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rlm_sandbox.os_wall import libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_FIELDS = ("files", "network", "scopes")
"""The masks of struct landlock_ruleset_attr, 64 bits each; old kernels know the first, or the first two."""


class FileAccess(enum.IntFlag):
    """The rights that a rule can grant at a path, in the kernel's own bits; newer ones are granted nowhere."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


class Addition(NamedTuple):
    """What a version of Landlock added."""

    linux: str
    """The first Linux that has it."""
    holds: tuple[str, ...]
    """What it can refuse a session from then on, in words."""
    network: bool = False
    """Whether that concerns only sessions without a network."""


ADDED_BY = {
    1: Addition("5.13", ("files",)),
    2: Addition("5.19", ("moves between folders",)),
    3: Addition("6.2", ("truncation",)),
    4: Addition("6.7", ("TCP",), network=True),
    5: Addition("6.10", ("devices",)),
    6: Addition("6.12", ("signals", "abstract sockets")),
    # 7, 8 and 11 are left out. They add logging and new ways to enter a domain, which a process with a single thread
    # and no privileges does not need.
    9: Addition("7.1", ("sockets in folders",)),
    10: Addition("7.2", ("UDP",), network=True),
}
"""The versions of Landlock that can refuse more than the previous one."""


READ = FileAccess.READ_FILE | FileAccess.READ_DIR
WRITE = (
    FileAccess.WRITE_FILE
    | FileAccess.REMOVE_DIR
    | FileAccess.REMOVE_FILE
    | FileAccess.MAKE_DIR
    | FileAccess.MAKE_REG
    | FileAccess.REFER
    | FileAccess.TRUNCATE
)
SPECIAL = FileAccess.MAKE_SYM | FileAccess.MAKE_FIFO | FileAccess.MAKE_SOCK
"""Special files: a symbolic link could make the supervisor read another file, a FIFO could make it wait forever."""
_FOR_FILES = (
    FileAccess.EXECUTE | FileAccess.WRITE_FILE | FileAccess.READ_FILE | FileAccess.TRUNCATE | FileAccess.IOCTL_DEV
)


class Rule(NamedTuple):
    """What may be done at a path and below it."""

    path: Path
    access: FileAccess


def abi_version() -> int:
    """Return the version of Landlock in this kernel, 0 when there is none."""
    try:
        return libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def summary(abi: int, *, network: bool) -> str:
    """Return what a kernel of that version refuses a session, and what a newer one would add, in words."""
    known = {version: added for version, added in ADDED_BY.items() if not (network and added.network)}
    held = ", ".join(word for version, added in known.items() if version <= abi for word in added.holds)
    newer = (added for version, added in known.items() if version > abi)
    lacking = [f"Linux {added.linux} adds {', '.join(added.holds)}" for added in newer]
    return "; ".join((f"ABI {abi}: {held}", *lacking))


def restrict(rules: Iterable[Rule], *, network: bool) -> None:
    """Restrict this (single-threaded) process for good to ``rules``. Paths that do not exist are left out.

    ``network`` leaves the network alone. Raises OSError when the kernel refuses. Needs no_new_privs.
    """
    with contextlib.closing(Ruleset(network=network)) as ruleset:
        ruleset.allow(rules)
        ruleset.enforce()


@functools.cache
def handled() -> tuple[int, ...]:
    """Return every right that the running kernel has, as a mask for each of its fields; empty without Landlock.

    The kernel refuses a mask with a right that it does not have, and rights are numbered without gaps. So each mask
    grows by one bit until it is refused. A table by version would not know future kernels.
    """
    masks: tuple[int, ...] = ()
    for _ in _FIELDS:
        known = 0
        while _has((*masks, known * 2 + 1)):
            known = known * 2 + 1
        if not known:
            break
        masks = (*masks, known)
    return masks


def _has(masks: tuple[int, ...]) -> bool:
    if masks[-1] >> 64:
        return False
    try:
        os.close(_create(masks))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.E2BIG, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise
    return True


def _create(masks: tuple[int, ...]) -> int:
    attributes = struct.pack(f"<{len(masks)}Q", *masks)
    return libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)


class Ruleset:
    """A domain that is being built: rules can be added until it is enforced. Holds a descriptor until it is closed.

    Raises OSError when the kernel refuses, as its methods do.
    """

    def __init__(self, *, network: bool) -> None:
        """``network`` leaves the network alone."""
        masks = handled()
        if not masks:
            raise OSError("Linux 5.13 or later with `landlock` in the lsm= list of the kernel is needed")
        self._handled = masks[0]
        self._held: set[Rule] = set()
        self._fd = _create((masks[0], 0, *masks[2:]) if network and len(masks) > 1 else masks)

    def allow(self, rules: Iterable[Rule]) -> None:
        """Add rules. Paths that do not exist are left out."""
        for rule in rules:
            if rule not in self._held:
                self._held.add(rule)
                _add(self._fd, rule, self._handled)

    def enforce(self) -> None:
        """Restrict this (single-threaded) process for good to what is allowed. Needs no_new_privs."""
        libc.syscall(_RESTRICT_SELF, self._fd, 0)

    def close(self) -> None:
        """Release the descriptor; what is enforced stays."""
        os.close(self._fd)


def _add(ruleset: int, rule: Rule, known: int) -> None:
    # O_PATH names a file without opening it: no right to read is needed, and a device or FIFO is not touched.
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        access = rule.access & known
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _FOR_FILES  # the kernel refuses a rule that gives a file the rights of a folder
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("<Qi", access, fd), 0)
    finally:
        os.close(fd)


def carve(path: Path, access: FileAccess, protected: Iterable[Path]) -> Iterator[Rule]:
    """Yield rules that give ``access`` to everything below ``path``, except what is in ``protected``.

    Landlock has no exceptions: where a protected folder is below ``path``, its siblings are granted one by one. In the
    folders on the path nothing can be created; their names stay visible.
    """
    inside = [place for place in protected if place.is_relative_to(path)]
    if not inside:
        yield Rule(path, access)
    elif path not in inside:
        yield Rule(path, FileAccess.READ_DIR)
        with os.scandir(path) as children:
            real = sorted(child.path for child in children if not child.is_symlink())
        for child in real:
            yield from carve(Path(child), access, inside)
