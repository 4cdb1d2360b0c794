"""One session in the supervisor: its queue, the driver that works through it, and what happens when a kernel dies.

One driver task does requests, copies and recoveries strictly one after the other; everything else only appends to the
queue. That makes recovery simple: while a request is in flight, nothing else touches the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import zmq

from rlm_ipc import framing, processes, worker_protocol, worker_requests
from rlm_ipc.errors import KernelBusy, KernelDied, KernelError, SessionExpelled, UnknownKernel
from rlm_ipc.kernel_reports import CellResult, KernelInfo
from rlm_ipc.messages import Json, JsonObject
from rlm_ipc.outcomes import Ended, Loss, Lost
from rlm_ipc.supervisor_protocol import (
    AnswersAssigned,
    CellEnded,
    Event,
    KernelEnded,
    QueriesAsked,
    Recovered,
    Spawn,
)
from rlm_kernel.supervisor.answer_wait import AnswerWait
from rlm_kernel.supervisor.broadcaster import JupyterBroadcaster
from rlm_kernel.supervisor.cell_log import CellLog
from rlm_kernel.supervisor.cell_request import EXECUTE, CellRequest
from rlm_kernel.supervisor.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.checkpoints import BoundText, Checkpoints, cause_of_death
from rlm_kernel.supervisor.limits import CellLimits, private_memory
from rlm_kernel.supervisor.memory_watch import MemoryWatch
from rlm_kernel.supervisor.output_router import CHANNELS, OutputRouter
from rlm_kernel.supervisor.query_book import FULL, QueryBook, at_once, given_in
from rlm_kernel.supervisor.refusals import Refusals
from rlm_kernel.supervisor.rollback import History
from rlm_kernel.supervisor.session_policy import read_policy
from rlm_kernel.supervisor.worker_link import PeerDied, WorkerLink, heard, retrieved, within

MAX_QUEUE = 1000
_QUEUE_FULL = f"{MAX_QUEUE} requests wait for this session already; wait until some are done"
_ALL_LOST = Loss(Lost.EVERYTHING)

log = logging.getLogger(__name__)

Emit = Callable[[str, Event], None]
Operation = Callable[[], Awaitable[Any]]


class SupervisedSession:
    """A kernel to the outside: five sockets that stay, and processes behind them that may be replaced.

    ``spec`` says what its caller wants; ``connection`` is what its sockets are bound to, and ``kernel_info`` what a
    ``kernel_info_request`` is answered. ``emit(kernel_id, event)`` reports what happened
    (`rlm_ipc.supervisor_protocol.EVENTS`). ``scratch`` is the folder that its code may write.
    """

    def __init__(
        self,
        spec: Spawn,
        connection: dict[str, Json],
        kernel_info: dict[str, Json],
        context: zmq.Context[Any],
        fresh_worker: Callable[[], Awaitable[WorkerLink]],
        spool: Path,
        emit: Emit,
    ) -> None:
        self.request, self.scratch, self.emit = spec.request, Path(spec.scratch), emit
        kernel_id = self.kernel_id = spec.request.kernel_id
        self.policy = read_policy(spec.policy)
        self.limits = self.policy.limits
        self.connection, self.kernel_info = connection, kernel_info
        self.front = JupyterBroadcaster(context, connection, self.from_client)
        self.cells = CellLog(lambda note: emit(kernel_id, CellEnded(note)))
        self.relay = OutputRouter(kernel_id, self.front, self.limits, spool, self.cells)
        told = spec.request.workspace, spec.request.query_base, spec.protect
        start = worker_protocol.Start(spec.policy, spec.scratch, *told)
        self.refusals = Refusals(self.limits.refused_attempts, self.expel)
        callbacks = self._died, self._from_kernel, self._limits_of_request
        self.checkpoints = Checkpoints(fresh_worker, start, self.policy.walls.require, *callbacks, self.refusals)
        self.checkpoints.undoable = self.limits.rollback_cells
        self.history = History(self.limits.rollback_cells)
        llm = self.policy.llm
        self.queries = QueryBook(spec.request.query_base, self.limits.queries, (llm.mode, *llm.modes))
        self.checkpoints.answers = self.queries.answers
        self.wait = AnswerWait(self)
        self.closed, self.last_used = False, time.time()
        self._queue: deque[CellRequest | tuple[Operation, asyncio.Future[Any]]] = deque()
        self._taken: CellRequest | tuple[Operation, asyncio.Future[Any]] | None = None
        self._resume = asyncio.Event()
        self.copying = CheckpointTimer(self)
        self._untold: tuple[str, Loss] | None = None
        """A loss between two cells: the next cell fails with it instead of running on variables that are gone."""
        self.memory_base = 0
        self.watch = MemoryWatch(self)
        self._driver: asyncio.Task[None] | None = None

    # -- life

    async def start(self, first: Operation | None = None) -> None:
        """Get the first process, by ``first`` or a fresh one, and the sockets; nothing is left when that fails.

        Raises what ``first`` does, `WallsMissing`, `KernelDied`, or CallerError for an address that is taken.
        """
        beginning = asyncio.ensure_future((first or self.checkpoints.start)())
        beginning.add_done_callback(retrieved)
        try:
            await asyncio.sleep(0)  # the process raises its walls while the sockets are bound
            self.front.sockets.bind()
            await beginning
        except BaseException:
            beginning.cancel()
            await asyncio.wait({beginning})
            self.checkpoints.drop_all()
            self.front.close()
            raise
        if not self.memory_base:  # a copy counts from where its parent does
            self.memory_base = private_memory(self.checkpoints.live.pid or 0) if self.checkpoints.live else 0
        self._driver = asyncio.create_task(self._drive())

    def expel(self, reason: str) -> None:
        """End the session for what its code has tried. Everybody who waits for it gets the reason."""
        error = SessionExpelled(reason)
        if self.relay.current is not None and not self.closed:
            self.relay.fail(self.relay.current, Ended.EXPELLED, str(error))
        self.close(error)

    def close(self, error: SessionExpelled | None = None) -> None:
        """End the session: its processes, sockets, pins and waiting callers, who get ``error``."""
        if self.closed:
            return
        self.closed = True
        if self.relay.limits is not None:
            self.relay.limits.end()
        self.copying.cancel()
        if self._driver is not None:
            self._driver.cancel()
        self._fail_waiting(error or UnknownKernel(self.kernel_id))
        self.checkpoints.close()
        self.front.close()
        self.queries.forget()
        self.emit(self.kernel_id, KernelEnded("" if error is None else error.reason))

    def _fail_waiting(self, error: KernelError) -> None:
        items = [*([self._taken] if self._taken is not None else []), *self._queue]
        waiting = [item.direct if isinstance(item, CellRequest) else item[1] for item in items]
        self._queue.clear()
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)

    def info(self) -> KernelInfo:
        """What callers of the supervisor see of this kernel."""
        live = self.checkpoints.live
        return KernelInfo(
            kernel_id=self.kernel_id,
            pid=live.pid if live else None,
            connection=self.connection,
            connection_file=self.request.connection_file,
            scratch=str(self.scratch),
            walls=dict(self.checkpoints.walls),
            policy=self.policy.name,
            state="busy" if self.relay.busy_since is not None else "idle",
            contexts={name: text.revision for name, text in sorted(self.checkpoints.contexts.items())},
            shadowed=tuple(sorted(self.checkpoints.shadowed)),
            label=self.request.label,
            memory_bytes=max(0, private_memory(live.pid) - self.memory_base) if live and live.pid else 0,
            checkpoint=self.checkpoints.newest is not None and self.checkpoints.newest.peer.pid is not None,
            undoable=tuple(self.undoable),
            latest=tuple(self.history.latest(max(self.undoable, default=0))),
            last_used=self.last_used,
            waiting=self.wait.ids,
            attachments=tuple(attachment.name for attachment in self.front.attachments.values()),
            refused=self.refusals.info(),
        )

    @property
    def undoable(self) -> list[int]:
        """The numbers of last cells that can be undone."""
        known = self.checkpoints.cells - self.history.before
        return [count for count in self.checkpoints.can_go_back() if count <= known]

    @property
    def idle(self) -> bool:
        """True while nothing runs and nothing waits."""
        return self.relay.current is None and not self._queue and not self.closed

    @property
    def cell(self) -> CellRequest | None:
        """The cell that runs, or else the next one."""
        return next((i for i in (self._taken, *self._queue) if isinstance(i, CellRequest) and i.kind == EXECUTE), None)

    def runs(self, run: object) -> bool:
        """Whether a request of that name runs now."""
        return self.relay.current is not None and self.relay.current.run == run

    # -- what others ask

    def execute(self, code: str, *, run: object = None, store_history: bool = True) -> asyncio.Future[CellResult]:
        """Queue a cell, which its caller names ``run``; the future gets its result (see `direct_result`)."""
        future: asyncio.Future[CellResult] = asyncio.get_running_loop().create_future()
        self.enqueue(CellRequest.of_caller(code, store_history, future, run))
        return future

    def operation(self, work: Operation) -> asyncio.Future[Any]:
        """Let the driver do ``work`` between requests."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.enqueue((work, future))
        return future

    async def ask(
        self, request: worker_requests.Request[Any], wait_seconds: float | None, file: int | None = None
    ) -> tuple[JsonObject, tuple[bytes, ...]]:
        """Send a request to the kernel in order with cells; `KernelBusy` after ``wait_seconds``. Keeps ``file``."""
        began = asyncio.Event()

        async def work() -> tuple[JsonObject, tuple[bytes, ...]]:
            began.set()
            files = () if file is None else (os.dup(file),)
            answer: tuple[JsonObject, tuple[bytes, ...]] = await self.checkpoints.ask(request, files)
            if isinstance(request, worker_requests.Restore):
                self.checkpoints.cells += 1  # it has changed variables like a cell, and its loss counts like a cell's
                await self.checkpoints.learn_shadowed()
                self.copying.later()
            return answer

        future = self.operation(work)
        if wait_seconds is not None and not await within(began, future, wait_seconds):
            future.cancel()
            raise KernelBusy("the session runs a cell; wait for it, interrupt it, or try again later")
        result: tuple[JsonObject, tuple[bytes, ...]] = await future
        return result

    async def bind(self, name: str, shared_text: BoundText) -> None:
        """Bind a context to a global, now and in every process that takes over; ``shared_text`` stays the caller's."""
        await self.operation(lambda: self.checkpoints.attach(name, shared_text.shared()))
        self.copying.later()

    async def unbind(self, name: str) -> None:
        """Unbind a context and give up its pin."""

        async def work() -> None:
            self.checkpoints.forget(name)
            await self.checkpoints.ask(worker_requests.Unbind(name))

        await self.operation(work)
        self.copying.later()

    async def resolve(self, news: worker_requests.Resolve) -> list[str]:
        """Give a session news of its queries, at once if its cell waits for some; returns the ids that it knows."""
        waited = [name for name in news.answers if name in self.queries.pending]
        self.queries.resolve(news.answers)
        if self.wait.ids:
            self.wait.answer(worker_protocol.Resolved(news.answers, news.used, news.refused))
            return waited
        reply = await self.operation(lambda: self.checkpoints.ask_for(news, worker_requests.KnownQueries()))
        self.copying.later()
        return list(reply.known)

    def interrupt(self, escalate: bool = False) -> bool:
        """Interrupt what runs, or else the next cell; ``escalate`` also kills. False if there is none."""
        cell, limits = self.cell, self.relay.limits
        if cell is not None and cell is not self.relay.current:
            cell.withdrawn, cell.interrupted = escalate or cell.withdrawn, True
        if limits is not None and escalate:
            limits.stop(Ended.INTERRUPTED, "the cell was interrupted")
        elif limits is not None:
            limits.interrupt()
        return cell is not None or limits is not None

    def stop(self, run: object) -> bool:
        """End the cell of that name, whether it is queued, about to begin or running; False if it has ended."""
        if self.runs(run):
            return self.interrupt(escalate=True)
        return self.withdraw(run)

    def withdraw(self, run: object) -> bool:
        """Let no request of that name begin any more; False if there is none."""
        waiting = [i for i in (self._taken, *self._queue) if isinstance(i, CellRequest) and i.run == run]
        for request in waiting:
            request.withdrawn = True
        return bool(waiting)

    async def restart(self) -> None:
        """Start again with a fresh process: contexts stay, variables go."""

        async def work() -> None:
            await self.checkpoints.renew()
            self._forget_lost_cells()
            await self.checkpoints.equip()

        if self.relay.current is not None:
            self.interrupt(escalate=True)
        await self.operation(work)

    # -- clients

    def from_client(self, channel: str, parts: list[bytes]) -> None:
        """Handle a request of a Jupyter client. The kernel has no key, so the signature is checked here."""
        if channel == "iopub":
            self.front.welcome(parts)
        elif channel == "control":
            self._control(parts)
        elif not self.front.signer.genuine(parts):
            return
        elif channel == "shell":
            self.enqueue(CellRequest.of_client(worker_protocol.SHELL, parts))
        else:
            self.input_came(parts)

    def input_came(self, parts: list[bytes]) -> None:
        """Pass on what a person has typed for a cell that asks."""
        if self.checkpoints.live is not None:
            if self.relay.limits is not None and not self.wait.ids:
                self.relay.limits.input_came()
            self.checkpoints.live.send(worker_protocol.STDIN, tuple(parts))

    def _control(self, parts: list[bytes]) -> None:
        message = self.front.signer.read(parts)
        if message is None:
            return
        if message.kind == "interrupt_request":
            self.interrupt()
            self.front.answer_control(message, {"status": "ok"})
        elif message.kind == "shutdown_request":
            restart = bool(message.content.get("restart", False))
            self.front.answer_control(message, {"status": "ok", "restart": restart})
            if self.request.owned:
                asyncio.get_running_loop().call_later(0.05, self.close)
        else:
            self.enqueue(CellRequest.of_client(worker_protocol.CONTROL, parts))

    def enqueue(self, item: CellRequest | tuple[Operation, asyncio.Future[Any]]) -> None:
        """Put a request behind all others."""
        if isinstance(item, CellRequest):  # merely looking at a session must not keep it alive
            self.last_used = time.time()
        if self.closed or len(self._queue) >= MAX_QUEUE:
            error: KernelError = UnknownKernel(self.kernel_id) if self.closed else KernelBusy(_QUEUE_FULL)
            future = item.direct if isinstance(item, CellRequest) else item[1]
            if future is not None:
                future.set_exception(error)
            return
        self._queue.append(item)
        self._resume.set()

    # -- the driver

    async def _drive(self) -> None:
        while not self.closed:
            while not self._queue:
                self._resume.clear()
                await self._resume.wait()
            await self._work_on(self._queue.popleft())  # unnamed: a name would keep the last request and its output

    async def _work_on(self, item: CellRequest | tuple[Operation, asyncio.Future[Any]]) -> None:
        self._taken = item
        try:
            await (self._run(item) if isinstance(item, CellRequest) else self._operate(*item))
        except Exception as error:
            # A fault of ours in one request must not silence the session for all that follow.
            log.exception("a request of kernel %s failed in the supervisor", self.kernel_id)
            self._give_up(item, error)
        finally:
            self._taken = None

    def _give_up(self, item: CellRequest | tuple[Operation, asyncio.Future[Any]], error: Exception) -> None:
        if isinstance(item, CellRequest):
            self.relay.fail(item, Ended.FAULT, f"the supervisor failed at this request ({error}); run it again")
        elif not item[1].done():
            item[1].set_exception(error)

    async def _operate(self, work: Operation, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        try:
            if not self.checkpoints.alive:
                await self._recover()
            if self.closed or future.cancelled():  # its caller has closed the descriptors that it lent
                return
            result = await work()
        except Exception as error:
            failure = KernelDied(*await self._recovered_from(None)) if isinstance(error, PeerDied) else error
            if not future.done():
                future.set_exception(failure)
        else:
            if not future.done():
                future.set_result(result)

    async def _run(self, request: CellRequest) -> None:
        try:
            if not self.checkpoints.alive:
                await self._recover()
            is_cell = request.kind == EXECUTE
            if is_cell and self.copying.due():
                await self._copy_or_recover()
        except KernelError as error:
            self.relay.fail(request, Ended.WORKER_DIED, f"no kernel could be started: {error}", _ALL_LOST)
            return
        if is_cell and self._untold is not None:
            (reason, loss), self._untold = self._untold, None
            self.relay.fail(request, Ended.WORKER_DIED, reason, loss)
            return
        if request.withdrawn:
            self.relay.fail(request, Ended.INTERRUPTED, "the cell was interrupted before it began")
            return
        await self._run_on_kernel(request, is_cell)

    async def _run_on_kernel(self, request: CellRequest, is_cell: bool) -> None:
        live = self.checkpoints.live
        assert live is not None
        strict = is_cell and self.policy.checkpoint == "strict"
        limits = self.relay.begin(request, live, hold=strict)
        ended = live.expect(worker_protocol.CellDone.TAG)
        if request.interrupted:
            live.send(worker_protocol.INTERRUPT)
        if request.cell is not None:
            live.say(request.cell)
        else:
            live.send(request.tag, tuple(request.parts))
        try:
            done = heard(worker_protocol.CellDone, await ended) or worker_protocol.CellDone()
            limits.end()
            self.refusals.told(done.refused)
            self._finish_cell(request, done, is_cell)
            if strict:
                await self.copying.now()
            self.relay.succeed(request, done, limits)
        except PeerDied:
            limits.end()
            self.relay.forget_held()
            if live.status == processes.EXIT_MEMORY:
                limits.blame(Ended.MEMORY_LIMIT, f"the kernel used up its {self.limits.memory_bytes:,} bytes of memory")
            reason, loss = await self._recovered_from(limits)
            self.relay.fail(request, limits.ended or Ended.WORKER_DIED, reason, loss)
        finally:
            self.wait.end()
            limits.end()
            self.relay.end()
        if is_cell:
            self.copying.later()

    def _finish_cell(self, request: CellRequest, done: worker_protocol.CellDone, is_cell: bool) -> None:
        if is_cell:
            self.checkpoints.cells += 1
            self.history.note(self.checkpoints.cells, request, done.defined)
        told = request.direct is not None
        request.shadowed, request.returned = self.checkpoints.shadow(done.shadowed, done.returned, told=told)
        if not told and (given := given_in(done.given)):
            self.emit(self.kernel_id, AnswersAssigned(given))

    # -- limits

    def _limits_of_request(self, live: WorkerLink) -> CellLimits:
        """Our own requests may run user code (a ``__repr__``, a finaliser), so they have the time limit of a cell."""
        return CellLimits(live, self.limits.cell_seconds, self.limits.interrupt_grace_seconds, "a request")

    # -- death and copies

    def _died(self, peer: WorkerLink) -> None:
        self.checkpoints.lost_copy(peer)
        if peer is self.checkpoints.live and self.relay.current is None and not self.closed and self.checkpoints.cells:
            # A process that has run a cell is replaced at once. One that died before its first cell is replaced only
            # when somebody asks for something: a kernel that cannot live must not be started again for ever.
            self.operation(partial(asyncio.sleep, 0)).add_done_callback(retrieved)

    async def _recovered_from(self, limits: CellLimits | None) -> tuple[str, Loss]:
        """Recover, and say what happened and what was lost."""
        dead = self.checkpoints.live
        assert dead is not None
        reason = limits.reason if limits is not None and limits.ended else cause_of_death(dead)
        try:
            return reason, await self._recover()
        except (KernelError, PeerDied) as error:
            return f"{reason}, and no kernel could be started in its place: {error}", _ALL_LOST

    async def _recover(self) -> Loss:
        dead = self.checkpoints.live
        reason = cause_of_death(dead) if dead is not None else "the kernel was gone"
        in_cell = self.relay.current is not None
        loss = await self.checkpoints.take_over(in_cell=in_cell)
        self._forget_lost_cells()
        if loss.what is not Lost.NOTHING and not in_cell:
            self._untold = reason, loss
        self.emit(self.kernel_id, Recovered())
        if self.policy.checkpoint != "off" and not self.checkpoints.covered:
            with contextlib.suppress(PeerDied):
                await self.copying.now()
        return loss

    def _forget_lost_cells(self) -> None:
        """Their numbers are given again, by a restored snapshot too: nothing would tell them from what it undoes."""
        self.history.undo_after(self.checkpoints.cells)

    async def _copy_or_recover(self) -> None:
        """Take a copy. If the kernel dies of it, recover as from any other death."""
        try:
            await self.copying.now()
        except PeerDied:
            await self._recover()

    def told_of_loss(self) -> None:
        """Forget the loss that the next cell would be told of."""
        self._untold = None

    async def secure(self) -> None:
        """Copy a session that was forked or rolled back, so that a crash loses nothing of it; under ``lazy`` soon."""
        if self.policy.checkpoint == "strict" and not self.checkpoints.covered:
            await self.copying.now()
        self.copying.later()

    # -- what the kernel says

    def _from_kernel(self, peer: WorkerLink, message: framing.Message) -> None:
        if peer is not self.checkpoints.live:
            return
        if message.tag in (worker_protocol.STDOUT, worker_protocol.STDERR):
            self.relay.text(message)
        elif message.tag == worker_protocol.Shown.TAG:
            self.relay.show(message)
        elif message.tag == worker_protocol.Asked.TAG:
            self._asked(peer, heard(worker_protocol.Asked, message) or worker_protocol.Asked())
        elif message.tag == worker_protocol.Waits.TAG:
            self.wait.begin(heard(worker_protocol.Waits, message) or worker_protocol.Waits())
        elif message.tag == worker_protocol.ABORT:
            self._abort_queue()
        elif message.tag == worker_protocol.FATAL:
            self.relay.fault(b"".join(message.parts))
        elif (channel := CHANNELS.get(message.tag)) is not None:
            self.relay.forward(channel, message.parts)

    def _asked(self, peer: WorkerLink, told: worker_protocol.Asked) -> None:
        rows = self.queries.ask(told.queries)
        if rest := self.queries.rest(told.queries):
            peer.stream.wait(rest)
        if self.queries.full and self.relay.limits is not None:
            self.relay.limits.stop(Ended.QUERY_LIMIT, FULL)
        self.checkpoints.spec = replace(self.checkpoints.spec, query_base=self.queries.next_number)
        if self.relay.current is not None:
            self.relay.current.queries.extend(rows)
        for some in at_once(rows):
            self.emit(self.kernel_id, QueriesAsked(some))

    def _abort_queue(self) -> None:
        """Abort the queued cells of a client whose cell failed (`stop_on_error`). Other clients' cells still run."""
        current = self.relay.current
        if current is None or current.direct is not None:
            return
        client = EXECUTE, current.identities
        further = [
            item for item in self._queue if isinstance(item, CellRequest) and (item.kind, item.identities) == client
        ]
        self._queue = deque(item for item in self._queue if not any(item is one for one in further))
        for request in further:
            self.front.fail(request, {"status": "aborted"})
