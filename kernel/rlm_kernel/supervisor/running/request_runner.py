"""How one request of a session runs: on which process, within which limits, and what happens when that one dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from rlm_ipc import framing, worker_protocol
from rlm_ipc import processes as process
from rlm_ipc.errors import KernelError
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.outcomes import Ended
from rlm_ipc.supervisor_protocol import AnswersAssigned, Event
from rlm_kernel.supervisor.cells.cell_history import CellHistory
from rlm_kernel.supervisor.cells.cell_request import EXECUTE, CellRequest
from rlm_kernel.supervisor.cells.limits import CellLimits
from rlm_kernel.supervisor.cells.query_book import given_in
from rlm_kernel.supervisor.copies.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.copies.equipment import Equipment
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.copies.recovery import ALL_LOST, Recovery
from rlm_kernel.supervisor.keeping.named_runs import answer_again
from rlm_kernel.supervisor.processes import oom_victims
from rlm_kernel.supervisor.processes.patience import retrieved
from rlm_kernel.supervisor.processes.refusals import Refusals
from rlm_kernel.supervisor.processes.worker_link import PeerDied, WorkerLink, heard
from rlm_kernel.supervisor.relay.output_router import OutputRouter, TakenOver
from rlm_kernel.supervisor.running.answer_wait import AnswerWait
from rlm_kernel.supervisor.running.kept_session import KeptSession

ANSWERED_WITHOUT_CODE = ("is_complete_request", "history_request", "comm_info_request", "kernel_info_request")
"""Requests of Jupyter clients that run no code of the session.

