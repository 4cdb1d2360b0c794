"""Which files a process and everything it starts may touch, by Landlock (Linux 5.13 and later).

A domain is inherited and can only shrink. Beyond files it refuses TCP (Linux 6.7) and, from Linux 6.12,
signals and abstract unix sockets to processes outside the domain. It never lets the process trace, or read
the memory or environment of, a process outside the domain.
"""

from __future__ import annotations

import contextlib
import enum
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rlm_sandbox.oswall import libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_SIZE_BY_ABI = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
_NETWORK_TCP = 3
"""Bind and connect."""
_SCOPE_ALL = 3
"""Abstract unix sockets and signals."""


class Access(enum.IntFlag):
    """The rights of Landlock's file system rules, in the kernel's own bits."""

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


READ = Access.READ_FILE | Access.READ_DIR
WRITE = (
    Access.WRITE_FILE
    | Access.REMOVE_DIR
    | Access.REMOVE_FILE
    | Access.MAKE_DIR
    | Access.MAKE_REG
    | Access.REFER
    | Access.TRUNCATE
)
SPECIAL = Access.MAKE_SYM | Access.MAKE_FIFO | Access.MAKE_SOCK
"""Files through which a session could make its host read, or wait for, something else."""
_FOR_FILES = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV
_NEWEST_RIGHT = {1: Access.MAKE_SYM, 2: Access.REFER, 3: Access.TRUNCATE, 4: Access.TRUNCATE}


class Rule(NamedTuple):
    """What may be done at a path and below it."""

    path: Path
    access: Access


def abi_version() -> int:
    """The version of Landlock in this kernel, 0 when there is none."""
    try:
        return libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict(rules: Iterable[Rule], *, abi: int, network: bool) -> None:
    """Restrict this (single-threaded) process for good to ``rules``. Paths that do not exist are left out.

    ``network`` leaves TCP alone. Raises OSError when the kernel refuses. Needs no_new_privs.
    """
    with contextlib.closing(Ruleset(abi=abi, network=network)) as ruleset:
        ruleset.allow(rules)
        ruleset.enforce()


class Ruleset:
    """A domain in the making: rules can be added until it is enforced. Holds a descriptor until it is closed.

    Raises OSError when the kernel refuses, as its methods do.
    """

    def __init__(self, *, abi: int, network: bool) -> None:
        """``network`` leaves TCP alone."""
        self._handled = _rights(abi)
        self._held: set[Rule] = set()
        scopes = _SCOPE_ALL if abi >= 6 else 0
        attributes = struct.pack("<QQQ", self._handled, 0 if network else _NETWORK_TCP, scopes)
        attributes = attributes[: _SIZE_BY_ABI.get(abi, len(attributes))]
        self._fd = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)

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
        """Give up the descriptor; what is enforced stays."""
        os.close(self._fd)


def _rights(abi: int) -> Access:
    newest = _NEWEST_RIGHT.get(abi, Access.IOCTL_DEV)
    return Access(newest * 2 - 1)


def _add(ruleset: int, rule: Rule, handled: Access) -> None:
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        access = rule.access & handled
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _FOR_FILES
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("<Qi", access, fd), 0)
    finally:
        os.close(fd)


def carve(path: Path, access: Access, protected: Iterable[Path]) -> Iterator[Rule]:
    """Rules that give ``access`` to everything below ``path``, except what is in ``protected``.

    Landlock has no exceptions: where a protected folder lies below ``path``, its siblings are granted one
    by one. In the folders on the way nothing can be created; their names stay visible.
    """
    inside = [place for place in protected if place.is_relative_to(path)]
    if not inside:
        yield Rule(path, access)
    elif path not in inside:
        yield Rule(path, Access.READ_DIR)
        with os.scandir(path) as children:
            real = sorted(child.path for child in children if not child.is_symlink())
        for child in real:
            yield from carve(Path(child), access, inside)
