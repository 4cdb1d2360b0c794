"""The kernel processes of one session: the live one, its dormant copy, and how one takes over from the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from rlm_kernel import process, tags, wire
from rlm_kernel.errors import CallerError, KernelDied, KernelError, WallsMissing, from_wire
from rlm_kernel.host.gate import Gate
from rlm_kernel.host.limits import CellLimits
from rlm_kernel.host.peer import ForkRefused, Peer, PeerDied, answered, fork, load, texts
from rlm_kernel.host.refusals import Refusals
from rlm_kernel.host.stream import Overfull
from rlm_sandbox.oswall.report import WallReport

ANSWER_SECONDS = 10.0
MONITOR = {"monitor": {"standing": True, "detail": "the host watches time, memory and output"}}
START_SECONDS = 30.0
HOST_RESTORES = ("attach", "detach", "shadowed", "settle", "variables", "peek", "scan", "export", "repeat")
"""Requests that change nothing, or nothing that the host does not do again for a fresh process."""
RUN_NO_CODE = ("attach", "detach", "shadowed", "settle", "variables", "repeat")
"""Those among them that run no code of the user's: the cells around them can be repeated without them."""
REDO_CELLS = 64
REDO_SECONDS = 0.05

Cell = dict[str, Any]


@dataclass(slots=True)
class Attachment:
    """A context as a kernel gets it: open read-only descriptors and a header; a lease while they are open.

    ``notes`` are its ``type`` and ``metadata``; ``serial`` tells it from another context of the same name, as
    ``revision`` does for whoever loaded it.
    """

    descriptors: tuple[int, ...]
    header: dict[str, Any]
    notes: dict[str, Any]
    revision: int = 0
    serial: int = 0

    def shared(self) -> Attachment:
        """The same context for another session, which holds a lease of its own."""
        return replace(self, descriptors=tuple(os.dup(fd) for fd in self.descriptors))

    def close(self) -> None:
        """Give up the lease."""
        for fd in self.descriptors:
            os.close(fd)


@dataclass(slots=True)
class Copy:
    """A sleeping copy from after ``cells`` completed cells, and the repeatable ones that came next.

    It stands for every state from ``cells`` to `reach`: when it wakes it runs as much of ``redo`` again as is wanted,
    which took the session ``seconds`` of the processor.
    """

    peer: Peer
    cells: int
    redo: list[Cell] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def reach(self) -> int:
        """The number of completed cells up to which it stands for the session."""
        return self.cells + len(self.redo)

    def cut(self, cells: int) -> None:
        """Repeat nothing that came after that many cells."""
        del self.redo[max(0, cells - self.cells) :]

    @property
    def worn(self) -> bool:
        """True if half of what it may have to repeat is used up."""
        return self.seconds > REDO_SECONDS / 2 or len(self.redo) > REDO_CELLS / 2


