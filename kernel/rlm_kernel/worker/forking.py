"""How a kernel process forks: a session from the zygote, a session from a session, or a sleeping copy.

All three are the same `Fork` message: the child gets the descriptor that came with it as its lifeline, and continues
from there.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rlm_ipc import framing, processes, signals
from rlm_ipc.worker_protocol import Fork, Forked, ForkState
from rlm_kernel.worker import threads
from rlm_kernel.worker._forks import fork_asleep, fork_sibling
from rlm_kernel.worker.warmup import Warmup
from rlm_kernel.worker.worker_process import Left, WorkerProcess
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.os_wall import private_root

_GREETING = b"h"
_REPORT = framing.pack(Forked.TAG, (b'{"pid":%10d}' % 0,))
"""`Forked` in bytes, with room for the pid."""


class Forking:
    """Forks one process."""

    def __init__(self, process: WorkerProcess, warmup: Warmup) -> None:
        self._process, self._warmup = process, warmup

    def fork(self, request: Fork, descriptors: Sequence[int]) -> None:
        """Fork a child that owns the first of ``descriptors``. It waits for a session, or sleeps as a checkpoint."""
        process, link = self._process, self._process.link
        # Threads do not exist in the child, but the locks that they hold do, and stay locked there forever. Only the
        # supervisor sees whether they are idle.
        alone, others = processes.thread_count() <= 1, threads.others()
        if not alone and not request.leave_threads:
            framing.close_all(descriptors)
            process.send(Forked(error="the session has threads", threads=others.names))
            return
        left_behind = Left(others.names, len(process.loop.pending()))
        if not process.dormant:  # a copy has no threads: it passes on which pools were idle when it was made
            process.idle_pools = others.pools
        seclusion = self._seclusion_to_come() if request.private else None
        asleep = request.asleep and alone
        # While no other work is due, both processes should touch no page until the supervisor writes again.
        waits = asleep and process.idle
        if waits:
            link.hold(False)
        # The copy shares this socket until it has moved to its own. A printing at-fork handler would write from two
        # processes into one stream of messages.
        link.hold(True)
        try:
            if asleep:
                line = link.socket.fileno() if waits else -1
                pid = fork_asleep(descriptors[0], self._greeting(descriptors[0]), line, _REPORT)
            else:
                pid = fork_sibling() if alone else _fork_leaving_threads()
        except (OSError, MemoryError) as error:
            framing.close_all(descriptors)
            process.send(Forked(error=str(error), errno=getattr(error, "errno", None)))
            link.hold(False)
            return
        if pid == 0:
            if seclusion is not None:
                self._seclude(seclusion, descriptors[1])
            self._become_child(descriptors[0], request.state, left_behind)
            return
        if not waits:
            framing.close_all(descriptors)
            process.send(Forked(pid))
        link.hold(False)

    def _greeting(self, asleep: int) -> Callable[[], object] | None:
        """Return what a sleeping copy does before it sleeps: nothing, or in a private session one write.

        The pid that this process sees for the copy means nothing outside its pid namespace. The kernel tells the
        supervisor the real one with the first bytes that the copy itself writes (SCM_CREDENTIALS).
        """
        if self._process.seclusion is None:
            return None
        return partial(os.write, asleep, _GREETING)

    # -- in the child

    def _become_child(self, descriptor: int, state: ForkState, left: Left) -> None:
        process = self._process
        process.link.move(*_lines_of(descriptor))
        process.loop.abandon()
        process.dormant = state is ForkState.DORMANT
        if not process.dormant:
            process.activate()
        if state is ForkState.WARM:
            self._warmup.make_ready()
        process.handshake(left)

    def _seclusion_to_come(self) -> private_root.Seclusion:
        return private_root.Seclusion(Path(self._process.home), private_root.try_out(os.geteuid()))

    def _seclude(self, seclusion: private_root.Seclusion, pin: int) -> None:
        """Continue, in a fork of the zygote, in another fork that has a pid namespace, if the system allows it."""
        self._process.seclusion = seclusion
        if not seclusion.refusal:
            # unshare(CLONE_NEWPID) moves only later children. The first becomes pid 1, and the kernel ends the whole
            # namespace with it, so it only waits for the supervisor's end of the pin. The second becomes the session,
            # and this process has no further use.
            private_root.leave_processes()
            if fork_asleep(pin, partial(private_root.lower_first, pin)) == 0:
                os._exit(0)
            if fork_sibling() != 0:
                os._exit(0)
        os.close(pin)


@trusted
def _fork_leaving_threads() -> int:
    blocked = signals.set_mask(signal.SIG_BLOCK, signals.ALL)
    try:
        return processes.fork_leaving_threads()
    finally:
        signals.set_mask(signal.SIG_SETMASK, blocked)


@trusted
def _lines_of(descriptor: int) -> tuple[socket.socket, socket.socket, int]:
    """Return the first line of a process, its lifeline, and the generation of its supervisor."""
    lifeline = socket.socket(fileno=descriptor)
    line, generation = framing.first_line(lifeline)
    return socket.socket(fileno=line), lifeline, generation
