"""The gate of a family of kernel processes: they fork only while the supervisor has asked one of them to.

seccomp stops other calls at the gate too. They are refused here and counted for the session that tried. Every copy
inherits the filter, so sessions that were forked from one another share one gate. It stays open until the last of them
releases it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rlm_ipc.errors import ProcessError
from rlm_kernel.supervisor.keeping import kept_gate
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.keeping.kept_gate import KeptGate
from rlm_kernel.supervisor.processes.proc_status import parent_of, process_of
from rlm_kernel.supervisor.processes.worker_link import WorkerLink
from rlm_sandbox.os_wall.fork_notifier import Refused

MOST_AT_ONCE = 16
PAUSE_SECONDS = 0.02
"""After that many refusals the gate pauses for this long, and further attempts wait: a flood costs others nothing."""

FORGIVING_SECONDS = 2.0
"""For this long after a change of supervisors, a fork that the earlier one requested is refused, but not counted."""
_FORKS = ("clone", "clone3", "fork", "vfork")

log = logging.getLogger(__name__)


class ForkBrokerUser(Protocol):
    """A session behind a gate."""

    def owns(self, pid: int) -> bool:
        """Return whether that process belongs to the session."""

    def refused(self, call: str) -> None:
        """Count an attempt of the session at that system call, which is being refused."""


class ForkBroker:
    """Watches the descriptor ``fd``, which it owns, in the running event loop.

    The descriptor comes from a process that may be hostile. Raises ProcessError, and closes it, if it is not a gate.
    ``keeping`` has the keeper hold it under ``name``: a gate that nobody holds refuses every fork forever. ``memory``
    is where an earlier supervisor received attempts (`kept_gate`).
    """

    def __init__(
        self,
        fd: int,
        user: ForkBrokerUser,
        keeping: Keeping,
        name: str = "",
        memory: int | None = None,
    ) -> None:
        self._users = [user]
        self._forgives_until = asyncio.get_running_loop().time() + FORGIVING_SECONDS if name else 0.0
        self._permits: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._since_rest = 0
        self._rest: asyncio.TimerHandle | None = None
        try:
            memory = kept_gate.new_memory() if memory is None else memory
        except OSError:
            os.close(fd)
            raise
        try:
            self._gate: KeptGate | None = self._opened(fd, memory)
            self._keeping, self.name = keeping, name or f"gate/{keeping.next_serial()}"
            keeping.put(self.name, (fd, memory))
        finally:
            os.close(memory)
        if self._gate.left:
            self._loop.call_soon(self._attempted)

    def _opened(self, fd: int, memory: int) -> KeptGate:
        try:
            gate = KeptGate(fd, memory, self._refused)
        except OSError:
            os.close(fd)
            raise
        try:
            self._loop.add_reader(fd, self._attempted)
        except OSError as error:  # epoll refuses an ordinary file with EPERM
            gate.close()
            raise ProcessError(f"a kernel sent a descriptor that is not a fork gate: {error}") from error
        return gate

    def share(self, user: ForkBrokerUser) -> ForkBroker:
        """Return the same gate for another session, which must `release` it."""
        self._users.append(user)
        return self

    def release(self, user: ForkBrokerUser) -> None:
        """Stop serving that session."""
        self._users.remove(user)
        if not self._users:
            self._close()

    @contextmanager
    def permit(self, peer: WorkerLink, forks: int = 1) -> Iterator[None]:
        """Let that process fork ``forks`` times while the context lasts; with more than one, its child may as well."""
        assert peer.pid is not None
        self._permits[peer.pid] = forks
        try:
            yield
        finally:
            # Withdraw an unused permission too: the process is about to run code of the session again.
            self._permits.pop(peer.pid, None)

    def _attempted(self) -> None:
        """Answer one attempt. The event loop serves everything else before the next one."""
        if self._gate is None:
            return
        try:
            self._gate.answer(self._is_permitted)
        except OSError as error:
            log.error("a fork gate cannot be served and is closed: %s", error)
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
        """Count the attempt for the session that owns the process, otherwise for the oldest session behind the gate."""
        if self._loop.time() < self._forgives_until and attempt.call in _FORKS:
            return
        self._since_rest += 1
        # seccomp reports the thread. It still waits in its call, so its number cannot have passed to another thread.
        process = process_of(attempt.thread)
        user = next((user for user in self._users if process is not None and user.owns(process)), self._users[0])
        user.refused(attempt.call)

    def _is_permitted(self, pid: int) -> bool:
        # The parent as well: a process with threads forks twice, and the supervisor knows only the first of the two.
        return self._use_permit(pid) or self._use_permit(parent_of(pid))

    def _use_permit(self, pid: int | None) -> bool:
        if pid is None or not (left := self._permits.get(pid, 0)):
            return False
        self._permits[pid] = left - 1
        return True

    def _close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if self._gate is not None:
            self._loop.remove_reader(self._gate.fileno())
            self._gate.close()
            self._gate = None
            self._keeping.drop(self.name)
