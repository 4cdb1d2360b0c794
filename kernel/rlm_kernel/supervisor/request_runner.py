"""How one request of a session runs: on which process, within which limits, and what follows when that one dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlm_ipc import processes as process
from rlm_ipc import worker_protocol
from rlm_ipc.errors import KernelError
from rlm_ipc.outcomes import Ended
from rlm_ipc.supervisor_protocol import AnswersAssigned, Event
from rlm_kernel.supervisor import oom_victims
from rlm_kernel.supervisor.answer_wait import AnswerWait
from rlm_kernel.supervisor.cell_history import CellHistory
from rlm_kernel.supervisor.cell_request import EXECUTE, CellRequest
from rlm_kernel.supervisor.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.checkpoints import Checkpoints
from rlm_kernel.supervisor.equipment import Equipment
from rlm_kernel.supervisor.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.limits import CellLimits
from rlm_kernel.supervisor.output_router import OutputRouter
from rlm_kernel.supervisor.query_book import given_in
from rlm_kernel.supervisor.recovery import ALL_LOST, Recovery
from rlm_kernel.supervisor.refusals import Refusals
from rlm_kernel.supervisor.worker_link import PeerDied, WorkerLink, heard

ANSWERED_WITHOUT_CODE = ("is_complete_request", "history_request", "comm_info_request", "kernel_info_request")
"""Requests of Jupyter clients that run no code of the session, which every other may: the cell, but also a completion
or an inspection without the language wall, and a message to a comm."""


@dataclass(frozen=True, slots=True)
class RequestRunner:
    """Runs the requests of one session, one at a time. ``report`` tells callers what a cell has done besides."""

    processes: KernelProcesses
    checkpoints: Checkpoints
    equipment: Equipment
    copying: CheckpointTimer
    recovery: Recovery
    history: CellHistory
    relay: OutputRouter
    wait: AnswerWait
    refusals: Refusals
    report: Callable[[Event], None]

    async def run(self, request: CellRequest) -> None:
        """Run a request, or answer why it does not begin."""
        is_cell = request.kind == EXECUTE
        try:
            if not self.processes.alive:
                await self.recovery.recover()
            if is_cell and self.copying.due():
                await self.recovery.copy()
        except KernelError as error:
            self.relay.fail(request, Ended.WORKER_DIED, f"no kernel could be started: {error}", ALL_LOST)
            return
        if is_cell and (untold := self.recovery.take_untold()) is not None:
            reason, loss = untold
            self.relay.fail(request, Ended.WORKER_DIED, reason, loss)
        elif request.withdrawn:
            self.relay.fail(request, Ended.INTERRUPTED, "the cell was interrupted before it began")
        else:
            await self._run_on(self.processes.serving, request, is_cell)

    async def _run_on(self, live: WorkerLink, request: CellRequest, is_cell: bool) -> None:
        runs_code = request.kind not in ANSWERED_WITHOUT_CODE
        strict = runs_code and self.copying.mode == "strict"
        limits = self.relay.begin(request, live, hold=strict)
        ended = live.expect(worker_protocol.CellDone.TAG)
        _send(live, request)
        if preferred := self.checkpoints.covered:  # only this cell is lost then, and its memory is free again
            oom_victims.prefer(live.pid, oom_victims.RUNS_A_COPIED_CELL)
        try:
            done = heard(worker_protocol.CellDone, await ended) or worker_protocol.CellDone()
            limits.end()
            if preferred:
                oom_victims.prefer(live.pid, oom_victims.LIVE)
            self.refusals.told(done.refused)
            # The cell counts before the copy is taken, so that the copy stands for the session with this cell. A death
            # of the process in between loses the cell and tells so: its reply is still held.
            self._finish(request, done, is_cell)
            if runs_code and not is_cell:
                self.checkpoints.changed()
            if strict:
                await self.copying.now()
            elif runs_code and self.copying.mode == "lazy":
                await self.copying.look()
            request.uncopied = self.checkpoints.uncopied
            self.relay.succeed(request, done, limits)
        except PeerDied:
            limits.end()
            await self._answer_for_dead(live, request, limits)
        finally:
            self.wait.end()
            limits.end()
            self.relay.end()
        if runs_code:
            self.copying.later()

    def _finish(self, request: CellRequest, done: worker_protocol.CellDone, is_cell: bool) -> None:
        if is_cell:
            self.checkpoints.cells += 1
            self.history.note(self.checkpoints.cells, request, done.defined)
        told = request.direct is not None
        request.shadowed, request.returned = self.equipment.note_shadowed(done.shadowed, done.returned, told=told)
        if not told and (given := given_in(done.given)):
            self.report(AnswersAssigned(given))

    async def _answer_for_dead(self, live: WorkerLink, request: CellRequest, limits: CellLimits) -> None:
        self.relay.forget_held()
        if live.status == process.EXIT_MEMORY:
            allowed = self.relay.policy_limits.memory_bytes
            limits.blame(Ended.MEMORY_LIMIT, f"the kernel used up its {allowed:,} bytes of memory")
        reason, loss = await self.recovery.explain(limits)
        self.relay.fail(request, limits.ended or Ended.WORKER_DIED, reason, loss)


def _send(live: WorkerLink, request: CellRequest) -> None:
    if request.interrupted:
        live.send(worker_protocol.INTERRUPT)
    if request.cell is not None:
        live.say(request.cell)
    else:
        live.send(request.tag, tuple(request.parts))