All others may run some: cells, completions and inspections without the language wall, and messages to a comm.
"""

_EVERYTHING = 1 << 62
"""More messages than any request has."""


@dataclass(frozen=True, slots=True)
class RequestRunner:
    """Runs the requests of one session, one at a time. ``report`` tells callers what else a cell has done.

    ``note`` records everything that another supervisor would need; ``kept`` records the request itself.
    """

    processes: KernelProcesses
    checkpoints: Checkpoints
    equipment: Equipment
    copying: CheckpointTimer
    recovery: Recovery
    history: CellHistory
    relay: OutputRouter
    wait: AnswerWait
    refusals: Refusals
    kept: KeptSession
    note: Callable[[], None]
    report: Callable[[Event], None]

    async def run(self, request: CellRequest) -> None:
        """Run a request, or answer why it does not start."""
        if request.may_begin is not None and not request.may_begin():
            self.relay.skip(request)
            return
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
            self.kept.failed(request)
        elif request.withdrawn:
            self.relay.fail(request, Ended.INTERRUPTED, "the cell was interrupted before it began")
        else:
            await self._run_on(self.processes.serving, request, is_cell)

    async def _run_on(self, live: WorkerLink, request: CellRequest, is_cell: bool) -> None:
        limits = self.relay.begin(request, live, hold=self._is_strict(request))
        serial = self.kept.begin(request, self.relay.busy_since or 0.0)
        ended = live.expect(worker_protocol.CellDone.TAG)
        self._send(live, request, serial)
        await self._follow(live, request, limits, ended, serial)

    def _send(self, live: WorkerLink, request: CellRequest, serial: int) -> None:
        if request.interrupted:
            live.send(worker_protocol.INTERRUPT)
        if request.cell is not None:
            cell = request.cell
            live.say(worker_protocol.RunCell(cell.code, cell.store_history, self.relay.front.watched, serial))
        else:
            live.send(request.tag, (*request.parts, serial.to_bytes(8)))

    def _is_strict(self, request: CellRequest) -> bool:
        return request.kind not in ANSWERED_WITHOUT_CODE and self.copying.mode == "strict"

    async def go_on(self, request: CellRequest, serial: int, *, answered: bool) -> None:
        """Continue a request that another supervisor sent out; one that has not arrived is run.

        The live process repeats what it has said since then, as soon as it notices the end of its line. A request that
        was ``answered`` already changes nothing: its caller may not have received the answer.
        """
        completed = self.kept.counted == serial
        if answered:
            await self._answer_again(request, serial)
            return
        if self.processes.serving.dead and completed:
            completed = not self._uncount(request, serial)
            if completed and not await self._resumed_with(request):
                return
        live, file = self.processes.serving, self.kept.file
        began, since = file.times
        taken_over = TakenOver(began, time.monotonic() - since, file.published)
        limits = self.relay.begin(request, live, self._is_strict(request), taken_over)
        ended = live.expect(worker_protocol.CellDone.TAG)
        ended.add_done_callback(retrieved)
        try:
            report = heard(worker_protocol.Report, await live.expect(worker_protocol.Report.TAG))
        except PeerDied:
            report = None
        if report is not None and report.serial != serial:
            limits.end()
            self.relay.end()
            ended.cancel()
            with suppress(PeerDied):  # whatever is next continues from a copy
                await self.processes.hear_out()
            await (self._unknown(request) if completed else self.run(_anew(request)))
            return
        if report is not None and report.unsaid and request.output is not None:
            request.output.miss(report.unsaid)
        await self._follow(live, request, limits, ended, serial, completed=completed)

    async def _resumed_with(self, request: CellRequest) -> bool:
        """Continue from a copy that was taken after the request and knows its answer. Return False if there is none."""
        if (await self.recovery.recover()).nothing:
            self.processes.serving.send(worker_protocol.SAY_AGAIN)
            return True
        reason, loss = self.recovery.take_untold() or ("the kernel ended", ALL_LOST)
        self.relay.fail(request, Ended.WORKER_DIED, reason, loss)
        self.kept.failed(request)
        return False

    async def _answer_again(self, request: CellRequest, serial: int) -> None:
        """Recreate the answer that another supervisor has given. A loss since then is reported by the next cell."""
        try:
            if self.processes.serving.dead:
                if not (await self.recovery.recover()).nothing:
                    return
                self.processes.serving.send(worker_protocol.SAY_AGAIN)
            live = self.processes.serving
            limits = self.relay.begin(request, live, False, TakenOver(self.kept.file.times[0], 0.0, _EVERYTHING))
            ended = live.expect(worker_protocol.CellDone.TAG)
            ended.add_done_callback(retrieved)
            try:
                report = heard(worker_protocol.Report, await live.expect(worker_protocol.Report.TAG))
                if report is not None and report.serial == serial:
                    done = heard(worker_protocol.CellDone, await ended) or worker_protocol.CellDone()
                    self.relay.succeed(request, done, limits)
            finally:
                ended.cancel()
                self.wait.end()
                limits.end()
                self.relay.end()
            await self.processes.hear_out()
        except PeerDied:
            await self.recovery.recover()
        finally:
            await self._unknown(request)

    async def _unknown(self, request: CellRequest) -> None:
        """Answer a request that was answered before with what is known of its answer."""
        if request.direct is not None and not request.direct.done():
            answer_again(request.direct, request.run, self.kept.file)
            retrieved(request.direct)

    async def _follow(
        self,
        live: WorkerLink,
        request: CellRequest,
        limits: CellLimits,
        ended: asyncio.Future[framing.Message],
        serial: int,
        *,
        completed: bool = False,
    ) -> None:
        runs_code, is_cell = request.kind not in ANSWERED_WITHOUT_CODE, request.kind == EXECUTE
        if preferred := self.checkpoints.covered:  # then only this cell is lost, and its memory is free again
            oom_victims.prefer(live.pid, oom_victims.RUNS_A_COPIED_CELL)
        try:
            done = heard(worker_protocol.CellDone, await ended) or worker_protocol.CellDone()
            limits.end()
            if preferred:
                oom_victims.prefer(live.pid, oom_victims.LIVE)
            if not completed:
                self.refusals.told(done.refused)
            # The cell counts before the copy is taken, so that the copy represents the session with this cell. If the
            # process dies in between, the cell is lost and reported as lost: its reply is still held.
            self._finish(request, done, is_cell, completed)
            self.kept.counted = serial
            if runs_code and not is_cell:
                self.checkpoints.changed()
            if self._is_strict(request):
                await self.copying.now()
            elif runs_code and self.copying.mode == "lazy":
                await self.copying.look()
            elif is_cell:  # without copies a crash loses the effects of cells
                self.checkpoints.keep_images(up_to=0)
            request.uncopied = self.checkpoints.uncopied
            self.note()
            request.noted = True
            self.relay.succeed(request, done, limits)
        except PeerDied:
            limits.end()
            self._uncount(request, serial)
            await self._answer_for_dead(live, request, limits)
        finally:
            self.wait.end()
            limits.end()
            self.relay.end()
            self.kept.file.answered(serial)
        if runs_code:
            self.copying.later()

    def _uncount(self, request: CellRequest, serial: int) -> bool:
        """Undo the count of a cell whose process died without leaving a copy that contains it.

        Return whether it was undone.
        """
        if request.kind != EXECUTE or self.kept.counted != serial or self.checkpoints.covered:
            return False
        self.checkpoints.cells -= 1  # only it is undone, and no completed cell with it
        self.kept.counted = 0
        return True

    def _finish(self, request: CellRequest, done: worker_protocol.CellDone, is_cell: bool, completed: bool) -> None:
        if is_cell and not completed:
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
        self.kept.failed(request)


def _anew(request: CellRequest) -> CellRequest:
    """Return the request without what was collected meanwhile, which was not its own."""
    return CellRequest.of_kept(request.kept(), request.direct or asyncio.get_running_loop().create_future())
