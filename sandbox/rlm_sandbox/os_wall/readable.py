"""The files a Python process needs to read whatever its session may do."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("rlm_ipc", "rlm_sandbox", "rlm_memory", "rlm_contexts", "rlm_lock", "rlm_client", "rlm_kernel", "rlm_mcp")
"""Our own import packages, wherever they are installed."""

SYSTEM_LIBRARIES = tuple("/lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /nix/store /etc/ld.so.cache".split())
SYSTEM_DATA = tuple(
    """
    /usr/share/zoneinfo /etc/localtime /etc/timezone /usr/share/fonts /usr/local/share/fonts /etc/fonts
    /usr/share/locale /usr/share/i18n /etc/mime.types /dev/null /dev/urandom /dev/random
    /proc/cpuinfo /proc/meminfo /proc/sys/vm/overcommit_memory /sys/devices/system/cpu
    /sys/kernel/mm/transparent_hugepage
    """.split()
)
"""Time zones, fonts, languages, kinds of files, random numbers. Numeric libraries ask the last about the machine."""
PROGRAM_DEVICES = ("/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/tty", "/dev/zero", "/dev/full")
"""What programs expect to write to: terminals of their own, and shared memory."""
NETWORK_DATA = tuple(
    """
    /etc/resolv.conf /run/systemd/resolve /etc/hosts /etc/host.conf /etc/nsswitch.conf /etc/gai.conf /etc/services
    /etc/protocols /etc/ssl /etc/pki /etc/ca-certificates /usr/share/ca-certificates /usr/local/share/ca-certificates
    """.split()
)
"""Name resolution and certificates, for sessions with network."""


@functools.cache
def python_paths() -> tuple[Path, ...]:
    """The Python installation, its site-packages and our own packages, as real paths.

    Worked out once: kernels forked from a zygote that has asked inherit the answer.
    """
    candidates = [*_installation(), *_import_path()]
    return tuple(dict.fromkeys(path for path in candidates if os.access(path, os.R_OK)))


def import_links() -> tuple[Path, ...]:
    """The entries of the import path that are reached through a symbolic link: modules are looked up by these names."""
    written = [Path(entry).absolute() for entry in filter(None, sys.path)]
    known = set(python_paths())
    return tuple(path for path in written if (real := path.resolve()) != path and real in known)


def _installation() -> Iterator[Path]:
    """The prefixes; where one of them holds the user's home, only those of its parts that are Python's."""
    try:
        home = Path.home().resolve()
    except RuntimeError:  # a number without a name and a home, as containers give to their users
        home = None
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}:
        path = Path(prefix).resolve()
        if home is None or not home.is_relative_to(path):
            yield path
    yield from (Path(path).resolve() for path in sysconfig.get_paths().values())


def _import_path() -> Iterator[Path]:
    """The folders of sys.path that hold installed packages or ours; never a user's project by accident."""
    for entry in filter(None, sys.path):
        path = Path(entry).resolve()
        if path.name in ("site-packages", "dist-packages") or path.suffix == ".zip":
            yield path
        else:
            yield from (path / package for package in PACKAGES if os.access(path / package, os.X_OK))
    yield Path(site.getusersitepackages()).resolve()
