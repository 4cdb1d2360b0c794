"""The supervisor's inventory: its sessions, and the watch over memory and orphans."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import zmq

from rlm_ipc import left_kernels, processes
from rlm_ipc.errors import CallerError, MachineFull, UnknownKernel
from rlm_ipc.framed_stream import Unfinished
from rlm_ipc.kernel_reports import ForkOrigin
from rlm_ipc.messages import Json
from rlm_ipc.supervisor_core import HandOver
from rlm_ipc.supervisor_protocol import Event, KernelEnded, LowMemory, Spawn
from rlm_kernel.session_policy import read_policy
from rlm_kernel.supervisor import unattended
from rlm_kernel.supervisor.adoption import Adoption
from rlm_kernel.supervisor.forks import branch
from rlm_kernel.supervisor.handing_over import hand_over
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.keeping.owners import Owners
from rlm_kernel.supervisor.keeping.session_file import SessionFile
from rlm_kernel.supervisor.memory_pressure import MemoryPressure
from rlm_kernel.supervisor.processes.capacity import SOCKETS_PER_SESSION, Capacity, demand_memory
from rlm_kernel.supervisor.processes.worker_link import MOST_UNFINISHED
from rlm_kernel.supervisor.processes.zygotes import FORK_SECONDS, HEIR_ENTRY, ZYGOTE_ENTRY, Zygotes, importable
from rlm_kernel.supervisor.running.kept_session import KeptSpec
from rlm_kernel.supervisor.session import SupervisedSession
from rlm_kernel.supervisor.unattended import Unattended
from rlm_sandbox.policy.model import Policy

MEMORY_SECONDS = 0.1
SLOW_TICKS = 20
CHANNEL_PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "hb_port": 4, "control_port": 5}


class EventListener(Protocol):
    """Receiver of the sessions' events; see `server.ControlServer`."""

    def emit(self, kernel_id: str, event: Event) -> None:
        """Take an event of a session."""
        ...

    @property
    def heard(self) -> bool:
        """Whether a daemon is connected."""
        ...


