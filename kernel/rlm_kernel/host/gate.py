"""The fork gate of a family of kernel processes: they fork only while the host has asked one of them to.

A filter is inherited by every copy, and the sessions that are forked from one another share one gate: it stays open
until the last of them has let go of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rlm_kernel.errors import ProcessError
from rlm_kernel.host.peer import Peer, parent_of
from rlm_sandbox.oswall.forkgate import ForkGate

log = logging.getLogger(__name__)


class Gate:
    """Watches the descriptor ``fd``, which it owns, in the running event loop.

    It comes from a process that may be hostile: one that is no gate is closed. Raises ProcessError if it cannot be one.
    """

    def __init__(self, fd: int) -> None:
        self._gate: ForkGate | None = ForkGate(fd)
        self._users = 1
        self._permits: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(fd, self._attempted)
        except OSError as error:
            self._gate.close()
            raise ProcessError(f"a kernel sent what is no gate for forks: {error}") from error

    def share(self) -> Gate:
        """The same gate for another session, which has to `release` it."""
        self._users += 1
        return self

    def release(self) -> None:
        """Have nothing to do with it any more."""
        self._users -= 1
        if self._users == 0:
            self._close()

    @contextmanager
    def permit(self, peer: Peer, forks: int = 1) -> Iterator[None]:
        """Let that process, and with more ``forks`` a child of it, fork so many times while the context lasts."""
        assert peer.pid is not None
        self._permits[peer.pid] = forks
        try:
            yield
        finally:
            self._permits.pop(peer.pid, None)

    def _attempted(self) -> None:
        assert self._gate is not None
        try:
            self._gate.answer(self._is_permitted)
        except OSError as error:
            log.error("a gate for forks cannot be served, and is closed: %s", error)
            self._close()
            return
        if self._gate.hung_up:
            self._close()

    def _is_permitted(self, pid: int) -> bool:
        for asked in (pid, parent_of(pid)):
            if asked is not None and self._permits.get(asked, 0) > 0:
                self._permits[asked] -= 1
                return True
        return False

    def _close(self) -> None:
        if self._gate is not None:
            self._loop.remove_reader(self._gate.fileno())
            self._gate.close()
            self._gate = None
