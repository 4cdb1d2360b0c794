"""Zygotes, from which kernels are forked, and the processes that are forked from them ahead."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

from rlm_ipc import framing, stale_files
from rlm_ipc.environment import ZYGOTE, chosen
from rlm_ipc.errors import KernelDied
from rlm_ipc.framed_stream import Unfinished
from rlm_ipc.messages import Json
from rlm_ipc.version import VERSION
from rlm_ipc.worker_protocol import ForkState, Handshake, Report
from rlm_kernel.supervisor import oom_victims
from rlm_kernel.supervisor.keeping import Keeping
from rlm_kernel.supervisor.process_fork import fork
from rlm_kernel.supervisor.session_policy import SessionPolicy
from rlm_kernel.supervisor.worker_link import ForkRefused, PeerDied, WorkerLink, heard

ZYGOTE_SECONDS = 60.0
FORK_SECONDS = 30.0
READY_AFTER_SECONDS = 0.1
UNUSED_SECONDS = 300.0
"""After which a process that was made ahead ends: it has 20 MB of its own, and saves a session some milliseconds."""

Kind = tuple[tuple[str, ...], bool]
"""A kind of process that is made ahead: the modules it has imported, and whether it is for private sessions."""


class Zygotes:
    """The zygote of each set of modules, and of each kind of session the process that waits for the next one.

    ``keeping`` lets a later supervisor go on with the zygotes.
    """

    def __init__(self, runtime: Path, log: Path, keeping: Keeping | None, unfinished: Unfinished) -> None:
        self._runtime, self._log, self._keeping, self._unfinished = runtime, log, keeping, unfinished
        self._zygotes: dict[tuple[str, ...], asyncio.Task[WorkerLink]] = {}
        self._ready: dict[Kind, WorkerLink] = {}
        self._unused: dict[Kind, asyncio.TimerHandle] = {}
        self._making: asyncio.Future[None] | None = None
        self._closed = False
        self.kernel_info: dict[str, Json] = {}
        """What the last zygote told of the kernels that are forked from it."""

    def start(self) -> None:
        """Warm the first zygote, if none was taken over, and have a process ready for the first session."""
        if () not in self._zygotes:
            self._zygotes[()] = asyncio.create_task(self._start(()))
        self._make_ready(((), False))

    def take_over(self, preload: tuple[str, ...], zygote: WorkerLink) -> None:
        """Go on with a zygote of the supervisor before this one."""
        self._zygotes[preload] = asyncio.create_task(self._greet(zygote))

    def pids(self) -> set[int | None]:
        """The processes that are of no session."""
        tasks = [task for task in self._zygotes.values() if task.done() and not task.cancelled()]
        living = {task.result().pid for task in tasks if not task.exception()}
        return living | {peer.pid for peer in self._ready.values()}

    async def fresh_worker(self, preload: tuple[str, ...], *, usual: bool, private: bool) -> WorkerLink:
        """A fresh process that waits for its session, made ahead for a ``usual`` session, else made now."""
        kind = preload, private
        ready = self._take(kind) if usual else None
        # Its successor is forked a little later, so as not to compete with the session that starts now.
        asyncio.get_running_loop().call_later(READY_AFTER_SECONDS, self._make_ready, kind)
        if ready is not None and not ready.dead:
            return ready
        try:
            return await fork(await self._zygote(preload), ForkState.READY, FORK_SECONDS, private=private)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied(f"the zygote ended while it forked; {self._log} says why") from error

    def close(self) -> None:
        """End all of them."""
        self._closed = True
        for kind in list(self._ready):
            self._let_go(kind)
        for task in self._zygotes.values():
            if task.done() and task.exception() is None:
                task.result().drop()
            else:
                task.cancel()

    # -- processes made ahead

    def _make_ready(self, kind: Kind) -> None:
        if kind not in self._ready and not self._closed:
            self._making = asyncio.ensure_future(self._fork_ahead(kind))

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
        """A living zygote with these modules imported. It is started when first needed, and again after its death."""
        task = self._zygotes.get(preload)
        if task is None or (task.done() and (task.exception() is not None or task.result().dead)):
            task = self._zygotes[preload] = asyncio.create_task(self._start(preload))
        try:
            return await asyncio.shield(task)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied(f"the zygote ended while it warmed up; {self._log} says why") from error

    async def _start(self, preload: tuple[str, ...]) -> WorkerLink:
        ours, theirs = framing.lifelines()
        # -P keeps the working folder off sys.path: a user's `yaml.py` or `kernel.py` must not replace a module of ours.
        argv = [sys.executable, "-P", "-m", "rlm_kernel.worker.zygote", "--fd", str(theirs.fileno())]
        argv += ["--preload", ",".join(preload)]
        peer = WorkerLink(None, self._unfinished, lifeline=ours, keeping=self._keeping)
        peer.is_zygote = True
        handshake = peer.expect(Handshake.TAG)
        peer.attach()
        with self._log.open("ab") as log:
            # The zygote's environment is every kernel's /proc/self/environ: nothing of the user's goes into it.
            _launch(argv, log.fileno(), theirs.fileno(), self._environment())
        theirs.close()
        await asyncio.wait_for(handshake, ZYGOTE_SECONDS)
        oom_victims.prefer(peer.pid, oom_victims.REPLACEABLE)
        peer.keep(f"zygote/{VERSION}/" + ",".join(preload))
        self.kernel_info = peer.handshake.kernel_info
        return peer

    async def _greet(self, zygote: WorkerLink) -> WorkerLink:
        report = zygote.expect(Report.TAG)
        zygote.attach()
        told = heard(Report, await asyncio.wait_for(report, ZYGOTE_SECONDS))
        self.kernel_info = told.kernel_info if told is not None else {}
        return zygote

    def _environment(self) -> dict[str, str]:
        folder = self._runtime / stale_files.ZYGOTE
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "LANG": "C.UTF-8",
            "TMPDIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            **QUIET_LIBRARIES,
            **LARGE_COPIES,
            **chosen(ZYGOTE),
        }


def _launch(argv: list[str], log: int, line: int, env: dict[str, str]) -> None:
    """Start a process, and leave it to whoever awaits its handshake on ``line``."""
    subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(line,), env=env, cwd="/")


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
