"""The kernel processes of one session: the live one, its sleeping copies, and how a copy takes over.

Every process is forked from another one, but all of them are children of the supervisor. So it learns how each ended,
and the copies survive the death of the live process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace

from rlm_ipc import framing, worker_protocol
from rlm_ipc.errors import CallerError, KernelDied, KernelError
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.worker_protocol import ForkState, Resume, Resumed, Start, Started
from rlm_ipc.worker_requests import LookAtThreads, OtherThreads, Restore
from rlm_kernel.supervisor.copies.checkpoints import Checkpoint, Checkpoints
from rlm_kernel.supervisor.copies.equipment import Equipment
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests, RawAnswer
from rlm_kernel.supervisor.keeping.given_images import GivenImage
from rlm_kernel.supervisor.processes import oom_victims, other_threads
from rlm_kernel.supervisor.processes.fork_broker import ForkBroker
from rlm_kernel.supervisor.processes.patience import answered
from rlm_kernel.supervisor.processes.process_fork import fork
from rlm_kernel.supervisor.processes.refusals import Refusals
from rlm_kernel.supervisor.processes.session_walls import SessionWalls
from rlm_kernel.supervisor.processes.worker_link import ForkRefused, LinkOwner, PeerDied, WorkerLink, heard

ANSWER_SECONDS = 10.0
GIVEN_AGAIN = 3
"""How many processes in a row may die of the images that they are given."""
START_SECONDS = 30.0
REPLACED_SECONDS = 0.02
"""How long a copy outlives its replacement.