class Supervisor:
    """Every kernel of one user. ``runtime`` holds ipc sockets, scratch folders and spooled output.

    ``zygote`` is the lifeline of a first zygote that has been started.
    """

    def __init__(self, runtime: Path, log: Path, keeping: Keeping, zygote: socket.socket | None = None) -> None:
        self.runtime, self.log, self.keeping = runtime, log, keeping
        self._listener: EventListener | None = None
        self.capacity = Capacity()
        self.context: zmq.Context[Any] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, SOCKETS_PER_SESSION * (self.capacity.sessions + 1))
        self.sessions: dict[str, SupervisedSession] = {}
        self._unfinished = Unfinished(MOST_UNFINISHED)
        self._zygotes = Zygotes(runtime, log, keeping, self._unfinished, zygote)
        self._watch: asyncio.Task[None] | None = None
        self._pressure = MemoryPressure(self.capacity.keep_free, self._make_room)
        self.owners = Owners(keeping, self._owner_ended)
        self.unattended = Unattended(log.parent / left_kernels.FOLDER, self.sessions, self._is_attended)
        self._has_garbage = False

    def _owner_ended(self, kernel_id: str) -> None:
        if (session := self.sessions.get(kernel_id)) is not None:
            session.close()

    def report_to(self, listener: EventListener) -> None:
        """Send the sessions' events to ``listener``."""
        self._listener = listener

    def _make_room(self, session: SupervisedSession) -> bool:
        """Have an idle session saved and ended to free its memory. Return False if it has to stay."""
        if not unattended.may_rest(session):
            return False
        if not self._is_attended():
            return self.unattended.make_room(session)
        session.report(LowMemory())
        return True

    def _is_attended(self) -> bool:
        return self._listener is not None and self._listener.heard

    async def start(self) -> None:
        """Become a subreaper and warm the first zygote."""
        # A grandchild whose parent dies then becomes our child, and not init's: `_reap_strays` still learns of its end.
        processes.become_subreaper()
        self.keeping.listen()
        self._watch = asyncio.create_task(self._watch_memory())
        if self.keeping.generation > 1:
            self._adopt()
        self._zygotes.start()

    def _adopt(self) -> None:
        """Continue with what the previous supervisor left."""
        adoption = Adoption(self.keeping, self._unfinished)
        self._zygotes.take_over(adoption.zygotes(ZYGOTE_ENTRY), adoption.zygotes(HEIR_ENTRY))
        for left in adoption.sessions(self._left_session, self.unattended.given_up):
            session = self.sessions[left.session.kernel_id] = left.session
            session.take_over(left.listeners, left.given_out)
            owned = session.request.owned or session.request.trusted
            if owned and not self.owners.take_over(session.kernel_id):
                session.close()

    def _left_session(self, spec: KeptSpec, file: SessionFile) -> SupervisedSession:
        return self._session_of(spec, read_policy(spec.spawn.policy), file)

    # -- sessions

    async def spawn(self, call: Spawn) -> SupervisedSession:
        """Start a kernel; raises CallerError, WallsMissing or KernelDied."""
        known = self.sessions.get(call.request.kernel_id)
        if known is not None and known.was_left and known.request == call.request:  # an earlier supervisor was asked
            return known
        await self._pressure.wait(self._others(call.request.kernel_id))
        session = self._new_session(call)
        try:
            await session.start()
        except BaseException:
            del self.sessions[session.kernel_id]
            raise
        return session

    async def fork(self, parent_id: str, call: Spawn) -> tuple[SupervisedSession, ForkOrigin]:
        """Start a kernel with every variable of another one; raises CallerError, and the same as `branch`.

        The daemon has compared the two policies already.
        """
        parent, trusted = self.find(parent_id), call.request.trusted
        await self._pressure.wait(self._others(parent_id))
        session = self._new_session(call)
        try:
            origin = await branch(parent, session)
            if trusted:
                asyncio.get_running_loop().call_later(FORK_SECONDS, _close_unused, session)
            return session, origin
        except BaseException:
            self.sessions.pop(session.kernel_id, None)
            session.close()
            raise

    async def make_room(self, kernel_id: str, size: int) -> None:
        """Wait until other sessions have freed ``size`` bytes for a kernel; raises `MachineFull` if they cannot."""
        self._pressure.promise(self.find(kernel_id).kernel_id, size)
        await self._pressure.wait(self._others(kernel_id))
        try:
            demand_memory(size, "are needed for the saved variables")
        except MachineFull:
            self._pressure.kept(kernel_id)
            raise

    def has_room_taken(self, kernel_id: str) -> None:
        """Record that a kernel now uses what `make_room` kept free for it."""
        self._pressure.kept(kernel_id)

    def _others(self, kernel_id: str) -> Callable[[], list[SupervisedSession]]:
        return lambda: [session for name, session in self.sessions.items() if name != kernel_id]

    def _new_session(self, call: Spawn) -> SupervisedSession:
        request, kernel_id = call.request, call.request.kernel_id
        if kernel_id in self.sessions:
            raise CallerError(f"there is already a kernel {kernel_id!r}")
        self.capacity.demand_room(len(self.sessions))
        policy = read_policy(call.policy)  # one that cannot be read is refused before anything is made for its session
        spec = replace(call, protect=(str(self.runtime), str(self.log.parent), *call.protect))
        connection = request.connection or self._new_connection(kernel_id)
        Path(call.scratch).mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = KeptSpec(spec, connection, self._zygotes.kernel_info)
        session = self.sessions[kernel_id] = self._session_of(kept, policy)
        return session

    def _session_of(self, spec: KeptSpec, policy: Policy, file: SessionFile | None = None) -> SupervisedSession:
        usual = policy.language.wall == "restricted" and not policy.network
        fresh_worker = partial(
            self._zygotes.fresh_worker, importable(policy), usual=usual, private=policy.walls.private
        )
        return SupervisedSession(
            spec.spawn,
            policy,
            spec.connection,
            spec.kernel_info,
            context=self.context,
            fresh_worker=fresh_worker,
            spool=self.runtime / "spool",
            emit=self._emitted,
            keeping=self.keeping,
            file=file,
        )

    def _new_connection(self, kernel_id: str) -> dict[str, Json]:
        folder = self.runtime / "k"
        folder.mkdir(mode=0o700, exist_ok=True)
        return {
            "transport": "ipc",
            "ip": str(folder / kernel_id[:16]),
            "key": uuid.uuid4().hex,
            "signature_scheme": "hmac-sha256",
            "kernel_name": "rlm",
            **CHANNEL_PORTS,
        }

    def find(self, kernel_id: str) -> SupervisedSession:
        """Return the session of that kernel; raises `UnknownKernel`."""
        session = self.sessions.get(kernel_id)
        if session is None or session.closed:
            raise UnknownKernel(kernel_id)
        return session

    def _emitted(self, kernel_id: str, event: Event) -> None:
        if isinstance(event, KernelEnded):
            self.sessions.pop(kernel_id, None)
            self.owners.forget(kernel_id)
            self._pressure.kept(kernel_id)
            self._has_garbage = True
        if self._listener is not None:
            self._listener.emit(kernel_id, event)

    async def hand_over(self, call: HandOver) -> None:
        """Hand everything over to another program; this process ends a moment later."""
        await hand_over(list(self.sessions.values()), self.unattended, self.keeping, call)
        self._zygotes.close()  # new sessions must run that program's code, even if its version equals ours

    def close(self) -> None:
        """End everything."""
        self.unattended.close()
        self.keeping.quit()
        for session in list(self.sessions.values()):
            session.close()
        self._zygotes.close()
        if self._watch is not None:
            self._watch.cancel()

    # -- the watch

    async def _watch_memory(self) -> None:
        for tick in itertools.count(1):
            await asyncio.sleep(MEMORY_SECONDS)
            # Not by SIGCHLD: each copy that ends would wake this process once more.
            self._reap_strays()
            if self._has_garbage and tick % SLOW_TICKS == 0:
                self._has_garbage = False
                # glibc by itself returns only the top of its heap, and what other sessions keep lies above.
                processes.trim_heap()
            if tick % SLOW_TICKS == 0 or any(not session.queue.idle for session in self.sessions.values()):
                self._pressure.relieve(list(self.sessions.values()))
            if tick % SLOW_TICKS == 0:
                self.keeping.beat()
                self.unattended.look()
            for session in list(self.sessions.values()):
                if not session.queue.idle or tick % SLOW_TICKS == 0:
                    session.watch.memory()
                if tick % SLOW_TICKS == 0:
                    with contextlib.suppress(OSError):  # out of descriptors: the next look is soon
                        session.watch.tree()
                        await session.watch.scratch()
                        await session.watch.copies()

    def _reap_strays(self) -> None:
        """Reap children that no peer waits for; the peers reap theirs by pidfd."""
        with contextlib.suppress(ChildProcessError):
            # WNOWAIT looks without reaping. Reaping a worker here would take its exit status away from its peer.
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if self._is_known(ended.si_pid):
                    # Its peer is about to reap it. Until then it hides any stray behind it in the system's list.
                    return
                os.waitpid(ended.si_pid, 0)

    def _is_known(self, pid: int) -> bool:
        links = (peer for session in self.sessions.values() for peer in session.processes.links())
        return pid in self._zygotes.pids() or any(peer.pid == pid for peer in links)


def _close_unused(session: SupervisedSession) -> None:
    """End a fork for the developer's own code if the front end that it was made for never came."""
    if not session.front.attachments:
        session.close()
