"""Forking a session from another one: which process is copied, what the fork inherits, what it does not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from rlm_ipc.errors import CallerError, KernelBusy, KernelDied, ProcessError
from rlm_ipc.kernel_reports import ForkOrigin
from rlm_ipc.worker_protocol import Started, StartFork
from rlm_kernel.supervisor.cells.limits import private_memory
from rlm_kernel.supervisor.cells.request_queue import Operation
from rlm_kernel.supervisor.copies.kernel_processes import ANSWER_SECONDS, KernelProcesses
from rlm_kernel.supervisor.processes.fork_broker import ForkBroker
from rlm_kernel.supervisor.processes.patience import answered
from rlm_kernel.supervisor.processes.worker_link import ForkRefused, PeerDied, WorkerLink, heard
from rlm_kernel.supervisor.session import SupervisedSession

TRIES = 3


async def branch(parent: SupervisedSession, child: SupervisedSession) -> ForkOrigin:
    """Start ``child`` as a copy of ``parent``: from its process if it is idle, from its newest copy if a cell runs.

    While the very first cell runs, a fresh process is as good as a copy. The daemon has already compared the two
    policies. Raises `KernelBusy` (a cell runs, and there is no copy), `WallsMissing`, `KernelDied`, `ForkRefused`,
    CallerError or ProcessError; then nothing of the child is left.
    """
    if parent.cell is not None and parent.checkpoints.untouched:
        origin = ForkOrigin("checkpoint", 0)
        _bequeath(parent, child)
        await _start(child, child.processes.start_equipped, None)
    else:
        peer, cells, origin = await _copy_of(parent)
        child.watch.base = parent.watch.base
        child.checkpoints.cells = cells
        _bequeath(parent, child)
        dropped: list[str] = []
        await _start(child, partial(_begin, parent.processes, child, peer, dropped), peer)
        origin = replace(origin, dropped_modules=tuple(dropped))
    open_queries = tuple(child.queries.pending.values())
    await child.queue.operation(child.copying.secure)
    return replace(origin, queries=open_queries)


async def _start(child: SupervisedSession, begin: Operation, peer: WorkerLink | None) -> None:
    """Start the child by ``begin``; if that fails, its process ``peer`` ends with it."""
    try:
        await child.start(begin)
    except BaseException:
        if peer is not None:
            peer.drop()
        raise


def _bequeath(parent: SupervisedSession, child: SupervisedSession) -> None:
    """Give the child what the supervisor keeps for its parent: contexts, answers and open queries."""
    child.equipment.inherit(parent.equipment)
    # The running cell waits for these. The copy is from before that cell, so it has not asked them.
    waited = parent.wait.ids
    child.queries.inherit(parent.queries, waited)
    child.processes.number_queries_from(child.queries.next_number)


async def _copy_of(parent: SupervisedSession) -> tuple[WorkerLink, int, ForkOrigin]:
    """Return a sleeping process, how many cells it has completed, and where it comes from."""
    if parent.cell is None:
        peer = await _copy_of_live(parent)
        return (
            peer,
            parent.checkpoints.cells,
            ForkOrigin("live", 0, peer.handshake.threads, peer.handshake.tasks),
        )
    for _ in range(TRIES):
        copy = parent.checkpoints.newest
        if copy is None:
            break
        try:
            peer = await parent.processes.fork(copy.peer)
        except (PeerDied, TimeoutError):
            continue  # meanwhile a newer copy has replaced it, or it has taken over
        return peer, copy.cells, ForkOrigin("checkpoint", max(0, parent.checkpoints.cells - copy.cells))
    raise KernelBusy("the session runs a cell and has no checkpoint to fork from; wait for the cell, or interrupt it")


async def _copy_of_live(parent: SupervisedSession) -> WorkerLink:
    """Return a copy taken between two requests. It is dropped if the caller no longer waits when it is ready."""
    wanted = True

    async def work() -> WorkerLink:
        fork = await _fork_live(parent.processes)
        if not wanted:
            fork.drop()
        return fork

    copying = parent.queue.operation(work)
    try:
        peer: WorkerLink = await copying
    except asyncio.CancelledError:
        wanted = False
        if not copying.cancelled() and copying.done() and copying.exception() is None:
            copying.result().drop()
        raise
    return peer


async def _fork_live(processes: KernelProcesses) -> WorkerLink:
    try:
        return await processes.fork(processes.serving)
    except ForkRefused as refused:
        if not refused.threads:
            raise
    return await processes.fork(processes.serving, leave_threads=True)


async def _begin(parent: KernelProcesses, child: SupervisedSession, peer: WorkerLink, dropped: list[str]) -> None:
    """Make the sleeping ``peer`` the child's process; ``dropped`` collects the modules that its policy refuses."""
    processes = child.processes
    used, allowed = private_memory(peer.pid or 0) - child.watch.base, child.limits.memory_bytes
    if used > allowed:
        raise CallerError(
            f"the session holds {used:,} bytes, more than the new policy's limits.memory_bytes ({allowed:,}); "
            "delete variables first, or fork with a larger limit"
        )
    begun = peer.expect(Started.TAG)
    start = StartFork(processes.spec.policy, parent.walls.raised_by_kernel, processes.spec.query_base)
    peer.say(start, peer.new_tether())
    try:
        answer = await answered(begun, ANSWER_SECONDS, peer.pid)
    except (PeerDied, TimeoutError) as error:
        raise ProcessError("the session could not be forked: the copy ended before it was ready") from error
    peer.keep(peer.key)
    started = heard(Started, answer)
    # A copy inherits its parent's filter, whose gate the supervisor already holds. It ran user code before, so a
    # descriptor that it sends cannot be trusted to be a gate.
    if parent.gate is not None:
        answer.close()
        processes.use_gate(parent.gate.share(processes))
    elif answer.descriptors:
        processes.use_gate(ForkBroker(answer.descriptors[0], processes, peer.keeping))
    try:
        processes.walls.believe(started)
    except KernelDied as error:
        raise ProcessError(f"the session could not be forked: {error.reason}") from error
    processes.walls.demand()
    dropped += started.dropped_modules if started is not None else ()
    processes.lead(peer)
    await child.equipment.equip(peer)