Releasing its memory takes a processor for as long as a short cell, and a reply that leaves now must not wait for that.
"""


class KernelProcesses:
    """The processes of one session.

    ``fresh_worker`` creates a process that waits for a session, and ``spec`` describes the session to it. ``owner`` is
    called with their messages and deaths, and ``refusals`` counts what their gate refuses. ``checkpoints`` says what
    each copy represents, and ``equipment`` is given to every process that does not have it yet. ``requests`` asks the
    live one.
    """

    def __init__(
        self,
        fresh_worker: Callable[[], Awaitable[WorkerLink]],
        spec: Start,
        walls: SessionWalls,
        checkpoints: Checkpoints,
        equipment: Equipment,
        requests: KernelRequests,
        refusals: Refusals,
        owner: LinkOwner,
    ) -> None:
        self.spec, self.walls = spec, walls
        self.live: WorkerLink | None = None
        self.gate: ForkBroker | None = None
        self.anew_at = 0.0
        """When someone last restarted it from scratch, in seconds since the epoch; 0.0: never."""
        self._fresh_worker, self._owner, self._refusals = fresh_worker, owner, refusals
        self._checkpoints, self._equipment, self._requests = checkpoints, equipment, requests
        self._replaced: list[WorkerLink] = []
        """Copies that are about to end."""
        self._closed = False

    @property
    def alive(self) -> bool:
        """True while a live process serves the session."""
        return self.live is not None and not self.live.dead

    @property
    def serving(self) -> WorkerLink:
        """The live process; only for work between `start` and `close`."""
        assert self.live is not None
        return self.live

    def links(self) -> list[WorkerLink]:
        """Every process of the session."""
        live = [self.live] if self.live is not None else []
        return [*live, *(copy.peer for copy in self._checkpoints.copies), *self._replaced]

    def number_queries_from(self, number: int) -> None:
        """Make every later process number its queries from that number on."""
        self.spec = replace(self.spec, query_base=number)

    # -- a fresh process

    async def start(self) -> None:
        """Start the session in a fresh process; raises `WallsMissing` or `KernelDied`."""
        peer = await self._fresh_worker()
        try:
            answer = await self._begun(peer)
        except BaseException:
            peer.drop()
            raise
        self.use_gate(ForkBroker(answer.descriptors[0], self, peer.keeping) if answer.descriptors else None)
        self._checkpoints.pristine = True
        self.lead(peer)

    async def start_equipped(self) -> None:
        """Run `start`, and give the process the contexts and answers that the supervisor keeps for it."""
        await self.start()
        await self._equipment.equip(self.serving)

    async def renew(self) -> None:
        """Replace all processes by a fresh one. Raises the same as `start`, and then nothing has changed."""
        # The old processes end last. If the fresh one does not start, the session stays as it was.
        before = self.links()
        await self.start()
        for peer in before:
            peer.drop()
        self._checkpoints.begin_anew()
        self._checkpoints.keep_images()
        self.anew_at = time.time()

    async def _begun(self, peer: WorkerLink) -> framing.Message:
        begun = peer.expect(Started.TAG)
        try:
            peer.say(self.spec, peer.new_tether())
            answer: framing.Message = await answered(begun, START_SECONDS, peer.pid)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied("a kernel could not start: it ended before it was ready") from error
        peer.keep_process()
        self.walls.believe(heard(Started, answer))
        self.walls.demand()
        return answer

    def lead(self, peer: WorkerLink) -> None:
        """Make ``peer`` the live process."""
        self._refuse_when_closed(peer)
        self.live = peer
        oom_victims.prefer(peer.pid, oom_victims.LIVE)
        peer.serve()
        peer.report_to(self._owner)

    def _refuse_when_closed(self, peer: WorkerLink) -> None:
        # The driver is cancelled with the session. But a wait whose answer has already arrived still returns it and
        # loses the cancellation, so the session may be closed here.
        if self._closed:
            peer.drop()
            raise asyncio.CancelledError

    async def hear_out(self) -> None:
        """Let the live process of an earlier supervisor repeat what nobody needs, and listen only after that.

        Otherwise that would count as output of what runs next. Raises `PeerDied`.
        """
        live = self.serving
        live.report_to(None)
        await self._requests.ask_for(live, LookAtThreads(), OtherThreads())
        live.report_to(self._owner)

    # -- copies

    async def checkpoint(self) -> None:
        """Take a sleeping copy of the live process; raises `ForkRefused` or `PeerDied`.

        Both processes share their memory until the live one gets its next request, or `prefault`.
        """
        cells, alone = self._checkpoints.cells, await self.demand_still()
        peer = await self.fork(self.serving, asleep=alone, leave_threads=not alone)
        self._refuse_when_closed(peer)
        peer.report_to(self._owner)
        oom_victims.prefer(peer.pid, oom_victims.COPY)
        if replaced := self._checkpoints.add(peer, cells):
            self._replaced += replaced
            asyncio.get_running_loop().call_later(REPLACED_SECONDS, self._end_replaced, replaced)

    async def demand_still(self) -> bool:
        """Whether the live process has one thread only; raises `ForkRefused` if no copy can lack another one now."""
        live = self.serving
        if live.pid is None or not other_threads.count(live.pid):
            return True
        told = await self._requests.ask_for(live, LookAtThreads(), OtherThreads())
        await other_threads.demand_still(live.pid, told)
        return False

    def _end_replaced(self, peers: list[WorkerLink]) -> None:
        for peer in peers:
            peer.drop()
        self._replaced = [peer for peer in self._replaced if peer not in peers]

    def prefault(self) -> None:
        """Have the live process copy in advance the pages that any cell writes to."""
        if self.live is not None:
            self.live.send(worker_protocol.PREFAULT)

    def lost_copy(self, peer: WorkerLink) -> None:
        """Record that a copy has ended."""
        self._checkpoints.remove(peer)
        self._replaced = [copy for copy in self._replaced if copy is not peer]

    async def fork(self, source: WorkerLink, *, asleep: bool = False, leave_threads: bool = False) -> WorkerLink:
        """Return a sleeping copy of one of the session's processes.

        Raises `ForkRefused`, `PeerDied` or TimeoutError.
        """
        # A process that leaves its threads behind forks twice (`processes.fork_leaving_threads`).
        forks = 2 if leave_threads else 1
        # The session and sessions forked from it may fork the same copy at once. A permission belongs to one process,
        # so two at a time would be mistaken for each other.
        async with source.forking:
            with nullcontext() if self.gate is None else self.gate.permit(source, forks):
                copy = await fork(source, ForkState.DORMANT, ANSWER_SECONDS, asleep=asleep, leave_threads=leave_threads)
        copy.attached = dict(source.attached)
        return copy

    # -- a copy takes over

    async def take_over(self, *, in_cell: bool) -> Loss:
        """Continue from the newest copy or a fresh process after the live process has died, perhaps ``in_cell``."""
        checkpoints = self._checkpoints
        why, before, all_lost = checkpoints.uncopied, checkpoints.cells, not checkpoints.untouched
        for _ in range(GIVEN_AGAIN):
            threads = await self._newest_leads()
            if await self._has_images():
                break
        else:
            threads = await self._newest_leads()
        checkpoints.keep_images()
        if threads is None and not checkpoints.cells:
            return Loss(Lost.EVERYTHING if all_lost else Lost.NOTHING, before, in_cell, why)
        cells = before - checkpoints.cells
        return Loss(Lost.CELLS if cells else Lost.NOTHING, cells, in_cell, why, threads or ())

    async def _newest_leads(self) -> tuple[str, ...] | None:
        """Continue from the newest copy. Return the threads that are missing; None if a fresh process was needed."""
        checkpoints = self._checkpoints
        # A copy can be dead as well, or die when its objects are released. Each failure removes one, so this ends.
        while (copy := checkpoints.newest) is not None:
            if await self._lead_copy(copy) and await self._is_equipped():
                return checkpoints.resumed(copy)
            copy.peer.drop()
            self.lost_copy(copy.peer)
        checkpoints.begin_anew()
        await self.start_equipped()
        return None

    async def go_back(self, count: int) -> None:
        """Undo ``count`` cells, one of `can_go_back`. If the copy cannot be resumed, nothing has changed."""
        target, before = self._checkpoints.cells - count, self.live
        chosen = self._checkpoints.taken_after(target)
        if chosen is None:
            await self.start()
        elif not await self._lead_copy(chosen):
            raise CallerError("the copy from before these cells has ended; undo fewer cells")
        else:
            self._checkpoints.resumed(chosen)
        if before is not None:
            before.drop()
        self._checkpoints.go_back(target)

    async def _lead_copy(self, copy: Checkpoint) -> bool:
        """Make a copy of the copy the live process. Return False if it died.

        The copy itself keeps sleeping, so that a second crash finds one too. It becomes live itself only if it cannot
        be forked.
        """
        try:
            peer = await self.fork(copy.peer)
        except ForkRefused:
            peer = copy.peer
            self.lost_copy(peer)
        except (PeerDied, TimeoutError):
            return False
        try:
            resumed = await self._resumed(peer)
        except asyncio.CancelledError:
            peer.drop()
            raise
        if not resumed:
            peer.drop()
            return False
        self.lead(peer)
        return True

    async def _resumed(self, peer: WorkerLink) -> bool:
        resumed = peer.expect(Resumed.TAG)
        try:
            peer.say(Resume(self.spec.query_base))
            await answered(resumed, ANSWER_SECONDS, peer.pid)
        except (PeerDied, TimeoutError):
            return False
        return True

    async def _is_equipped(self) -> bool:
        """Equip a process that was a copy. Return False if that killed it (releasing objects may run finalisers)."""
        try:
            await self._equipment.equip(self.serving)
        except PeerDied:
            return False
        return True

    # -- images of variables

    async def restore(self, request: Restore, file: int) -> RawAnswer:
        """Give the live process an image of variables, and keep it for later processes until a copy has it.

        Raises the kernel's KernelError, or `PeerDied`: the caller still has the image, so nothing is lost by that.
        """
        checkpoints, keeping = self._checkpoints, self.serving.keeping
        pristine = checkpoints.pristine
        try:
            answer = await self._requests.ask(self.serving, request, (os.dup(file),))
        except PeerDied:
            checkpoints.pristine = pristine
            raise
        checkpoints.cells += 1  # it has changed variables like a cell, so losing it counts like a cell
        checkpoints.images.append(GivenImage.keep(keeping, request, file, checkpoints.cells))
        await self._equipment.learn_shadowed(self.serving)
        return answer

    async def _has_images(self) -> bool:
        """Give a process that took over the images that it lacks. Return False if it died of that."""
        checkpoints = self._checkpoints
        try:
            for image in checkpoints.images:
                if image.cells == checkpoints.cells + 1:
                    await self._requests.ask(self.serving, image.kept.request, (image.file(),))
                    checkpoints.cells += 1
            if checkpoints.images:
                await self._equipment.learn_shadowed(self.serving)
        except KernelError:  # it has none of this one, and there is none after it
            return True
        except PeerDied:
            return False
        return True

    # -- the gate

    def use_gate(self, gate: ForkBroker | None) -> None:
        """Let that gate decide about the forks of the session's processes from now on."""
        if self.gate is not None:
            self.gate.release(self)
        self.gate = gate

    def owns(self, pid: int) -> bool:
        """Return whether that process belongs to the session."""
        return any(peer.pid == pid for peer in self.links())

    def refused(self, call: str) -> None:
        """Count an attempt by one of them at that system call, which is being refused."""
        self._refusals.refused(call)

    # -- the end

    def drop_all(self) -> None:
        """End every process of the session."""
        for peer in self.links():
            peer.drop()
        self.live, self._replaced = None, []
        self._checkpoints.copies = []
        self._checkpoints.keep_images(up_to=0)
        self.use_gate(None)

    def close(self) -> None:
        """End the session's processes and give up its pins."""
        self._closed = True
        self.drop_all()
        self._equipment.close()
