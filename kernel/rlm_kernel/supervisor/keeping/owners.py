"""The processes that own kernels which end with a front end: those that started them.

A kernel ends with the connection of its owner. After a supervisor's death there is none: then it ends with the process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from rlm_kernel.keeper.keeper import has_ended
from rlm_kernel.supervisor.keeping.keeping import Keeping


class Owners:
    """Knows the processes by descriptors that the keeper holds; ``ended(kernel_id)`` is called when one has gone."""

    def __init__(self, keeping: Keeping, ended: Callable[[str], None]) -> None:
        self._keeping, self._ended = keeping, ended
        self._watched: dict[str, int] = {}

    def enter(self, kernel_id: str, pid: int) -> None:
        """Record that the process owns the kernel."""
        with suppress(OSError):  # it has just ended, and its connection reports that
            pidfd = os.pidfd_open(pid)
            self._keeping.put(_key(kernel_id), (pidfd,))
            os.close(pidfd)

    def take_over(self, kernel_id: str) -> bool:
        """Follow the owner of a kernel that another supervisor has left. Return False if it has ended."""
        entry = self._keeping.entries.get(_key(kernel_id))
        if entry is None or has_ended(entry.descriptors[0]):
            return False
        self._watched[kernel_id] = os.dup(entry.descriptors[0])
        asyncio.get_running_loop().add_reader(self._watched[kernel_id], self._ended, kernel_id)
        return True

    def forget(self, kernel_id: str) -> None:
        """Forget a kernel that has ended."""
        if (pidfd := self._watched.pop(kernel_id, None)) is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
        self._keeping.drop(_key(kernel_id))


def _key(kernel_id: str) -> str:
    return f"owner/{kernel_id}"
