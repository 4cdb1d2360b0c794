"""One session in the supervisor, as its callers see it.

It assembles the parts that do the work: the `driver` takes requests from the `request_queue`, `request_runner` runs
them on a process of `kernel_processes`, and `recovery` continues after a death.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import zmq

from rlm_ipc import framing, worker_protocol, worker_requests
from rlm_ipc.errors import KernelBusy, SessionExpelled, UnknownKernel
from rlm_ipc.kernel_reports import CellResult, KernelInfo
from rlm_ipc.messages import Json
from rlm_ipc.outcomes import Ended, session_ended
from rlm_ipc.supervisor_protocol import CellEnded, Event, Execute, KernelEnded, Spawn
from rlm_kernel.supervisor.cells.cell_history import CellHistory
from rlm_kernel.supervisor.cells.cell_log import CellLog
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.limits import CellLimits, private_memory
from rlm_kernel.supervisor.cells.query_book import QueryBook
from rlm_kernel.supervisor.cells.request_queue import Operation, RequestQueue
from rlm_kernel.supervisor.copies.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints, runs_code
from rlm_kernel.supervisor.copies.equipment import BoundText, Equipment
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests, RawAnswer
from rlm_kernel.supervisor.copies.memory_watch import MemoryWatch
from rlm_kernel.supervisor.copies.recovery import Recovery
from rlm_kernel.supervisor.copies.rollback import Rollback
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.keeping.named_runs import NamedRuns
from rlm_kernel.supervisor.keeping.session_file import SessionFile
from rlm_kernel.supervisor.processes.patience import retrieved, within
from rlm_kernel.supervisor.processes.refusals import Refusals
from rlm_kernel.supervisor.processes.session_walls import SessionWalls
from rlm_kernel.supervisor.processes.worker_link import WorkerLink
from rlm_kernel.supervisor.relay.broadcaster import JupyterBroadcaster
from rlm_kernel.supervisor.relay.leaving import OWNER
from rlm_kernel.supervisor.relay.output_router import OutputRouter
from rlm_kernel.supervisor.running.answer_wait import AnswerWait
from rlm_kernel.supervisor.running.client_requests import ClientRequests
from rlm_kernel.supervisor.running.driver import Driver, GivenOut
from rlm_kernel.supervisor.running.kept_session import KeptSession, KeptSpec
from rlm_kernel.supervisor.running.kernel_messages import KernelMessages
from rlm_kernel.supervisor.running.request_runner import RequestRunner
from rlm_sandbox.policy.model import Policy

Emit = Callable[[str, Event], None]


class SupervisedSession:
    """A kernel to the outside: five sockets that stay, and processes behind them that may be replaced.

    ``spec`` says what its caller wants, and ``policy`` was read from it. ``connection`` is what its sockets are bound
    to, and ``kernel_info`` is the answer to a ``kernel_info_request``. ``emit(kernel_id, event)`` reports what happened
    (`rlm_ipc.supervisor_protocol.EVENTS`). ``scratch`` is the folder that its code may write. A session that an earlier
    supervisor has left (``was_left``) already has a ``file``.
    """

    def __init__(
        self,
        spec: Spawn,
        policy: Policy,
        connection: dict[str, Json],
        kernel_info: dict[str, Json],
        context: zmq.Context[Any],
        fresh_worker: Callable[[], Awaitable[WorkerLink]],
        spool: Path,
        emit: Emit,
        keeping: Keeping,
        file: SessionFile | None = None,
    ) -> None:
        self.spec, self.was_left = spec, file is not None
        self.request, self.scratch, self.emit = spec.request, Path(spec.scratch), emit
        kernel_id = self.kernel_id = spec.request.kernel_id
        report = self.report
        self.policy = policy
        limits = self.limits = policy.limits
        self.connection, self.kernel_info = connection, kernel_info
        self.queue = RequestQueue(kernel_id)
        self.front = JupyterBroadcaster(context, connection, self._from_client)
        self.cells = CellLog(lambda note: report(CellEnded(note)), keeping.next_serial)
        self.relay = OutputRouter(kernel_id, self.front, limits, spool, self.cells)
        self.queries = QueryBook(spec.request.query_base, limits.queries, (policy.llm.mode, *policy.llm.modes))
        self.refusals = Refusals(limits.refused_attempts, self.expel)
        self.history = CellHistory(limits.rollback_cells)
        self.checkpoints = Checkpoints(limits.rollback_cells)
        self.requests = KernelRequests(self.checkpoints, self._clock_of_request)
        self.equipment = Equipment(self.requests, self.queries.answers)
        start = worker_protocol.Start(
            policy=spec.policy,
            scratch=spec.scratch,
            workspace=spec.request.workspace,
            query_base=spec.request.query_base,
            protect=spec.protect,
        )
        self.processes = KernelProcesses(
            fresh_worker,
            start,
            SessionWalls(policy.walls.require),
            self.checkpoints,
            self.equipment,
            self.requests,
            self.refusals,
            self,
        )
        self.kept = KeptSession(keeping, file or SessionFile.new(), self.checkpoints)
        self.relay.file, self.relay.owner = self.kept.file, str(spec.request.label.get(OWNER, ""))
        self.named_runs = NamedRuns(self.kept.file)
        processes, checkpoints, queue, relay = self.processes, self.checkpoints, self.queue, self.relay
        self.watch = MemoryWatch(limits, self.scratch, processes, checkpoints, relay)
        self.wait = AnswerWait(policy.llm.wait_seconds, relay, self.queries, processes, report)
        self.copying = CheckpointTimer(policy.copying, processes, checkpoints, queue)
        self.recovery = Recovery(processes, checkpoints, self.history, self.copying, queue, relay, report)
        self.rollback = Rollback(
            processes,
            checkpoints,
            self.equipment,
            self.requests,
            self.history,
            self.queries,
            queue,
            self.copying,
            self.recovery,
        )
        self._messages = KernelMessages(relay, queue, self.queries, self.wait, processes, report)
        self.clients = ClientRequests(self.interrupt, self.shut_down, queue, processes, relay, self.wait)
        runner = RequestRunner(
            processes,
            checkpoints,
            self.equipment,
            self.copying,
            self.recovery,
            self.history,
            relay,
            self.wait,
            self.refusals,
            self.kept,
            self.note,
            report,
        )
        self._driver = Driver(queue, runner)

    def _clock_of_request(self, live: WorkerLink) -> CellLimits:
        return CellLimits(live, self.limits.cell_seconds, self.limits.interrupt_grace_seconds, "a request")

    # -- what its parts report

    def _from_client(self, channel: str, parts: list[bytes]) -> None:
        self.clients.take(channel, parts)

    def heard(self, link: WorkerLink, message: framing.Message) -> None:
        """Handle a message of one of its processes. Only the live one has anything to say."""
        if link is self.processes.live:
            self._messages.take(link, message)

    def died(self, link: WorkerLink) -> None:
        """Handle that one of its processes has died."""
        self.recovery.lost(link)

    # -- life

    async def start(self, first: Operation | None = None) -> None:
        """Get the first process, by ``first`` or a fresh one, and the sockets; nothing is left if that fails.

        Raises what ``first`` does, `WallsMissing`, `KernelDied`, or CallerError for an address that is taken.
        """
        beginning = asyncio.ensure_future((first or self.processes.start)())
        beginning.add_done_callback(retrieved)
        try:
            await asyncio.sleep(0)  # the process raises its walls while the sockets are bound
            self.front.sockets.bind()
            await beginning
        except BaseException:
            beginning.cancel()
            await asyncio.wait({beginning})
            self.processes.drop_all()
            self.front.close()
            raise
        if not self.watch.base:  # a fork counts from where its parent does
            self.watch.base = private_memory(self.processes.live.pid or 0) if self.processes.live else 0
        self.note()
        self.kept.enter(
            self.kernel_id, KeptSpec(self.spec, self.connection, self.kernel_info), self.front.sockets.listeners
        )
        self._driver.start()

    def take_over(self, listeners: tuple[int, ...], going_on: GivenOut | None) -> None:
        """Continue where another supervisor stopped; everything else about the session is known already."""
        self.front.take_over(listeners)
        live = self.processes.serving
        if not live.dead:
            live.serve()
        if going_on is not None:
            live.report_to(self)
            if going_on.request.direct is not None:
                self.named_runs.enter(str(going_on.request.run), going_on.request.direct)
        else:
            self.queue.operation(self._settle).add_done_callback(retrieved)
        self._driver.start(going_on)

    async def _settle(self) -> None:
        await self.processes.hear_out()
        self.copying.later()

    def note(self) -> None:
        """Record what another supervisor would need."""
        self.kept.note(self)

    def report(self, event: Event) -> None:
        """Tell its callers what has happened."""
        self.emit(self.kernel_id, event)

    def expel(self, reason: str) -> None:
        """End the session because of what its code has tried. Everyone who waits for it gets the reason."""
        error = SessionExpelled(reason)
        if self.relay.current is not None and not self.closed:
            self.relay.fail(self.relay.current, Ended.EXPELLED, str(error))
        self.close(error)

    def close(self, error: SessionExpelled | None = None) -> None:
        """End the session: its processes, sockets, pins and waiting callers, who get ``error``."""
        if self.closed:
            return
        if self.relay.limits is not None:
            self.relay.limits.end()
        self.copying.cancel()
        self._driver.cancel()
        self.queue.close(error or UnknownKernel(self.kernel_id))
        self.processes.close()
        self.front.close("" if error is None else session_ended(error.reason))
        self.queries.forget()
        self.kept.close(self.kernel_id)
        self.relay.file = None
        self.report(KernelEnded("" if error is None else error.reason))

    def shut_down(self) -> None:
        """End the session for a Jupyter client, if one started it; a moment later, so that the reply leaves."""
        if self.request.owned:
            asyncio.get_running_loop().call_later(0.05, self.close)

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.queue.closed

    @property
    def memory_bytes(self) -> int:
        """The memory that its code uses, as ``limits.memory_bytes`` counts it."""
        live = self.processes.live
        return max(0, private_memory(live.pid) - self.watch.base) if live and live.pid else 0

    def info(self) -> KernelInfo:
        """What callers of the supervisor see of this kernel."""
        live, newest, undoable = self.processes.live, self.checkpoints.newest, self.rollback.possible
        return KernelInfo(
            kernel_id=self.kernel_id,
            pid=live.pid if live else None,
            connection=self.connection,
            connection_file=self.request.connection_file,
            scratch=str(self.scratch),
            walls=dict(self.processes.walls.states),
            policy=self.policy.name,
            state="busy" if self.relay.busy_since is not None else "idle",
            contexts={name: text.revision for name, text in sorted(self.equipment.contexts.items())},
            shadowed=tuple(sorted(self.equipment.shadowed)),
            label=self.request.label,
            memory_bytes=self.memory_bytes,
            checkpoint=newest is not None and newest.peer.pid is not None,
            uncopied=self.checkpoints.uncopied,
            untouched=self.checkpoints.untouched,
            undoable=tuple(undoable),
            latest=tuple(self.history.latest(max(undoable, default=0))),
            last_used=self.queue.last_used,
            waiting=self.wait.ids,
            attachments=tuple(attachment.name for attachment in self.front.attachments.values()),
            refused=self.refusals.info(),
            anew_at=self.processes.anew_at,
            lost=self.recovery.cells_untold,
        )

    # -- requests

    @property
    def cell(self) -> CellRequest | None:
        """The cell that runs, otherwise the next one."""
        return self.queue.cell

    def runs(self, run: object) -> bool:
        """Whether a request of that name runs now."""
        return self.relay.current is not None and self.relay.current.run == run

    def execute(self, call: Execute, run: str) -> asyncio.Future[CellResult]:
        """Queue a cell, which its caller names ``run``; the future gets its result (see `direct_result`).

        A run with a known name does not start again: a caller that asked an earlier supervisor repeats its call.
        """
        if (known := self.named_runs.of(run)) is not None:
            return known
        future: asyncio.Future[CellResult] = asyncio.get_running_loop().create_future()
        self.named_runs.enter(run, future)
        may_begin = self.named_runs.condition(call.after)
        request = CellRequest.of_caller(call.code, call.store_history, future, run, may_begin, call.attachment)
        self.queue.enqueue(request)
        return future

    def interrupt(self, escalate: bool = False) -> bool:
        """Interrupt what runs, otherwise the next cell; ``escalate`` also kills. Return False if there is none."""
        cell, limits = self.queue.cell, self.relay.limits
        if cell is not None and cell is not self.relay.current:
            cell.withdrawn, cell.interrupted = escalate or cell.withdrawn, True
        if limits is not None and escalate:
            limits.stop(Ended.INTERRUPTED, "the cell was interrupted")
        elif limits is not None:
            limits.interrupt()
        return cell is not None or limits is not None

    def stop(self, run: object) -> bool:
        """End the cell of that name, whether it is queued, about to start or running. Return False if it has ended."""
        if self.runs(run):
            return self.interrupt(escalate=True)
        return self.queue.withdraw(run)

    # -- work between requests

    async def ask(
        self, request: worker_requests.Request[Any], wait_seconds: float | None, file: int | None = None
    ) -> RawAnswer:
        """Send a request in order with cells; `KernelBusy` after ``wait_seconds``. The caller keeps ``file``."""
        began = asyncio.Event()

        async def work() -> RawAnswer:
            began.set()
            if isinstance(request, worker_requests.Restore) and file is not None:
                answer = await self.processes.restore(request, file)
            else:
                answer = await self.requests.ask(self.processes.serving, request)
            if runs_code(request):  # no copy has its changes yet
                await self.copying.secure()
            return answer

        at_once = self.queue.rests and self.processes.alive
        future = self.queue.operation(work)
        if wait_seconds is not None and not at_once and not await within(began, future, wait_seconds):
            future.cancel()
            raise KernelBusy("the session runs a cell; wait for it, interrupt it, or try again later")
        result: RawAnswer = await future
        return result

    async def bind(self, name: str, shared_text: BoundText) -> None:
        """Bind a context to a global, now and in every process that takes over; the caller keeps ``shared_text``."""
        await self.queue.operation(lambda: self.equipment.bind(self.processes.serving, name, shared_text.shared()))
        self.copying.later()

    async def unbind(self, name: str) -> None:
        """Unbind a context and give up its pin."""
        await self.queue.operation(lambda: self.equipment.unbind(self.processes.serving, name))
        self.copying.later()

    async def resolve(self, news: worker_requests.Resolve) -> list[str]:
        """Give a session news about its queries, at once if its cell waits for some. Return the ids that it knows."""
        waited = [name for name in news.answers if name in self.queries.pending]
        self.queries.resolve(news.answers)
        if self.wait.ids:
            self.note()
            self.wait.answer(worker_protocol.Resolved(news.answers, news.used, news.refused))
            return waited
        known: worker_requests.KnownQueries = await self.queue.operation(
            lambda: self.requests.ask_for(self.processes.serving, news, worker_requests.KnownQueries())
        )
        self.copying.later()
        return list(known.known)

    async def restart(self) -> None:
        """Restart with a fresh process: contexts stay, variables are lost."""

        async def work() -> None:
            await self.processes.renew()
            self.recovery.began_anew()
            await self.equipment.equip(self.processes.serving)

        if self.relay.current is not None:
            self.interrupt(escalate=True)
        await self.queue.operation(work)
