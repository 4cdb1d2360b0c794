"""The supervisor's inventory: zygotes, sessions, and the watch over memory and orphans."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import zmq

from rlm_ipc import framing, left_kernels, processes, stale_files
from rlm_ipc.environment import ZYGOTE, chosen
from rlm_ipc.errors import CallerError, KernelDied, UnknownKernel
from rlm_ipc.framed_stream import Unfinished
from rlm_ipc.kernel_reports import ForkOrigin
from rlm_ipc.messages import Json
from rlm_ipc.supervisor_core import HandOver
from rlm_ipc.supervisor_protocol import Event, KernelEnded, LowMemory, Spawn
from rlm_ipc.version import VERSION
from rlm_ipc.worker_protocol import ForkState, Handshake, Report
from rlm_kernel.supervisor import oom_victims, unattended
from rlm_kernel.supervisor.adoption import Adoption
from rlm_kernel.supervisor.capacity import SOCKETS_PER_SESSION, Capacity
from rlm_kernel.supervisor.forks import branch
from rlm_kernel.supervisor.handing_over import hand_over
from rlm_kernel.supervisor.keeping import Keeping
from rlm_kernel.supervisor.kept_session import KeptSpec
from rlm_kernel.supervisor.memory_pressure import MemoryPressure
from rlm_kernel.supervisor.owners import Owners
from rlm_kernel.supervisor.process_fork import fork
from rlm_kernel.supervisor.session import SupervisedSession
from rlm_kernel.supervisor.session_file import SessionFile
from rlm_kernel.supervisor.session_policy import SessionPolicy, read_policy
from rlm_kernel.supervisor.unattended import Unattended
from rlm_kernel.supervisor.worker_link import MOST_UNFINISHED, ForkRefused, PeerDied, WorkerLink, heard
from rlm_sandbox.os_wall.memory_monitor import MemoryMonitor

MEMORY_SECONDS = 0.1
SLOW_TICKS = 20
ZYGOTE_SECONDS = 60.0
FORK_SECONDS = 30.0
READY_AFTER_SECONDS = 0.1
REAP_AGAIN_SECONDS = 0.1
CHANNEL_PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "hb_port": 4, "control_port": 5}

Kind = tuple[tuple[str, ...], bool]
"""A kind of process that is made ahead: the modules it has imported, and whether it is for private sessions."""


class EventListener(Protocol):
    """Who hears of the sessions; see `server.ControlServer`."""

    def emit(self, kernel_id: str, event: Event) -> None:
        """Take note of what has happened in a session."""
        ...

    @property
    def heard(self) -> bool:
        """Whether a daemon is there to hear of it."""
        ...


class Supervisor:
    """Every kernel of one user. ``runtime`` holds ipc sockets, scratch folders and spooled output."""

    def __init__(self, runtime: Path, log: Path, keeping: Keeping) -> None:
        self.runtime, self.log, self.keeping = runtime, log, keeping
        self._listener: EventListener | None = None
        self.capacity = Capacity()
        self.context: zmq.Context[Any] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, SOCKETS_PER_SESSION * (self.capacity.sessions + 1))
        self.sessions: dict[str, SupervisedSession] = {}
        self._unfinished = Unfinished(MOST_UNFINISHED)
        self._zygotes: dict[tuple[str, ...], asyncio.Task[WorkerLink]] = {}
        self._ready: dict[Kind, WorkerLink] = {}
        self._making: asyncio.Future[None] | None = None
        self._kernel_info: dict[str, Json] = {}
        self._closed = False
        self._watch: asyncio.Task[None] | None = None
        self._monitor = MemoryMonitor()
        self._pressure = MemoryPressure(self.capacity.keep_free, self._make_room)
        self.owners = Owners(keeping, self._owner_ended)
        self.unattended = Unattended(log.parent / left_kernels.FOLDER, self.sessions, self._is_attended)
        self._has_garbage = False

    def _owner_ended(self, kernel_id: str) -> None:
        if (session := self.sessions.get(kernel_id)) is not None:
            session.close()

    def report_to(self, listener: EventListener) -> None:
        """Let ``listener`` hear of what happens in the sessions."""
        self._listener = listener

    def _make_room(self, session: SupervisedSession) -> bool:
        """Have an idle session saved and ended for the memory that it has; False if it has to stay."""
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
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap_strays)
        self.keeping.listen()
        self._watch = asyncio.create_task(self._watch_memory())
        if self.keeping.generation > 1:
            self._adopt()
        if () not in self._zygotes:
            self._zygotes[()] = asyncio.create_task(self._start_zygote(()))
        self._make_ready(((), False))

    def _adopt(self) -> None:
        """Go on with what the supervisor before this one has left."""
        adoption = Adoption(self.keeping, self._unfinished)
        for preload, zygote in adoption.zygotes().items():
            self._zygotes[preload] = asyncio.create_task(self._greet(zygote))
        for left in adoption.sessions(self._left_session, self.unattended.given_up):
            session = self.sessions[left.session.kernel_id] = left.session
            session.take_over(left.listeners, left.given_out)
            owned = session.request.owned or session.request.trusted
            if owned and not self.owners.take_over(session.kernel_id):
                session.close()

    async def _greet(self, zygote: WorkerLink) -> WorkerLink:
        report = zygote.expect(Report.TAG)
        zygote.attach()
        told = heard(Report, await asyncio.wait_for(report, ZYGOTE_SECONDS))
        self._kernel_info = told.kernel_info if told is not None else {}
        return zygote

    def _left_session(self, spec: KeptSpec, file: SessionFile) -> SupervisedSession:
        policy = read_policy(spec.spawn.policy)
        return self._session_of(spec, policy, file)

    # -- zygotes

    async def zygote(self, preload: tuple[str, ...]) -> WorkerLink:
        """A living zygote with these modules imported. It is started when first needed, and again after its death."""
        task = self._zygotes.get(preload)
        if task is None or (task.done() and (task.exception() is not None or task.result().dead)):
            task = self._zygotes[preload] = asyncio.create_task(self._start_zygote(preload))
        try:
            return await asyncio.shield(task)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied(f"the zygote ended while it warmed up; {self.log} says why") from error

    async def fresh_worker(self, preload: tuple[str, ...], *, usual: bool, private: bool) -> WorkerLink:
        """A fresh process that waits for its session, made ahead for a ``usual`` session, else made now."""
        kind = preload, private
        ready = self._ready.pop(kind, None) if usual else None
        # Its successor is forked a little later, so as not to compete with the session that starts now.
        asyncio.get_running_loop().call_later(READY_AFTER_SECONDS, self._make_ready, kind)
        if ready is not None and not ready.dead:
            return ready
        try:
            return await fork(await self.zygote(preload), ForkState.READY, FORK_SECONDS, private=private)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied(f"the zygote ended while it forked; {self.log} says why") from error

    def _make_ready(self, kind: Kind) -> None:
        if kind not in self._ready and not self._closed:
            self._making = asyncio.ensure_future(self._fork_ahead(kind))

    async def _fork_ahead(self, kind: Kind) -> None:
        with contextlib.suppress(KernelDied, ForkRefused, PeerDied, TimeoutError, OSError):
            preload, private = kind
            peer = await fork(await self.zygote(preload), ForkState.WARM, FORK_SECONDS, private=private)
            if kind in self._ready or self._closed:
                peer.drop()
            else:
                self._ready[kind] = peer

    async def _start_zygote(self, preload: tuple[str, ...]) -> WorkerLink:
        ours, theirs = framing.lifelines()
        # -P keeps the working folder off sys.path: a user's `yaml.py` or `kernel.py` must not replace a module of ours.
        argv = [sys.executable, "-P", "-m", "rlm_kernel.worker.zygote", "--fd", str(theirs.fileno())]
        argv += ["--preload", ",".join(preload)]
        peer = WorkerLink(None, self._unfinished, lifeline=ours, keeping=self.keeping)
        peer.is_zygote = True
        handshake = peer.expect(Handshake.TAG)
        peer.attach()
        with self.log.open("ab") as log:
            # The zygote's environment is every kernel's /proc/self/environ: nothing of the user's goes into it.
            _launch(argv, log.fileno(), theirs.fileno(), self._zygote_environment())
        theirs.close()
        await asyncio.wait_for(handshake, ZYGOTE_SECONDS)
        oom_victims.prefer(peer.pid, oom_victims.REPLACEABLE)
        peer.keep(f"zygote/{VERSION}/" + ",".join(preload))
        self._kernel_info = peer.handshake.kernel_info
        return peer

    def _zygote_environment(self) -> dict[str, str]:
        folder = self.runtime / stale_files.ZYGOTE
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "LANG": "C.UTF-8",
            "TMPDIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            **QUIET_LIBRARIES,
            **LARGE_COPIES,
            **chosen(ZYGOTE),
        }

    # -- sessions

    async def spawn(self, call: Spawn) -> SupervisedSession:
        """Start a kernel; raises CallerError, WallsMissing or KernelDied."""
        known = self.sessions.get(call.request.kernel_id)
        if known is not None and known.was_left and known.request == call.request:  # an earlier supervisor was asked
            return known
        await self._pressure.wait(lambda: list(self.sessions.values()))
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
        await self._pressure.wait(lambda: [one for one in self.sessions.values() if one is not parent])
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

    def _new_session(self, call: Spawn) -> SupervisedSession:
        request, kernel_id = call.request, call.request.kernel_id
        if kernel_id in self.sessions:
            raise CallerError(f"there is already a kernel {kernel_id!r}")
        self.capacity.demand_room(len(self.sessions))
        policy = read_policy(call.policy)
        spec = replace(call, protect=(str(self.runtime), str(self.log.parent), *call.protect))
        connection = request.connection or self._new_connection(kernel_id)
        Path(call.scratch).mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = KeptSpec(spec, connection, self._kernel_info)
        session = self.sessions[kernel_id] = self._session_of(kept, policy)
        return session

    def _session_of(self, spec: KeptSpec, policy: SessionPolicy, file: SessionFile | None = None) -> SupervisedSession:
        usual = policy.language.wall == "restricted" and not policy.network
        fresh_worker = partial(self.fresh_worker, importable(policy), usual=usual, private=policy.walls.private)
        parts = self.context, fresh_worker, self.runtime / "spool", self._emitted, self.keeping
        return SupervisedSession(spec.spawn, spec.connection, spec.kernel_info, *parts, file)

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
        """The session of that kernel; raises `UnknownKernel`."""
        session = self.sessions.get(kernel_id)
        if session is None or session.closed:
            raise UnknownKernel(kernel_id)
        return session

    def _emitted(self, kernel_id: str, event: Event) -> None:
        if isinstance(event, KernelEnded):
            self.sessions.pop(kernel_id, None)
            self.owners.forget(kernel_id)
            self._has_garbage = True
        if self._listener is not None:
            self._listener.emit(kernel_id, event)

    async def hand_over(self, call: HandOver) -> None:
        """Let another program go on with everything; this process ends a moment later."""
        await hand_over(list(self.sessions.values()), self.unattended, self.keeping, call)

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self.unattended.close()
        self.keeping.quit()
        for session in list(self.sessions.values()):
            session.close()
        for peer in self._ready.values():
            peer.drop()
        for task in self._zygotes.values():
            if task.done() and task.exception() is None:
                task.result().drop()
            else:
                task.cancel()
        if self._watch is not None:
            self._watch.cancel()

    # -- the watch

    async def _watch_memory(self) -> None:
        for tick in itertools.count(1):
            await asyncio.sleep(MEMORY_SECONDS)
            if self._has_garbage and tick % SLOW_TICKS == 0:
                self._has_garbage = False
                # glibc returns only the top of its heap by itself, and what other sessions keep lies above.
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
                        session.watch.tree(self._monitor)
                        await session.watch.scratch()
                        await session.watch.copies()

    def _reap_strays(self) -> None:
        """Reap children that no peer waits for; the peers reap theirs by pidfd."""
        known = {peer.pid for session in self.sessions.values() for peer in session.processes.links()}
        known |= {peer.pid for peer in self._ready.values()}
        known |= {
            t.result().pid for t in self._zygotes.values() if t.done() and not t.cancelled() and not t.exception()
        }
        with contextlib.suppress(ChildProcessError):
            # WNOWAIT looks without reaping. Reaping a worker here would take its exit status away from its peer.
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in known:
                    # Its peer is about to reap it. Until then it hides any stray behind it in the system's list.
                    asyncio.get_running_loop().call_later(REAP_AGAIN_SECONDS, self._reap_strays)
                    return
                os.waitpid(ended.si_pid, 0)


def _launch(argv: list[str], log: int, line: int, env: dict[str, str]) -> None:
    """Start a process, and leave it to whoever awaits its handshake on ``line``."""
    subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(line,), env=env, cwd="/")


def _close_unused(session: SupervisedSession) -> None:
    """End a fork for the developer's own code if the front end that it was made for never came."""
    if not session.front.attachments:
        session.close()


def importable(policy: SessionPolicy) -> tuple[str, ...]:
    """The heavy packages that the policy admits and that are installed: a zygote imports them once for all."""
    from importlib.util import find_spec

    return tuple(name for name in HEAVY if name in policy.language.imports and find_spec(name) is not None)


QUIET_LIBRARIES = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # pandas imports pyarrow where it is installed. Its own allocators start a thread, and reserve far more memory than
    # they use.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""The environment in which importing a library starts no thread: a process with threads cannot be forked safely."""
LARGE_COPIES = {"GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0xffffffffff"}
"""The environment in which glibc's memcpy uses the cache for large copies too.

A copy of a text goes to new pages, which the system has just cleared and which are therefore in the cache. Past the
cache such a copy takes up to a quarter longer. It is worst from a mapped file, which begins at a page boundary, where
the copy begins a few words later in its page.
"""
HEAVY = ("numpy", "pandas")
