"""The kernel processes of one session: the live one, its dormant copies, and how a copy takes over.

Every process is forked from another one, but all of them are children of the supervisor. So it learns how each ended,
and the death of the live process does not take its copies along.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from rlm_ipc import framing, worker_protocol
from rlm_ipc import processes as process
from rlm_ipc.errors import CallerError, KernelDied, KernelError, ProtocolError, WallsMissing
from rlm_ipc.framed_stream import Overfull
from rlm_ipc.kernel_reports import QueryOutcome, WallState
from rlm_ipc.messages import Json, JsonObject
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.worker_protocol import ForkState, Resume, Resumed, Start, Started
from rlm_ipc.worker_requests import (
    Answered,
    Bind,
    Export,
    Peek,
    Reply,
    Request,
    Resolve,
    Scan,
    Shadowed,
    ShadowedNames,
    Unbind,
    Variables,
    encode_request,
    read_reply,
)
from rlm_kernel.failures import from_worker
from rlm_kernel.supervisor.fork_broker import ForkBroker
from rlm_kernel.supervisor.limits import CellLimits
from rlm_kernel.supervisor.refusals import Refusals
from rlm_kernel.supervisor.worker_link import ForkRefused, PeerDied, WorkerLink, answered, fork, heard
from rlm_sandbox.policy.layer_names import WALL_NAMES

ANSWER_SECONDS = 10.0
MONITOR = {"monitor": WallState(True, "the supervisor watches time, memory and output")}
START_SECONDS = 30.0
REPLACED_SECONDS = 0.02
"""How long a copy outlives the one that replaces it. Taking down its memory takes a processor for as long as a short
cell: a reply that goes out now must not wait for that."""
SUPERVISOR_RESTORES = (Bind, Unbind, Shadowed, Resolve, Variables, Peek, Scan, Export)
"""Requests that change nothing, or only what the supervisor restores in a fresh process."""
RUN_NO_CODE = (Bind, Unbind, Shadowed, Resolve, Variables)
"""Those among them that run no user code: a copy from before them still represents the session."""


@dataclass(slots=True)
class BoundText:
    """A context as a kernel gets it: a header, and read-only descriptors that pin the text while they are open.

    ``serial`` distinguishes it from another context of the same name, as ``revision`` does for whoever loaded it.
    """

    descriptors: tuple[int, ...]
    header: dict[str, Json]
    type: str
    metadata: dict[str, Json]
    revision: int = 0
    serial: int = 0

    def shared(self) -> BoundText:
        """The same context with a pin of its own, for another session."""
        return replace(self, descriptors=tuple(os.dup(fd) for fd in self.descriptors))

    def close(self) -> None:
        """Give up the pin."""
        for fd in self.descriptors:
            os.close(fd)


@dataclass(slots=True)
class Checkpoint:
    """A sleeping copy, taken after ``cells`` completed cells."""

    peer: WorkerLink
    cells: int


@dataclass(slots=True, eq=False)
class Checkpoints:
    """The processes of a session.

    ``fresh_worker`` makes a process that waits for a session, and ``spec`` describes the session to it. ``contexts``
    and ``answers`` are given again to every process that does not have them yet. ``cells`` is how many cells the live
    process has completed. ``copies`` are the sleeping processes, oldest first: the newest, and those that undo the last
    ``undoable`` cells. ``replaced`` are copies that are about to end. ``pristine`` means that the process was like any
    fresh one before its first cell, and
    ``only_cells`` that nothing but cells has changed the session since the newest copy. ``shadowed`` are the contexts
    whose names mean something else in the live process, by its own report; ``told`` are those that callers know of.
    ``limits`` starts the clock of a request, and ``refusals`` counts what the gate refuses.
    """

    fresh_worker: Callable[[], Awaitable[WorkerLink]]
    spec: Start
    required_walls: tuple[str, ...]
    on_death: Callable[[WorkerLink], None]
    receiver: Callable[[WorkerLink, framing.Message], None]
    limits: Callable[[WorkerLink], CellLimits]
    refusals: Refusals
    undoable: int = 0
    pristine: bool = False
    live: WorkerLink | None = None
    walls: dict[str, WallState] = field(default_factory=dict)
    contexts: dict[str, BoundText] = field(default_factory=dict)
    shadowed: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    answers: Mapping[str, QueryOutcome] = field(default_factory=dict)
    cells: int = 0
    gate: ForkBroker | None = None
    serial: int = 0
    copies: list[Checkpoint] = field(default_factory=list)
    replaced: list[WorkerLink] = field(default_factory=list)
    only_cells: bool = False
    closed: bool = False

    @property
    def newest(self) -> Checkpoint | None:
        """The newest copy."""
        return self.copies[-1] if self.copies else None

    @property
    def untouched(self) -> bool:
        """True if the live process is still like any fresh one that the supervisor has equipped."""
        return self.pristine and self.cells == 0

    @property
    def covered(self) -> bool:
        """True if the newest copy, or a fresh process, represents everything that the session holds."""
        return self.untouched or (self.newest is not None and self.newest.cells == self.cells and self.only_cells)

    @property
    def fresh(self) -> bool:
        """True if a new copy would gain nothing."""
        return self.covered and self.newest is not None

    @property
    def alive(self) -> bool:
        """True while a live process serves the session."""
        return self.live is not None and not self.live.dead

    # -- processes

    async def start(self) -> None:
        """Start the session in a fresh process; raises `WallsMissing` or `KernelDied`."""
        peer = await self.fresh_worker()
        try:
            answer = await self._begun(peer)
        except BaseException:
            peer.drop()
            raise
        self.use_gate(ForkBroker(answer.descriptors[0], self) if answer.descriptors else None)
        self.pristine = True
        self.lead(peer)

    async def renew(self) -> None:
        """Replace all processes by a fresh one. Raises the same as `start`, and then nothing has changed."""
        before = self.processes()
        await self.start()
        for peer in before:
            peer.drop()
        self.copies, self.cells, self.only_cells = [], 0, False

    async def start_equipped(self) -> None:
        """`start`, and give the process the contexts and answers that the supervisor keeps for it."""
        await self.start()
        await self.equip()

    async def _begun(self, peer: WorkerLink) -> framing.Message:
        begun = peer.expect(Started.TAG)
        peer.say(self.spec)
        try:
            answer: framing.Message = await answered(begun, START_SECONDS, peer.pid)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied("a kernel could not start: it ended before it was ready") from error
        self.believe_walls(heard(Started, answer))
        self.demand_walls()
        return answer

    def believe_walls(self, started: Started | None) -> None:
        """Record the walls that a process reports; raises `KernelDied` with the error that it reports instead.

        The report comes from a process that has run no user code yet, so it can be believed.
        """
        if started is None or started.error is not None:
            why = "it did not say which walls stand" if started is None else started.error
            raise KernelDied(f"a kernel could not start: {why}")
        self.walls = {name: started.walls[name] for name in WALL_NAMES if name in started.walls} | MONITOR

    def demand_walls(self) -> None:
        """Raise `WallsMissing` unless every wall that the policy requires stands."""
        missing = {wall: _why_not(self.walls, wall) for wall in self.required_walls if _why_not(self.walls, wall)}
        if missing:
            raise WallsMissing([f"{wall} ({why})" for wall, why in missing.items()])

    def lead(self, peer: WorkerLink) -> None:
        """Let ``peer`` be the live process."""
        self._refuse_when_closed(peer)
        self.live = peer
        peer.serve()
        peer.receiver, peer.on_death = self.receiver, self.on_death

    def _refuse_when_closed(self, peer: WorkerLink) -> None:
        # The driver is cancelled with the session. But a wait whose answer has arrived already returns it and loses the
        # cancellation, so the session may be closed here.
        if self.closed:
            peer.drop()
            raise asyncio.CancelledError

    async def checkpoint(self) -> None:
        """Take a dormant copy of the live process; raises `ForkRefused` or `PeerDied`.

        Earlier copies stay only if a rollback needs them. Both processes share their memory until the live one gets its
        next request, or `prefault`.
        """
        assert self.live is not None
        cells = self.cells
        peer = await self.fork(self.live, asleep=True)
        self._refuse_when_closed(peer)
        peer.on_death = self.on_death
        # A fresh process can undo the first cell just as well, and needs no memory until then.
        oldest = max(cells - self.undoable, 1 if self.pristine else 0)
        kept = [copy for copy in self.copies if oldest <= copy.cells < cells]
        self._replace([copy.peer for copy in self.copies if copy not in kept])
        self.copies = [*kept, Checkpoint(peer, cells)]
        self.only_cells = True

    def prefault(self) -> None:
        """Have the live process make the pages its own that any cell writes to, ahead of the next cell."""
        if self.live is not None:
            self.live.send(worker_protocol.PREFAULT)

    def _replace(self, peers: list[WorkerLink]) -> None:
        if peers:
            self.replaced += peers
            asyncio.get_running_loop().call_later(REPLACED_SECONDS, self._end_replaced, peers)

    def _end_replaced(self, peers: list[WorkerLink]) -> None:
        for peer in peers:
            peer.drop()
        self.replaced = [peer for peer in self.replaced if peer not in peers]

    def lost_copy(self, peer: WorkerLink) -> None:
        """A copy has ended."""
        self.copies = [copy for copy in self.copies if copy.peer is not peer]
        self.replaced = [copy for copy in self.replaced if copy is not peer]

    def drop_oldest(self) -> bool:
        """Give up the oldest copy that is kept only for a rollback; False if there is none."""
        if len(self.copies) < 2:
            return False
        self._drop([self.copies.pop(0)])
        return True

    def _drop(self, copies: list[Checkpoint]) -> None:
        for copy in copies:
            copy.peer.drop()

    def can_go_back(self) -> list[int]:
        """The numbers of cells that can be undone: those that end at a copy, or at a fresh process."""
        known = {copy.cells for copy in self.copies} | ({0} if self.pristine else set())
        return sorted(self.cells - cells for cells in known if 0 < self.cells - cells <= self.undoable)

    async def go_back(self, count: int) -> None:
        """Undo ``count`` cells, one of `can_go_back`. If the copy cannot be resumed, nothing has changed."""
        target, before = self.cells - count, self.live
        chosen = next((copy for copy in reversed(self.copies) if copy.cells == target), None)
        if chosen is None:
            await self.start()
        elif not await self._lead_copy(chosen):
            raise CallerError("the copy from before these cells has ended; undo fewer cells")
        if before is not None:
            before.drop()
        self._drop([copy for copy in self.copies if copy.cells > target])
        self.copies = [copy for copy in self.copies if copy.cells <= target]
        self.cells = target

    def processes(self) -> list[WorkerLink]:
        """Every process of the session."""
        serving = [self.live] if self.live is not None else []
        return [*serving, *(copy.peer for copy in self.copies), *self.replaced]

    async def fork(self, source: WorkerLink, *, asleep: bool = False, **asked: bool) -> WorkerLink:
        """A sleeping copy of one of the session's processes; raises `ForkRefused`, `PeerDied` or TimeoutError."""
        forks = 2 if asked.get("leave_threads") else 1
        # The session and sessions forked from it may fork the same copy at once. A permission belongs to one process,
        # so two of them at a time would be mistaken for each other.
        async with source.forking:
            with nullcontext() if self.gate is None else self.gate.permit(source, forks):
                copy = await fork(source, ForkState.DORMANT, ANSWER_SECONDS, asleep=asleep, **asked)
        copy.attached = dict(source.attached)
        return copy

    async def take_over(self, *, in_cell: bool) -> Loss:
        """After the live process has died, maybe ``in_cell``: go on from the newest copy, or from a fresh process."""
        # A copy can be dead as well, or die when its objects are let go. Each failure removes one, so this ends.
        while (copy := self.newest) is not None:
            if await self._lead_copy(copy) and await self._is_equipped():
                cells, self.cells = self.cells - copy.cells, copy.cells
                return Loss(Lost.CELLS if cells else Lost.NOTHING, cells, in_cell)
            copy.peer.drop()
            self.lost_copy(copy.peer)
        lost, self.cells = Lost.NOTHING if self.untouched else Lost.EVERYTHING, 0
        await self.start_equipped()
        return Loss(lost, 0, in_cell)

    async def _is_equipped(self) -> bool:
        """`equip` a process that was a copy; False if it died of it (letting go of objects may run finalisers)."""
        try:
            await self.equip()
        except PeerDied:
            return False
        return True

    async def _lead_copy(self, copy: Checkpoint) -> bool:
        """Let a copy of the copy go on as the live process; False if it died.

        The copy itself sleeps on, so that a second crash finds one too. It goes on itself only if it cannot be forked.
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
        self.only_cells = True
        return True

    async def _resumed(self, peer: WorkerLink) -> bool:
        resumed = peer.expect(Resumed.TAG)
        peer.say(Resume(self.spec.query_base))
        try:
            await answered(resumed, ANSWER_SECONDS, peer.pid)
        except (PeerDied, TimeoutError):
            return False
        return True

    def drop_all(self) -> None:
        """End every process of the session."""
        for peer in self.processes():
            peer.drop()
        self.live, self.copies, self.replaced = None, [], []
        self.use_gate(None)

    def close(self) -> None:
        """End the session's processes and give up its pins."""
        self.closed = True
        self.drop_all()
        for shared_text in self.contexts.values():
            shared_text.close()
        self.contexts.clear()

    def use_gate(self, gate: ForkBroker | None) -> None:
        """Let that gate decide about the forks of the session's processes from now on."""
        if self.gate is not None:
            self.gate.release(self)
        self.gate = gate

    def owns(self, pid: int) -> bool:
        """Whether that process is one of the session's."""
        return any(peer.pid == pid for peer in self.processes())

    def refused(self, call: str) -> None:
        """Count an attempt of one of them at that system call, which is being refused."""
        self.refusals.refused(call)

    # -- what a process needs to have

    async def ask(
        self, request: Request[Any], descriptors: tuple[int, ...] = ()
    ) -> tuple[JsonObject, tuple[bytes, ...]]:
        """Send one of our own requests to the live process; raises its KernelError, or `PeerDied`."""
        assert self.live is not None
        self.pristine &= isinstance(request, SUPERVISOR_RESTORES)
        self.only_cells &= isinstance(request, RUN_NO_CODE)
        live, told = self.live, self.live.expect(Answered.TAG)
        tag, part = encode_request(request)
        live.send(tag, (part,), descriptors)
        limits = self.limits(live)
        try:
            message = await told
        except PeerDied:
            live.stopped_for = limits.reason
            raise
        finally:
            limits.end()
        answer = heard(Answered, message)
        if answer is None:
            raise KernelError("the kernel's answer is too long or cannot be read; ask for less at once")
        if answer.failure is not None:
            raise from_worker(answer.failure)
        return answer.content, message.parts[1:]

    async def ask_for(self, request: Request[Reply], nothing: Reply) -> Reply:
        """`ask`, and read the reply; ``nothing`` if a hostile kernel sent something else."""
        content, _ = await self.ask(request)
        try:
            return read_reply(request, content)
        except ProtocolError:
            return nothing

    async def attach(self, name: str, shared_text: BoundText) -> None:
        """Give the live process a context, and remember it for the processes after it."""
        self.serial += 1
        shared_text.serial = self.serial
        old = self.contexts.get(name)
        self.contexts[name] = shared_text
        if old is not None:
            old.close()
        await self._attach(name, shared_text)

    async def _attach(self, name: str, shared_text: BoundText) -> None:
        assert self.live is not None
        copies = tuple(os.dup(fd) for fd in shared_text.descriptors)
        await self.ask(Bind(name, shared_text.header, shared_text.type, shared_text.metadata), copies)
        self.live.attached[name] = shared_text.serial
        self._bare(name)

    def shadow(
        self, said: Iterable[str], returned: Iterable[str] = (), *, told: bool = True
    ) -> tuple[list[str], list[str]]:
        """Record the contexts that are shadowed now, as the live process reports them.

        Returns the names that became shadowed and those that ceased to be, since a caller was last told. The second
        list includes the ``returned`` names, which a cell has taken and given back. With ``told=False`` no caller
        listens now: then only the second list is filled, and the rest waits for the next caller.
        """
        self.shadowed = frozenset(said) & self.contexts.keys()
        back = (self.contexts.keys() & set(returned)) - self.shadowed
        if not told:
            return [], sorted(back)
        before, self.told = self.told, self.shadowed
        return sorted(self.shadowed - before), sorted(back | (before - self.shadowed))

    def _bare(self, name: str) -> None:
        self.shadowed, self.told = self.shadowed - {name}, self.told - {name}

    async def learn_shadowed(self) -> None:
        """Ask the live process which contexts are shadowed in it."""
        said = await self.ask_for(Shadowed(), ShadowedNames()) if self.contexts else ShadowedNames()
        self.shadow(said.shadowed)

    def forget(self, name: str) -> None:
        """Give up the pin of a context that the session no longer has."""
        self._bare(name)
        shared_text = self.contexts.pop(name, None)
        if shared_text is not None:
            shared_text.close()
        if self.live is not None:
            self.live.attached.pop(name, None)

    async def equip(self) -> None:
        """Bring a process that took over up to date: contexts, and answers of queries."""
        assert self.live is not None
        for name in [name for name in self.live.attached if name not in self.contexts]:
            await self.ask(Unbind(name))
            del self.live.attached[name]
        for name, shared_text in self.contexts.items():
            if self.live.attached.get(name) != shared_text.serial:
                await self._attach(name, shared_text)
        await self.learn_shadowed()
        if self.answers:
            await self.ask(Resolve(dict(self.answers)))


def cause_of_death(peer: WorkerLink) -> str:
    """Why the process ended, in words for the user."""
    if peer.stopped_for:
        return peer.stopped_for
    if isinstance(peer.stream.failure, Overfull):
        return str(peer.stream.failure)
    if peer.stream.failure is not None:
        return f"the kernel broke its protocol ({peer.stream.failure})"
    if peer.status == process.EXIT_MEMORY:
        return "the kernel ran out of its memory"
    if peer.status == process.EXIT_TAMPERED:
        return "code changed a part of the language wall, so the kernel was ended"
    return f"the kernel {process.describe_exit(peer.status)}"


def _why_not(walls: Mapping[str, WallState], name: str) -> str:
    """Why a wall does not stand; empty if it does."""
    wall = walls.get(name, WallState(False, "nothing raised it"))
    return "" if wall.standing else wall.detail
