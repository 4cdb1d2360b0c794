"""The gate of a family of kernel processes: they fork only while the supervisor has asked one of them to.

What else stops at the gate is refused here, and counted for the session that tried it. A filter is inherited by every
copy, and the sessions that are forked from one another share one gate: it stays open until the last of them has let go
of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rlm_ipc.errors import ProcessError
from rlm_kernel.supervisor.worker_link import WorkerLink, parent_of, process_of
from rlm_sandbox.os_wall.fork_notifier import ForkGate, Refused

MOST_AT_ONCE = 16
PAUSE_SECONDS = 0.02
"""After so many refusals the gate rests for this time, and whoever tries again waits: a flood costs others nothing."""

log = logging.getLogger(__name__)


class ForkBrokerUser(Protocol):
    """A session behind a gate."""

    def owns(self, pid: int) -> bool:
        """Whether that process is the session's."""

    def refused(self, call: str) -> None:
        """An attempt of the session at that system call is being refused."""


class ForkBroker:
    """Watches the descriptor ``fd``, which it owns, in the running event loop.

    It comes from a process that may be hostile: one that is no gate is closed. Raises ProcessError if it cannot be one.
    """

    def __init__(self, fd: int, user: ForkBrokerUser) -> None:
        self._gate: ForkGate | None = ForkGate(fd, self._refused)
        self._users = [user]
        self._permits: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._since_rest = 0
        self._rest: asyncio.TimerHandle | None = None
        try:
            self._loop.add_reader(fd, self._attempted)
        except OSError as error:
            self._gate.close()
            raise ProcessError(f"a kernel sent what is no gate for forks: {error}") from error

    def share(self, user: ForkBrokerUser) -> ForkBroker:
        """The same gate for another session, which has to `release` it."""
        self._users.append(user)
        return self

    def release(self, user: ForkBrokerUser) -> None:
        """Have nothing to do with that session any more."""
        self._users.remove(user)
        if not self._users:
            self._close()

    @contextmanager
    def permit(self, peer: WorkerLink, forks: int = 1) -> Iterator[None]:
        """Let that process, and with more ``forks`` a child of it, fork so many times while the context lasts."""
        assert peer.pid is not None
        self._permits[peer.pid] = forks
        try:
            yield
        finally:
            self._permits.pop(peer.pid, None)

    def _attempted(self) -> None:
        """Answer one attempt: the loop comes back for the next when it has seen to everybody else."""
        assert self._gate is not None
        try:
            self._gate.answer(self._is_permitted)
        except OSError as error:
            log.error("a gate for forks cannot be served, and is closed: %s", error)
            self._close()
            return
        if self._gate.hung_up:
            self._close()
        elif self._since_rest >= MOST_AT_ONCE:
            self._loop.remove_reader(self._gate.fileno())
            self._rest = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._since_rest, self._rest = 0, None
        if self._gate is not None:
            self._loop.add_reader(self._gate.fileno(), self._attempted)

    def _refused(self, attempt: Refused) -> None:
        """Count for the session whose process it is, or for the oldest one when the process is nobody's."""
        self._since_rest += 1
        process = process_of(attempt.thread)
        user = next((user for user in self._users if process is not None and user.owns(process)), self._users[0])
        user.refused(attempt.call)

    def _is_permitted(self, pid: int) -> bool:
        for asked in (pid, parent_of(pid)):
            if asked is not None and self._permits.get(asked, 0) > 0:
                self._permits[asked] -= 1
                return True
        return False

    def _close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if self._gate is not None:
            self._loop.remove_reader(self._gate.fileno())
            self._gate.close()
            self._gate = None