@dataclass(slots=True, eq=False)
class Images:
    """The processes of a session.

    ``image`` gives a fresh one that waits for a session; ``spec`` is what such a one is told; ``contexts`` and
    ``answers`` are what the host gives again to a process that does not have them yet. ``cells`` is how many the
    live process has completed. ``copies`` are the sleeping ones, the oldest first: the newest, and those from before
    the last ``undoable`` cells. ``pristine`` tells that the process before the first cell was as any fresh one, and
    ``only_cells`` that nothing but cells has changed the session since the newest copy. ``shadowed`` are the contexts
    whose names mean something else in the live process, as it says, and ``told`` those of which callers have heard.
    ``limits`` begins to count the time of a request; ``refusals`` counts what the gate refuses them.
    """

    image: Callable[[], Awaitable[Peer]]
    spec: dict[str, Any]
    required_walls: tuple[str, ...]
    on_death: Callable[[Peer], None]
    receiver: Callable[[Peer, wire.Message], None]
    limits: Callable[[Peer], CellLimits]
    refusals: Refusals
    undoable: int = 0
    pristine: bool = False
    live: Peer | None = None
    walls: dict[str, Any] = field(default_factory=dict)
    contexts: dict[str, Attachment] = field(default_factory=dict)
    shadowed: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    answers: Mapping[str, Any] = field(default_factory=dict)
    cells: int = 0
    gate: Gate | None = None
    serial: int = 0
    copies: list[Copy] = field(default_factory=list)
    only_cells: bool = False
    closed: bool = False

    @property
    def newest(self) -> Copy | None:
        """The newest copy."""
        return self.copies[-1] if self.copies else None

    @property
    def untouched(self) -> bool:
        """True if the live process is still as any fresh one that the host has equipped."""
        return self.pristine and self.cells == 0

    @property
    def covered(self) -> bool:
        """True if nothing has changed that the newest copy, or a fresh process, does not stand for."""
        return self.untouched or (self.newest is not None and self.newest.reach == self.cells and self.only_cells)

    @property
    def fresh(self) -> bool:
        """True if there is nothing to gain by a new copy."""
        return self.covered and self.newest is not None and not self.newest.worn

    @property
    def alive(self) -> bool:
        """True while a live process serves the session."""
        return self.live is not None and not self.live.dead

    # -- processes

    async def start(self) -> None:
        """Make a fresh process this session's; raises `WallsMissing` or `KernelDied`."""
        peer = await self.image()
        try:
            answer = await self._begun(peer)
        except BaseException:
            peer.drop()
            raise
        self.use_gate(Gate(answer.descriptors[0], self) if answer.descriptors else None)
        self.pristine = True
        self.lead(peer)

    async def renew(self) -> None:
        """Go on with a fresh process in place of all others; raises what `start` does, and then nothing has changed."""
        before = self.processes()
        await self.start()
        for peer in before:
            peer.drop()
        self.copies, self.cells, self.only_cells = [], 0, False

    async def start_equipped(self) -> None:
        """`start`, and give the process what the host keeps for it."""
        await self.start()
        await self.equip()

    async def _begun(self, peer: Peer) -> wire.Message:
        begun = peer.expect(tags.BEGUN)
        peer.send(tags.BEGIN, (wire.json_frame(self.spec),))
        try:
            answer: wire.Message = await answered(begun, START_SECONDS, peer.pid)
        except (PeerDied, TimeoutError) as error:
            raise KernelDied("a kernel could not start", "it ended before it was ready") from error
        self.believe_walls(load(answer))
        self.demand_walls()
        return answer

    def believe_walls(self, begun: Mapping[str, Any]) -> None:
        """Take note of the walls that a process says it has raised; raises `KernelDied` with what it says instead."""
        try:
            self.walls = WallReport.from_dict(begun["walls"]).to_dict() | MONITOR
        except (LookupError, TypeError) as error:
            why = str(begun.get("error", "it did not say which walls stand"))
            raise KernelDied("a kernel could not start", why) from error

    def demand_walls(self) -> None:
        """Raise `WallsMissing` unless every wall that the policy requires stands."""
        missing = {wall: _why_not(self.walls, wall) for wall in self.required_walls if _why_not(self.walls, wall)}
        if missing:
            raise WallsMissing([f"{wall} ({why})" for wall, why in missing.items()])

    def lead(self, peer: Peer) -> None:
        """Let ``peer`` be the live process."""
        self._refuse_when_closed(peer)
        self.live = peer
        peer.serve()
        peer.receiver, peer.on_death = self.receiver, self.on_death

    def _refuse_when_closed(self, peer: Peer) -> None:
        # The driver is cancelled with the session; a `wait_for` whose answer is there already overhears that.
        if self.closed:
            peer.drop()
            raise asyncio.CancelledError

    async def checkpoint(self, *, expectant: bool = True) -> None:
        """Take a dormant copy of the live process; raises `ForkRefused` or `PeerDied`.

        Of the copies before it those stay that a rollback needs. An ``expectant`` process makes ready for its next
        cell; one that is not shares its memory with the copy until that cell comes.
        """
        assert self.live is not None
        cells = self.cells
        peer = await self.fork(self.live, introduced=False, expectant=expectant)
        self._refuse_when_closed(peer)
        peer.on_death = self.on_death
        # To before the first cell, a fresh process goes back as well.
        oldest = max(cells - self.undoable, 1 if self.pristine else 0)
        kept = [copy for copy in self.copies if oldest <= copy.reach and copy.cells < cells and oldest < cells]
        self._drop([copy for copy in self.copies if copy not in kept])
        self.copies = [*kept, Copy(peer, cells)]
        self.only_cells = True

    def remember(self, cell: Cell, seconds: float) -> bool:
        """Have the newest copy repeat the cell that was just completed; False if that takes a copy of its own."""
        copy = self.newest
        if copy is None or copy.reach != self.cells - 1 or not self.only_cells:
            return False
        if len(copy.redo) >= REDO_CELLS or copy.seconds + seconds > REDO_SECONDS:
            return False
        copy.redo.append({key: cell[key] for key in ("code", "store_history")})
        copy.seconds += seconds
        return True

    def lost_copy(self, peer: Peer) -> None:
        """A copy has ended."""
        self.copies = [copy for copy in self.copies if copy.peer is not peer]

    def drop_oldest(self) -> bool:
        """Give up the oldest copy that is only kept for a rollback; False if there is none."""
        if len(self.copies) < 2:
            return False
        self._drop([self.copies.pop(0)])
        return True

    def _drop(self, copies: list[Copy]) -> None:
        for copy in copies:
            copy.peer.drop()

    def can_go_back(self) -> list[int]:
        """How many cells can be undone: each number for which there is a copy, or nothing but a fresh start to undo."""
        known = {number for copy in self.copies for number in range(copy.cells, copy.reach + 1)}
        known |= {0} if self.pristine else set()
        return sorted(self.cells - cells for cells in known if 0 < self.cells - cells <= self.undoable)

    async def go_back(self, count: int) -> None:
        """Undo ``count`` cells, which is one of `can_go_back`; when the copy cannot be woken nothing has changed."""
        target, before = self.cells - count, self.live
        chosen = next((copy for copy in reversed(self.copies) if copy.cells <= target <= copy.reach), None)
        if chosen is None:
            await self.start()
        elif not await self._lead_copy(chosen, target):
            raise CallerError("the copy to go back to has ended; fewer cells can be undone now")
        if before is not None:
            before.drop()
        self._drop([copy for copy in self.copies if copy.cells > target])
        self.copies = [copy for copy in self.copies if copy.cells <= target]
        for copy in self.copies:
            copy.cut(target)
        self.cells = target

    def processes(self) -> list[Peer]:
        """Every process of the session."""
        return [*([self.live] if self.live is not None else []), *(copy.peer for copy in self.copies)]

    async def fork(self, source: Peer, *, introduced: bool = True, **asked: bool) -> Peer:
        """A sleeping copy of one of the session's processes; raises `ForkRefused`, `PeerDied` or TimeoutError."""
        forks = 2 if asked.get("leave_threads") else 1
        async with source.forking:  # a copy is forked by whoever comes: by the session, and by forked sessions at once
            with nullcontext() if self.gate is None else self.gate.permit(source, forks):
                copy = await fork(source, "sleep", ANSWER_SECONDS, introduced=introduced, **asked)
        copy.attached = dict(source.attached)
        return copy

    async def take_over(self) -> int:
        """After the death of the live process: go on from the newest copy, else start afresh.

        Returns the number of lost cells. -1 means that there was no copy: every variable is lost.
        """
        while (copy := self.newest) is not None:
            if await self._lead_copy(copy, copy.reach) and await self._is_equipped():
                lost, self.cells = self.cells - copy.reach, copy.reach
                return lost
            copy.peer.drop()
            self.lost_copy(copy.peer)
        lost, self.cells = 0 if self.untouched else -1, 0
        await self.start_equipped()
        return lost

    async def _is_equipped(self) -> bool:
        """`equip` a process that was a copy; False if it did not survive what its objects do when they are let go."""
        try:
            await self.equip()
        except PeerDied:
            return False
        return True

    async def _lead_copy(self, copy: Copy, target: int) -> bool:
        """Let a copy of the copy go on as the live process, from the state after ``target`` cells. False if it died.

        The copy itself sleeps on, so that there is one at every moment; it goes on itself where it cannot be copied.
        """
        try:
            peer = await self.fork(copy.peer)
        except ForkRefused:
            peer = copy.peer
            self.lost_copy(peer)
        except (PeerDied, TimeoutError):
            return False
        try:
            woken = await self._woken(peer, copy.redo[: target - copy.cells])
        except asyncio.CancelledError:
            peer.drop()
            raise
        if not woken:
            peer.drop()
            return False
        self.lead(peer)
        self.only_cells = True
        return True

    async def _woken(self, peer: Peer, redo: list[Cell]) -> bool:
        try:
            await self._told(peer, tags.WAKE, {"query_base": self.spec["query_base"]}, tags.WOKEN)
            if redo:
                await self._told(peer, tags.REQUEST, {"op": "repeat", "cells": redo}, tags.ANSWERED)
        except (PeerDied, TimeoutError, KernelError):
            return False
        return True

    async def _told(self, peer: Peer, tag: bytes, content: Mapping[str, Any], answer: bytes) -> None:
        told = peer.expect(answer)
        peer.send(tag, (wire.json_frame(content),))
        message = await answered(told, ANSWER_SECONDS, peer.pid)
        if message.frames and (failed := load(message)).get("status") == "error":
            raise from_wire(failed)

    def drop_all(self) -> None:
        """End every process of the session."""
        for peer in self.processes():
            peer.drop()
        self.live, self.copies = None, []
        self.use_gate(None)

    def close(self) -> None:
        """End the session's processes and give up its leases."""
        self.closed = True
        self.drop_all()
        for attachment in self.contexts.values():
            attachment.close()
        self.contexts.clear()

    def use_gate(self, gate: Gate | None) -> None:
        """Have the forks of the processes to come decided by that gate."""
        if self.gate is not None:
            self.gate.release(self)
        self.gate = gate

    def owns(self, pid: int) -> bool:
        """Whether that process is one of the session's."""
        return any(peer.pid == pid for peer in self.processes())

    def refused(self, call: str) -> None:
        """An attempt of one of them at that system call is being refused."""
        self.refusals.refused(call)

    # -- what a process needs to have

    async def ask(
        self, request: Mapping[str, Any], descriptors: tuple[int, ...] = ()
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Put a request of ours to the live process; raises its KernelError, or `PeerDied`."""
        assert self.live is not None
        self.pristine &= request["op"] in HOST_RESTORES
        self.only_cells &= request["op"] in RUN_NO_CODE
        live, told = self.live, self.live.expect(tags.ANSWERED)
        live.send(tags.REQUEST, (wire.json_frame(request),), descriptors)
        limits = self.limits(live)
        try:
            message = await told
        except PeerDied:
            live.stopped_for = limits.reason
            raise
        finally:
            limits.end()
        content = load(message)
        if content.get("status") != "ok":
            raise from_wire(content)
        return content, message.frames[1:]

    async def attach(self, name: str, attachment: Attachment) -> None:
        """Give the live process a context, and remember it for those that come after."""
        self.serial += 1
        attachment.serial = self.serial
        old = self.contexts.get(name)
        self.contexts[name] = attachment
        if old is not None:
            old.close()
        await self._attach(name, attachment)

    async def _attach(self, name: str, attachment: Attachment) -> None:
        assert self.live is not None
        copies = tuple(os.dup(fd) for fd in attachment.descriptors)
        request = {"op": "attach", "name": name, "header": attachment.header, **attachment.notes}
        await self.ask(request, copies)
        self.live.attached[name] = attachment.serial
        self._bare(name)

    def shadow(self, said: object, returned: object = None, *, heard: bool = True) -> tuple[list[str], list[str]]:
        """Take note of the contexts that are shadowed, as the live process says.

        Returns those that are and were not, and those that were and are not, when a caller last heard of it. The latter
        include those that are ``returned``: a cell took their names and gave them back. If none hears now, that is all.
        """
        self.shadowed = frozenset(texts(said)) & self.contexts.keys()
        back = (self.contexts.keys() & texts(returned)) - self.shadowed
        if not heard:
            return [], sorted(back)
        before, self.told = self.told, self.shadowed
        return sorted(self.shadowed - before), sorted(back | (before - self.shadowed))

    def _bare(self, name: str) -> None:
        self.shadowed, self.told = self.shadowed - {name}, self.told - {name}

    async def learn_shadowed(self) -> None:
        """Ask the live process which contexts are shadowed in it."""
        content = (await self.ask({"op": "shadowed"}))[0] if self.contexts else {}
        self.shadow(content.get("shadowed"))

    def forget(self, name: str) -> None:
        """Give up the lease of a context that the session no longer has."""
        self._bare(name)
        attachment = self.contexts.pop(name, None)
        if attachment is not None:
            attachment.close()
        if self.live is not None:
            self.live.attached.pop(name, None)

    async def equip(self) -> None:
        """Bring a process that took over up to date: contexts, and answers of queries."""
        assert self.live is not None
        for name in [name for name in self.live.attached if name not in self.contexts]:
            await self.ask({"op": "detach", "name": name})
            del self.live.attached[name]
        for name, attachment in self.contexts.items():
            if self.live.attached.get(name) != attachment.serial:
                await self._attach(name, attachment)
        await self.learn_shadowed()
        if self.answers:
            await self.ask({"op": "settle", "answers": dict(self.answers)})


def cause_of_death(peer: Peer) -> str:
    """Why the process ended, in words."""
    if peer.stopped_for:
        return peer.stopped_for
    if isinstance(peer.stream.failure, Overfull):
        return str(peer.stream.failure)
    if peer.stream.failure is not None:
        return f"the kernel broke its protocol ({peer.stream.failure})"
    if peer.status == process.EXIT_MEMORY:
        return "the kernel ran out of its memory"
    if peer.status == process.EXIT_TAMPERED:
        return "code had changed a part of its language wall, so the kernel was ended"
    return f"the kernel {process.describe_exit(peer.status)}"


def _why_not(walls: Mapping[str, Any], name: str) -> str:
    """Why a wall does not stand; empty if it does."""
    wall = walls.get(name, {"standing": False, "detail": "nothing has raised it"})
    return "" if wall["standing"] else str(wall["detail"])
