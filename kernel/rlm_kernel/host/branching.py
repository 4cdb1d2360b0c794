"""One session forked from another: which process it is copied from, what it takes along, what it leaves behind."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from rlm_kernel import tags, wire
from rlm_kernel.errors import CallerError, KernelBusy, KernelDied, PolicyLooser, ProcessError
from rlm_kernel.host.gate import Gate
from rlm_kernel.host.images import ANSWER_SECONDS, Cell, Images
from rlm_kernel.host.limits import private_memory
from rlm_kernel.host.peer import ForkRefused, Peer, PeerDied, answered, load, texts
from rlm_kernel.host.session import KernelSession

TRIES = 3
IN_PROCESS = ("language", "audit")
"""Walls that a process raises in itself: they teach, and are no boundary."""


@dataclass(slots=True)
class Origin:
    """Where a forked session comes from.

    ``source`` is ``live`` (the parent was idle) or ``checkpoint`` (it ran a cell; the copy is ``cells_behind``
    completed cells old). ``threads`` and ``tasks`` (how many) of the parent do not run in the child.
    ``dropped_modules`` are globals that the child's policy does not admit, ``queries`` those pending in the parent:
    in the child they wait for an answer of their own.
    """

    source: str
    cells_behind: int
    threads: list[str] = field(default_factory=list)
    tasks: int = 0
    dropped_modules: list[str] = field(default_factory=list)
    queries: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def refuse_looser(policy: str, parent: str, *, but_language: bool = False) -> None:
    """Raise `PolicyLooser` if a session under ``policy`` could do more than its parent; both as JSON.

    With ``but_language`` the wall within the process does not count: those of the system have to be as they are.
    """
    from rlm_sandbox.policy import Policy, loosened

    wanted, given = Policy.model_validate_json(policy), Policy.model_validate_json(parent)
    if but_language:
        outside = tuple(wall for wall in given.walls.require if wall not in IN_PROCESS)
        walls = given.walls.model_copy(update={"require": outside})
        given = given.model_copy(update={"language": wanted.language, "walls": walls})
    fields = loosened(wanted, given)
    if fields:
        raise PolicyLooser(wanted.name, given.name, [f"{name}: {what}" for name, what in fields.items()])


async def branch(parent: KernelSession, child: KernelSession) -> Origin:
    """Start ``child`` as a copy of ``parent``: from its process if it is idle, from its newest copy if a cell runs.

    While the very first cell runs, a fresh process is as good as a copy. That the child's policy is not looser the
    caller has seen to (`refuse_looser`). Raises `KernelBusy` (a cell runs, and there is no copy), `WallsMissing`,
    `KernelDied`, `ForkRefused`, CallerError or ProcessError; then nothing of it is left.
    """
    if parent.cell is not None and parent.images.untouched:
        origin = Origin("checkpoint", 0)
        _bequeath(parent, child, origin)
        begin, peer = child.images.start_equipped, None
    else:
        peer, cells, repeat, origin = await _copy_of(parent)
        child.memory_base = parent.memory_base
        child.images.cells = cells + len(repeat)
        _bequeath(parent, child, origin)
        begin = partial(_begin, parent.images, child, peer, repeat, origin)
    try:
        await child.start(begin)
    except BaseException:
        if peer is not None:
            peer.drop()
        child.images.close()
        raise
    await child.operation(child.secure)
    return origin


def _bequeath(parent: KernelSession, child: KernelSession, origin: Origin) -> None:
    """Give the child what the host keeps for its parent: contexts, answers and open queries."""
    images = child.images
    images.serial = parent.images.serial
    images.contexts = {name: attachment.shared() for name, attachment in parent.images.contexts.items()}
    waited = parent.round.open if parent.round is not None else ()  # by a cell that the copy has not begun
    child.queries.inherit(parent.queries, waited)
    images.spec["query_base"] = child.queries.next_number
    origin.queries = list(child.queries.pending.values())


async def _copy_of(parent: KernelSession) -> tuple[Peer, int, list[Cell], Origin]:
    """A sleeping process, how many cells it has completed, those that it shall repeat, and where it comes from."""
    if parent.cell is None:
        peer = await _copy_of_live(parent)
        return peer, parent.images.cells, [], Origin("live", 0, texts(peer.hello.get("threads")), _tasks(peer))
    for _ in range(TRIES):
        copy = parent.images.newest
        if copy is None:
            break
        repeat = list(copy.redo)
        try:
            peer = await parent.images.fork(copy.peer)
        except (PeerDied, TimeoutError):
            continue  # a newer copy has taken its place meanwhile, or it has woken up
        behind = parent.images.cells - copy.cells - len(repeat)
        return peer, copy.cells, repeat, Origin("checkpoint", max(0, behind))
    raise KernelBusy("the session runs a cell and has no checkpoint to fork from; wait for the cell, or interrupt it")


async def _copy_of_live(parent: KernelSession) -> Peer:
    """A copy made between two requests; none when its caller does not wait for it any more."""
    wanted = True

    async def work() -> Peer:
        made = await _fork_live(parent.images)
        if not wanted:
            made.drop()
        return made

    copying = parent.operation(work)
    try:
        peer: Peer = await copying
    except asyncio.CancelledError:
        wanted = False
        if not copying.cancelled() and copying.done() and copying.exception() is None:
            copying.result().drop()
        raise
    return peer


async def _fork_live(images: Images) -> Peer:
    assert images.live is not None
    try:
        return await images.fork(images.live)
    except ForkRefused as refused:
        if not refused.threads:
            raise
    return await images.fork(images.live, leave_threads=True)


def _tasks(peer: Peer) -> int:
    tasks = peer.hello.get("tasks")
    return tasks if isinstance(tasks, int) else 0


async def _begin(parent: Images, child: KernelSession, peer: Peer, repeat: list[Cell], origin: Origin) -> None:
    """Make the sleeping ``peer`` the child's process."""
    images = child.images
    held, allowed = private_memory(peer.pid or 0) - child.memory_base, child.limits.memory_bytes
    if held > allowed:
        raise CallerError(f"the session holds {held:,} bytes, over limits.memory_bytes ({allowed:,}) of the new policy")
    begun = peer.expect(tags.BEGUN)
    walls = {name: wall for name, wall in parent.walls.items() if name != "monitor"}
    spec = {"policy": images.spec["policy"], "walls": walls, "repeat": repeat}
    peer.send(tags.BRANCH, (wire.json_frame(spec),))
    try:
        answer = await answered(begun, ANSWER_SECONDS, peer.pid)
    except (PeerDied, TimeoutError) as error:
        raise ProcessError("the session could not be forked: the copy ended before it was ready") from error
    content = load(answer)
    # A copy has its parent's gate. What it sends in place of that is none.
    if parent.gate is not None:
        answer.close()
        images.use_gate(parent.gate.share(images))
    elif answer.descriptors:
        images.use_gate(Gate(answer.descriptors[0], images))
    try:
        images.believe_walls(content)
    except KernelDied as error:
        raise ProcessError(f"the session could not be forked: {error.lost}") from error
    images.demand_walls()
    origin.dropped_modules = texts(content.get("dropped_modules"))
    images.lead(peer)
    await images.equip()
