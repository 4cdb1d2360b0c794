"""Whether there is room for one more session. A refusal names what is short, before something breaks for lack of it."""

from __future__ import annotations

import logging
import os
import resource
from contextlib import suppress

from rlm_ipc.errors import MachineFull
from rlm_kernel.supervisor.processes.free_memory import available_memory

SOCKETS_PER_SESSION = 5
DESCRIPTORS_PER_SESSION = 60
"""The descriptors that a session needs, with watching clients and a few copies."""
MIB = 1 << 20

log = logging.getLogger(__name__)


def _setting(name: str, default: int) -> int:
    given = os.environ.get(name, "")
    if given and not given.isdecimal():
        log.warning("%s is %r, which is not a whole number; using %d", name, given, default)
    return int(given) if given.isdecimal() else default


class Capacity:
    """How much of this machine may be used; read once, from the environment."""

    def __init__(self) -> None:
        self.sessions = _setting("RLM_KERNEL_MAX_SESSIONS", 500)
        self.keep_free = _setting("RLM_KERNEL_KEEP_FREE_MB", 256) * MIB

    def demand_room(self, sessions: int) -> None:
        """Raise `MachineFull` unless there is room for one more than ``sessions``."""
        if sessions >= self.sessions:
            raise MachineFull("sessions", f"{sessions} sessions are running, the maximum is {self.sessions}")
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = open_descriptors()
        if used + DESCRIPTORS_PER_SESSION > allowed:
            raise MachineFull("descriptors", f"{used} of {allowed} descriptors are open")
        demand_memory(self.keep_free, "must stay free")


def demand_memory(size: int, why: str) -> None:
    """Raise `MachineFull` unless that many bytes are free."""
    free = available_memory(enough=size)
    if free is not None and free < size:
        raise MachineFull("memory", f"{free // MIB} MB are free, and {-(-size // MIB)} MB {why}")


def open_descriptors() -> int:
    """Return how many descriptors this process has open; 0 if the system does not say."""
    with suppress(OSError):
        # Since 6.2 Linux reports the number as the folder's size. Listing it takes long for a supervisor of many
        # sessions, which has thousands.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    return 0
