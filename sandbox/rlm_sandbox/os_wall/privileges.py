"""Giving up privileges for good: set-user-id programs and, as root, capabilities."""

from __future__ import annotations

import ctypes
import os
import struct

from rlm_sandbox.os_wall import libc

_PR_SET_NO_NEW_PRIVS = 38
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
"""Kept, because root in a container works on other users' files. Landlock decides which."""


def no_new_privs() -> None:
    """Let no program gain privileges by being started. Landlock and seccomp require it.

    Otherwise such a process could start a set-user-id program whose checks rely on calls that its filter makes fail.
    """
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Keep none of root's privileges except access to files; a no-op for an ordinary user."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    kept = 1 << _CAP_DAC_OVERRIDE if os.geteuid() == 0 else 0
    # Two times 32 bits of (effective, permitted, inheritable).
    libc.syscall(_CAPSET[os.uname().machine], header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))
