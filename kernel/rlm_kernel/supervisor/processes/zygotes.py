"""Zygotes, from which kernels are forked, their heirs, and the processes that are forked from them in advance.

The heir of a zygote is a sleeping copy of it, which replaces it when it dies: importing everything again would take
seconds, and a session that has lost its process may be waiting for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from pathlib import Path

from rlm_ipc import framing, worker_protocol
from rlm_ipc.errors import KernelDied
from rlm_ipc.framed_stream import Unfinished
from rlm_ipc.messages import Json
from rlm_ipc.version import VERSION
from rlm_ipc.worker_protocol import ForkState, Handshake, Report
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.processes import oom_victims
from rlm_kernel.supervisor.processes.process_fork import fork
from rlm_kernel.supervisor.processes.worker_link import ForkRefused, PeerDied, WorkerLink, heard
from rlm_kernel.supervisor.processes.zygote_start import start_zygote
from rlm_sandbox.policy.model import Policy

ZYGOTE_SECONDS = 60.0
FORK_SECONDS = 30.0
READY_AFTER_SECONDS = 0.1
HEIR_AGAIN_SECONDS = 1.0
"""Delay until a dead heir is replaced: what killed it may also kill the next one."""
UNUSED_SECONDS = 300.0
"""Time until an unused prepared process ends: it has 20 MB of its own, and saves a session some milliseconds."""

ZYGOTE_ENTRY, HEIR_ENTRY = "zygote/", "heir/"
"""How the names begin under which the keeper holds them."""

Kind = tuple[tuple[str, ...], bool]
"""A kind of prepared process: the modules it has imported, and whether it is for private sessions."""


class Zygotes:
    """The zygote of each set of modules, and for each kind of session the process that waits for the next one.

    ``keeping`` lets a later supervisor continue with the zygotes. ``begun`` is the lifeline of a first zygote that has
    been started.
    """

    def __init__(
        self, runtime: Path, log: Path, keeping: Keeping, unfinished: Unfinished, begun: socket.socket | None = None
    ) -> None:
        self._begun = begun
        self._runtime, self._log, self._keeping, self._unfinished = runtime, log, keeping, unfinished
        self._zygotes: dict[tuple[str, ...], asyncio.Task[WorkerLink]] = {}
        self._heirs: dict[tuple[str, ...], WorkerLink] = {}
        self._ready: dict[Kind, WorkerLink] = {}
        self._unused: dict[Kind, asyncio.TimerHandle] = {}
        self._making: set[asyncio.Future[None]] = set()
        self._closed = False
        self.kernel_info: dict[str, Json] = {}
        """What the last zygote reported about the kernels that are forked from it."""

    def start(self) -> None:
        """Warm up the first zygote, if none was taken over, and prepare a process for the first session."""
        if () not in self._zygotes:
            self._zygotes[()] = asyncio.create_task(self._start(()))
        self._make_ready(((), False))

    def take_over(self, zygotes: dict[tuple[str, ...], WorkerLink], heirs: dict[tuple[str, ...], WorkerLink]) -> None:
        """Continue with the living zygotes and heirs of the previous supervisor."""
        for preload, heir in heirs.items():
            self._heirs[preload] = heir
            heir.report_to(self)
            if preload not in zygotes:
                self._inherit(preload)
        for preload, zygote in zygotes.items():
            self._zygotes[preload] = asyncio.create_task(self._greet(zygote, preload))

    # -- messages and deaths of zygotes and heirs

    def heard(self, link: WorkerLink, message: framing.Message) -> None:
        """Ignore the message: what a zygote says is an answer."""

    def died(self, link: WorkerLink) -> None:
        """Replace a dead zygote by its heir, and a dead heir by a new one."""
        if self._closed:
            return
        for preload, heir in list(self._heirs.items()):
            if heir is link:
                del self._heirs[preload]
                asyncio.get_running_loop().call_later(HEIR_AGAIN_SECONDS, self._make_heir, preload)
        for preload, task in list(self._zygotes.items()):
            if _started(task) is link:
                self._inherit(preload)

    def pids(self) -> set[int | None]:
        """Return the processes that belong to no session."""
        started = [zygote for task in self._zygotes.values() if (zygote := _started(task)) is not None]
        return {peer.pid for peer in (*started, *self._ready.values(), *self._heirs.values())}

    async def fresh_worker(self, preload: tuple[str, ...], *, usual: bool, private: bool) -> WorkerLink:
        """Return a process that waits for its session: for a ``usual`` session a prepared one, otherwise a new one."""
        kind = preload, private
        ready = self._take(kind) if usual else None
        # Its successor is forked a little later, so that it does not compete with the session that starts now.
        asyncio.get_running_loop().call_later(READY_AFTER_SECONDS, self._make_ready, kind)
        if ready is not None and not ready.dead:
            return ready
        try:
            try:
                return await fork(await self._zygote(preload), ForkState.READY, FORK_SECONDS, private=private)
            except PeerDied:  # its heir is there
                return await fork(await self._zygote(preload), ForkState.READY, FORK_SECONDS, private=private)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied(f"the zygote ended while it forked; {self._log} says why") from error

    def close(self) -> None:
        """End all of them."""
        self._closed = True
        for kind in list(self._ready):
            self._let_go(kind)
        for heir in self._heirs.values():
            heir.drop()
        for task in self._zygotes.values():
            if (zygote := _started(task)) is not None:
                zygote.drop()
            else:
                task.cancel()

    # -- prepared processes

    def _make_ready(self, kind: Kind) -> None:
        if kind not in self._ready and not self._closed:
            self._make(self._fork_ahead(kind))

    def _make(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    async def _fork_ahead(self, kind: Kind) -> None:
        with contextlib.suppress(KernelDied, ForkRefused, PeerDied, TimeoutError, OSError):
            preload, private = kind
            peer = await fork(await self._zygote(preload), ForkState.WARM, FORK_SECONDS, private=private)
            if kind in self._ready or self._closed:
                peer.drop()
            else:
                self._ready[kind] = peer
                self._unused[kind] = asyncio.get_running_loop().call_later(UNUSED_SECONDS, self._let_go, kind)

    def _take(self, kind: Kind) -> WorkerLink | None:
        if kind not in self._ready:
            return None
        self._unused.pop(kind).cancel()
        return self._ready.pop(kind)

    def _let_go(self, kind: Kind) -> None:
        if (unused := self._take(kind)) is not None:
            unused.drop()

    # -- zygotes

    async def _zygote(self, preload: tuple[str, ...]) -> WorkerLink:
        """Return a living zygote with these modules imported. It is started on first use, and again after its death."""
        task = self._zygotes.get(preload)
        if task is None or (task.done() and ((zygote := _started(task)) is None or zygote.dead)):
            task = self._inherit(preload) or asyncio.create_task(self._start(preload))
            self._zygotes[preload] = task
        try:
            return await asyncio.shield(task)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied(f"the zygote ended while it warmed up; {self._log} says why") from error

    async def _start(self, preload: tuple[str, ...]) -> WorkerLink:
        lifeline, self._begun = self._begun, None
        if lifeline is None:
            lifeline = start_zygote(self._runtime, self._log, preload)
        peer = WorkerLink(lifeline, self._keeping, self._unfinished)
        peer.is_zygote = True
        handshake = peer.expect(Handshake.TAG)
        peer.attach()
        await asyncio.wait_for(handshake, ZYGOTE_SECONDS)
        self._enthrone(peer, preload)
        self.kernel_info = peer.handshake.kernel_info
        return peer

    def _enthrone(self, zygote: WorkerLink, preload: tuple[str, ...]) -> None:
        oom_victims.prefer(zygote.pid, oom_victims.REPLACEABLE)
        zygote.keep(kept_as(ZYGOTE_ENTRY, preload))
        zygote.report_to(self)
        if preload not in self._heirs:
            self._make_heir(preload)

    async def _greet(self, zygote: WorkerLink, preload: tuple[str, ...], *, woken: bool = False) -> WorkerLink:
        """Turn a process that this supervisor has not started into a zygote; a ``woken`` one slept until now."""
        report = zygote.expect(Report.TAG)
        if woken:
            zygote.send(worker_protocol.SAY_AGAIN)
        else:
            zygote.attach()
        told = heard(Report, await asyncio.wait_for(report, ZYGOTE_SECONDS))
        self.kernel_info = told.kernel_info if told is not None else {}
        self._enthrone(zygote, preload)
        return zygote

    # -- heirs

    def _make_heir(self, preload: tuple[str, ...]) -> None:
        if not self._closed:
            self._make(self._fork_heir(preload))

    async def _fork_heir(self, preload: tuple[str, ...]) -> None:
        with contextlib.suppress(KernelDied, ForkRefused, PeerDied, TimeoutError, OSError):
            heir = await fork(await self._zygote(preload), ForkState.DORMANT, FORK_SECONDS, asleep=True)
            if preload in self._heirs or self._closed:
                heir.drop()
                return
            self._heirs[preload] = heir
            heir.is_zygote = True
            heir.keep(kept_as(HEIR_ENTRY, preload))
            heir.report_to(self)

    def _inherit(self, preload: tuple[str, ...]) -> asyncio.Task[WorkerLink] | None:
        """Wake the heir of a dead zygote; without one, the next session starts a new zygote."""
        if (heir := self._heirs.pop(preload, None)) is None:
            return None
        task = self._zygotes[preload] = asyncio.create_task(self._greet(heir, preload, woken=True))
        return task


def _started(task: asyncio.Task[WorkerLink]) -> WorkerLink | None:
    """Return the zygote that a task has started, if it has."""
    return task.result() if task.done() and not task.cancelled() and task.exception() is None else None


def kept_as(entry: str, preload: tuple[str, ...]) -> str:
    """Return the name under which the keeper holds a zygote or an heir with these modules."""
    return f"{entry}{VERSION}/{','.join(preload)}"


def importable(policy: Policy) -> tuple[str, ...]:
    """Return the heavy packages that the policy admits and that are installed: a zygote imports them once for all."""
    from importlib.util import find_spec

    return tuple(name for name in HEAVY if name in policy.language.imports and find_spec(name) is not None)


HEAVY = ("numpy", "pandas")
