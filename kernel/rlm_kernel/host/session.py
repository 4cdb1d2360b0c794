"""One session in the host: its queue, the driver that works through it, and what happens when a kernel dies.

One driver task does requests, copies and recoveries strictly one after the other; everything else only appends to the
queue. That is what makes recovery simple: while a request is in flight nothing else touches the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import zmq

from rlm_kernel import process, tags, wire
from rlm_kernel.errors import KernelBusy, KernelDied, KernelError, SessionExpelled, UnknownKernel
from rlm_kernel.host.cells import CellLog
from rlm_kernel.host.copying import Copying
from rlm_kernel.host.images import Attachment, Images, cause_of_death
from rlm_kernel.host.jupyter import Front
from rlm_kernel.host.limits import CellLimits, private_memory
from rlm_kernel.host.loss import in_words
from rlm_kernel.host.peer import Peer, PeerDied, load, retrieved, texts, within
from rlm_kernel.host.policy import read_policy
from rlm_kernel.host.queries import FULL, QueryBook, Round, at_once, given_in
from rlm_kernel.host.refusals import Refusals
from rlm_kernel.host.relay import CHANNELS, Relay
from rlm_kernel.host.request import EXECUTE, Request
from rlm_kernel.host.rollback import History
from rlm_kernel.host.watch import Watch

MAX_QUEUE = 1000

log = logging.getLogger(__name__)

Event = Callable[[str, dict[str, Any]], None]
Operation = Callable[[], Awaitable[Any]]


class KernelSession:
    """A kernel to the outside: five sockets that stay, and processes behind them that may be replaced.

    ``emit(kernel_id, event)`` reports what happened: ``queries``, ``waiting`` (for the answers of ``ids``; none: it
    goes on), ``given``, ``cell``, ``door`` (is it ``open``), ``recovered``, ``ended`` (why ``expelled``).
    """

    def __init__(
        self,
        kernel_id: str,
        spec: dict[str, Any],
        context: zmq.Context[Any],
        image: Callable[[], Awaitable[Peer]],
        spool: Path,
        emit: Event,
    ) -> None:
        self.kernel_id, self.spec, self.emit = kernel_id, spec, emit
        self.policy = read_policy(spec["policy"])
        self.limits = self.policy.limits
        self.connection: dict[str, Any] = spec["connection"]
        self.front = Front(context, self.connection, self.from_client)
        self.cells = CellLog(lambda note: emit(kernel_id, note))
        self.relay = Relay(kernel_id, self.front, self.limits, spool, self.cells)
        image_spec = {key: spec.get(key) for key in ("policy", "workspace", "scratch", "query_base", "protect")}
        required = tuple(self.policy.walls.require)
        self.refusals = Refusals(self.limits.refused_attempts, self.expel)
        told = self._died, self._from_kernel, self._limits_of_request
        self.images = Images(image, image_spec, required, *told, self.refusals)
        self.images.undoable = self.limits.rollback_cells
        self.history = History(self.limits.rollback_cells)
        llm = self.policy.llm
        self.queries = QueryBook(spec["query_base"], self.limits.queries, (llm.mode, *llm.modes))
        self.images.answers = self.queries.answers
        self.round: Round | None = None
        self.closed = False
        self.last_used = time.time()
        self._queue: deque[Request | tuple[Operation, asyncio.Future[Any]]] = deque()
        self._taken: Request | tuple[Operation, asyncio.Future[Any]] | None = None
        self._wake = asyncio.Event()
        self.copying = Copying(self)
        self._loss: str | None = None
        self.memory_base = 0
        self.watch = Watch(self)
        self.kernel_info: dict[str, Any] = spec.get("kernel_info") or {}
        self._driver: asyncio.Task[None] | None = None

    # -- life

    async def start(self, first: Operation | None = None) -> None:
        """Get the first process, by ``first`` or a fresh one, and the sockets; nothing is left when that fails.

        Raises what ``first`` does, `WallsMissing`, `KernelDied`, or CallerError for an address that is taken.
        """
        beginning = asyncio.ensure_future((first or self.images.start)())
        beginning.add_done_callback(retrieved)
        try:
            await asyncio.sleep(0)  # the process raises its walls while the sockets are bound
            self.front.sockets.bind()
            await beginning
        except BaseException:
            beginning.cancel()
            await asyncio.wait({beginning})
            self.images.drop_all()
            self.front.close()
            raise
        if not self.memory_base:  # a copy counts from where its parent does
            self.memory_base = private_memory(self.images.live.pid or 0) if self.images.live else 0
        self._driver = asyncio.create_task(self._drive())

    def expel(self, reason: str) -> None:
        """End the session for what its code has tried; who waits for it is told the reason."""
        error = SessionExpelled(reason)
        if self.relay.current is not None and not self.closed:
            self.relay.fail(self.relay.current, type(error).__name__, str(error))
        self.close(error)

    def close(self, error: SessionExpelled | None = None) -> None:
        """End the session: its processes, sockets, leases and waiting callers, who get ``error``."""
        if self.closed:
            return
        self.closed = True
        if self.relay.limits is not None:
            self.relay.limits.end()
        self.copying.cancel()
        if self._driver is not None:
            self._driver.cancel()
        self._fail_waiting(error or UnknownKernel(self.kernel_id))
        self.images.close()
        self.front.close()
        self.queries.forget()
        self.emit(self.kernel_id, {"event": "ended", **({} if error is None else {"expelled": error.reason})})

    def _fail_waiting(self, error: KernelError) -> None:
        items = [*([self._taken] if self._taken is not None else []), *self._queue]
        waiting = [item.direct if isinstance(item, Request) else item[1] for item in items]
        self._queue.clear()
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)

    def info(self) -> dict[str, Any]:
        """What callers of the host see of this kernel."""
        live = self.images.live
        return {
            "kernel_id": self.kernel_id,
            "pid": live.pid if live else None,
            "connection": self.connection,
            "connection_file": self.spec.get("connection_file"),
            "scratch": self.spec.get("scratch"),
            "walls": self.images.walls,
            "policy": self.policy.name,
            "state": "busy" if self.relay.busy_since is not None else "idle",
            "contexts": {name: text.revision for name, text in sorted(self.images.contexts.items())},
            "shadowed": sorted(self.images.shadowed),
            "label": self.spec.get("label") or {},
            "memory_bytes": max(0, private_memory(live.pid) - self.memory_base) if live and live.pid else 0,
            "checkpoint": self.images.newest is not None and self.images.newest.peer.pid is not None,
            "undoable": self.undoable,
            "latest": self.history.latest(max(self.undoable, default=0)),
            "last_used": self.last_used,
            "waiting": sorted(self.round.open) if self.round is not None else [],
            "doors": [door.name for door in self.front.doors.values()],
            "refused": self.refusals.info(),
        }

    @property
    def undoable(self) -> list[int]:
        """The numbers of last cells that can be undone."""
        known = self.images.cells - self.history.before
        return [count for count in self.images.can_go_back() if count <= known]

    @property
    def idle(self) -> bool:
        """True while nothing runs and nothing waits."""
        return self.relay.current is None and not self._queue and not self.closed

    @property
    def cell(self) -> Request | None:
        """The cell that runs, or else the next one."""
        return next((i for i in (self._taken, *self._queue) if isinstance(i, Request) and i.kind == EXECUTE), None)

    # -- what others ask

    def execute(self, code: str, *, run: object = None, store_history: bool = True) -> asyncio.Future[dict[str, Any]]:
        """Queue a cell, which its caller names ``run``; the future gets its result (see `direct_result`)."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.enqueue(Request.of_caller(code, store_history, future, run))
        return future

    def operation(self, work: Operation) -> asyncio.Future[Any]:
        """Have the driver do ``work`` between requests."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.enqueue((work, future))
        return future

    async def ask(
        self, request: dict[str, Any], wait_seconds: float | None, file: int | None = None
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """A request of ours to the kernel process, in order with cells; `KernelBusy` after ``wait_seconds``.

        ``file`` stays the caller's.
        """
        began = asyncio.Event()

        async def work() -> tuple[dict[str, Any], tuple[bytes, ...]]:
            began.set()
            files = () if file is None else (os.dup(file),)
            answer: tuple[dict[str, Any], tuple[bytes, ...]] = await self.images.ask(request, files)
            if request.get("op") == "restore":
                self.images.cells += 1  # it has changed variables, as a cell does: losing it is told
                await self.images.learn_shadowed()
                self.copying.later()
            return answer

        future = self.operation(work)
        if wait_seconds is not None and not await within(began, future, wait_seconds):
            future.cancel()
            raise KernelBusy("the session runs a cell; wait for it, interrupt it, or ask again later")
        result: tuple[dict[str, Any], tuple[bytes, ...]] = await future
        return result

    async def attach(self, name: str, attachment: Attachment) -> None:
        """Bind a context to a global, now and in every process that takes over; ``attachment`` stays the caller's."""
        await self.operation(lambda: self.images.attach(name, attachment.shared()))
        self.copying.later()

    async def detach(self, name: str) -> None:
        """Unbind a context and give up its lease."""

        async def work() -> None:
            self.images.forget(name)
            await self.images.ask({"op": "detach", "name": name})

        await self.operation(work)
        self.copying.later()

    async def settle(self, news: dict[str, Any]) -> list[str]:
        """Tell ``answers`` (at once to a cell that waits), budget ``used``, own ones ``refused``; returns known ids."""
        answers = news.setdefault("answers", {})
        waited = [name for name in answers if name in self.queries.pending]
        self.queries.settle(answers)
        if self.round is not None:
            self._answer_round(news)
            return waited
        content, _ = await self.operation(lambda: self.images.ask({"op": "settle", **news}))
        self.copying.later()
        return texts(content.get("known"))

    def interrupt(self, escalate: bool = False) -> bool:
        """Interrupt what runs, or else the next cell; ``escalate`` ends it, whatever it does. False: there is none."""
        cell, limits = self.cell, self.relay.limits
        if cell is not None and cell is not self.relay.current:
            cell.withdrawn, cell.interrupted = escalate or cell.withdrawn, True
        if limits is not None and escalate:
            limits.stop("CellInterrupted", "the cell was interrupted")
        elif limits is not None:
            limits.interrupt()
        return cell is not None or limits is not None

    def stop(self, run: object) -> bool:
        """End the cell of that name, whether it waits, is about to begin or runs. False if it has ended."""
        current = self.relay.current
        if current is not None and current.run == run:
            return self.interrupt(escalate=True)
        for item in (self._taken, *self._queue):
            if isinstance(item, Request) and item.run == run:
                item.withdrawn = True
                return True
        return False

    def withdraw(self, run: object) -> None:
        """Have no request of that name begin any more."""
        for item in (self._taken, *self._queue):
            if isinstance(item, Request) and item.run == run:
                item.withdrawn = True

    async def restart(self) -> None:
        """Begin anew with a fresh process: contexts stay, variables go."""

        async def work() -> None:
            await self.images.renew()
            await self.images.equip()

        if self.relay.current is not None:
            self.interrupt(escalate=True)
        await self.operation(work)

    # -- clients

    def from_client(self, channel: str, frames: list[bytes]) -> None:
        """Take a request of a Jupyter client: the kernel, which has no key, gets what is signed as it has to be."""
        if channel == "iopub":
            self.front.welcome(frames)
        elif channel == "control":
            self._control(frames)
        elif not self.front.signer.genuine(frames):
            return
        elif channel == "shell":
            self.enqueue(Request.of_client(tags.SHELL, frames))
        else:
            self.input_came(frames)

    def input_came(self, frames: list[bytes]) -> None:
        """Pass on what a person has typed for a cell that asks."""
        if self.images.live is not None:
            if self.relay.limits is not None and self.round is None:
                self.relay.limits.input_came()
            self.images.live.send(tags.STDIN, tuple(frames))

    def _control(self, frames: list[bytes]) -> None:
        message = self.front.signer.read(frames)
        if message is None:
            return
        if message.kind == "interrupt_request":
            self.interrupt()
            self.front.answer_control(message, {"status": "ok"})
        elif message.kind == "shutdown_request":
            restart = bool(message.content.get("restart", False))
            self.front.answer_control(message, {"status": "ok", "restart": restart})
            if self.spec.get("owned"):
                asyncio.get_running_loop().call_later(0.05, self.close)
        else:
            self.enqueue(Request.of_client(tags.CONTROL, frames))

    def enqueue(self, item: Request | tuple[Operation, asyncio.Future[Any]]) -> None:
        """Put a request behind all others."""
        if isinstance(item, Request):  # to be looked at is no use
            self.last_used = time.time()
        if self.closed or len(self._queue) >= MAX_QUEUE:
            error: KernelError = UnknownKernel(self.kernel_id) if self.closed else KernelBusy("the queue is full")
            future = item.direct if isinstance(item, Request) else item[1]
            if future is not None:
                future.set_exception(error)
            return
        self._queue.append(item)
        self._wake.set()

    # -- the driver

    async def _drive(self) -> None:
        while not self.closed:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await self._work_on(self._queue.popleft())  # while it waits for the next it holds nothing of the last

    async def _work_on(self, item: Request | tuple[Operation, asyncio.Future[Any]]) -> None:
        self._taken = item
        try:
            await (self._run(item) if isinstance(item, Request) else self._operate(*item))
        except Exception as error:
            # A fault of ours in one request must not silence the session for all that follow.
            log.exception("a request of kernel %s failed in the host", self.kernel_id)
            self._give_up(item, error)
        finally:
            self._taken = None

    def _give_up(self, item: Request | tuple[Operation, asyncio.Future[Any]], error: Exception) -> None:
        if isinstance(item, Request):
            self.relay.fail(item, "KernelError", f"the host failed at this request ({error}); run it again")
        elif not item[1].done():
            item[1].set_exception(error)

    async def _operate(self, work: Operation, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        try:
            if not self.images.alive:
                await self._recover()
            if self.closed or future.cancelled():  # and what the caller had lent to it is gone
                return
            result = await work()
        except PeerDied:
            error = KernelDied(*await self._recovered_from(None))
            if not future.done():
                future.set_exception(error)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    async def _run(self, request: Request) -> None:
        try:
            if not self.images.alive:
                await self._recover()
            is_cell = request.kind == EXECUTE
            if is_cell and self.copying.due():
                await self._copy_or_recover()
        except KernelError as error:
            self.relay.fail(request, type(error).__name__, str(error))
            return
        if is_cell and self._loss:
            loss, self._loss = self._loss, None
            self.relay.fail(request, "KernelRolledBack", loss)
            return
        if request.withdrawn:
            self.relay.fail(request, "CellInterrupted", "the cell was interrupted before it began")
            return
        await self._run_on_kernel(request, is_cell)

    async def _run_on_kernel(self, request: Request, is_cell: bool) -> None:
        live = self.images.live
        assert live is not None
        strict = is_cell and self.policy.checkpoint == "strict"
        limits = self.relay.begin(request, live, hold=strict)
        done = live.expect(tags.DONE)
        if request.interrupted:
            live.send(tags.INTERRUPT)
        live.send(request.tag, tuple(request.frames) or (wire.json_frame(request.cell),))
        try:
            summary = load(await done)
            limits.end()
            self.refusals.told(summary.get("refused"))
            self._finish_cell(request, summary, is_cell)
            if not self._repeats(request, summary, limits) and strict:
                await self.copying.now()
            self.relay.succeed(request, summary, limits)
        except PeerDied:
            limits.end()
            self.relay.forget_held()
            if live.status == process.EXIT_MEMORY:
                limits.blame("MemoryLimit", f"the kernel used up its {self.limits.memory_bytes:,} bytes of memory")
            reason, lost = await self._recovered_from(limits)
            self.relay.fail(request, limits.stopped_for or "KernelRolledBack", f"{reason}; {lost}")
        finally:
            self._end_round()
            limits.end()
            self.relay.end()
        if is_cell:
            self.copying.later()

    def _repeats(self, request: Request, summary: dict[str, Any], limits: CellLimits) -> bool:
        """Whether the completed cell needs no copy, because the newest one can repeat it."""
        reply, seconds = summary.get("reply"), summary.get("repeatable")
        ok = isinstance(reply, dict) and reply.get("status") == "ok" and not limits.stopped_for
        if not ok or not request.cell or not isinstance(seconds, float) or seconds < 0:
            return False
        return self.images.remember(request.cell, seconds)

    def _finish_cell(self, request: Request, summary: dict[str, Any], is_cell: bool) -> None:
        if is_cell:
            self.images.cells += 1
            self.history.note(self.images.cells, request, summary)
        heard = request.direct is not None
        said, returned = summary.get("shadowed"), summary.get("returned")
        request.shadowed, request.returned = self.images.shadow(said, returned, heard=heard)
        if not heard and (given := given_in(summary)):
            self.emit(self.kernel_id, {"event": "given", **given})

    # -- limits

    def _limits_of_request(self, live: Peer) -> CellLimits:
        """Our own requests may run code of the user's, a ``__repr__`` or a finaliser: they get the time of a cell."""
        return CellLimits(live, self.limits.cell_seconds, self.limits.interrupt_grace_seconds, "a request")

    # -- death and copies

    def _died(self, peer: Peer) -> None:
        self.images.lost_copy(peer)
        if peer is self.images.live and self.relay.current is None and not self.closed and self.images.cells:
            # A process that has run a cell is replaced at once. One that died before it ran any is only replaced
            # when somebody asks for something: a kernel that cannot live must not be started for ever.
            self.operation(partial(asyncio.sleep, 0)).add_done_callback(retrieved)

    async def _recovered_from(self, limits: CellLimits | None) -> tuple[str, str]:
        """Recover, and say what happened and what was lost."""
        dead = self.images.live
        assert dead is not None
        reason = limits.reason if limits is not None and limits.stopped_for else cause_of_death(dead)
        try:
            lost = await self._recover()
        except (KernelError, PeerDied) as error:
            return reason, f"and no kernel could be started in its place: {error}"
        return reason, in_words(lost, in_cell=limits is not None)

    async def _recover(self) -> int:
        dead = self.images.live
        reason = cause_of_death(dead) if dead is not None else "the kernel was gone"
        lost = await self.images.take_over()
        words = in_words(lost, in_cell=self.relay.current is not None)
        if lost and self.relay.current is None:
            self._loss = f"{reason}; {words}"
        self.emit(self.kernel_id, {"event": "recovered", "reason": reason, "lost": words, "lost_cells": lost})
        if self.policy.checkpoint != "off" and not self.images.covered:
            with contextlib.suppress(PeerDied):
                await self.copying.now()
        return lost

    async def _copy_or_recover(self) -> None:
        """Take a copy; a kernel that dies of it is one that died, with what that loses."""
        try:
            await self.copying.now()
        except PeerDied:
            await self._recover()

    def told_of_loss(self) -> None:
        """What an earlier crash lost need not be told to the next cell any more."""
        self._loss = None

    async def secure(self) -> None:
        """See to it that a crash loses nothing of a session that was forked or rolled back; under ``lazy`` soon."""
        if self.policy.checkpoint == "strict" and not self.images.covered:
            await self.copying.now()
        self.copying.later()

    # -- what the kernel says

    def _from_kernel(self, peer: Peer, message: wire.Message) -> None:
        if peer is not self.images.live:
            return
        if message.tag in (tags.STDOUT, tags.STDERR):
            self.relay.text(message)
        elif message.tag == tags.SHOWN:
            self.relay.show(message)
        elif message.tag == tags.QUERY:
            self._asked(peer, load(message).get("queries"))
        elif message.tag == tags.WAITS:
            self._begin_round(load(message).get("ids"))
        elif message.tag == tags.ABORT:
            self._abort_queue()
        elif message.tag == tags.FATAL:
            self.relay.fault(b"".join(message.frames))
        elif (channel := CHANNELS.get(message.tag)) is not None:
            self.relay.forward(channel, message.frames)

    def _asked(self, peer: Peer, told: object) -> None:
        rows = self.queries.ask(told)
        if rest := self.queries.rest(told):
            peer.stream.wait(rest)
        if self.queries.full and self.relay.limits is not None:
            self.relay.limits.stop("QueryLimit", FULL)
        self.images.spec["query_base"] = self.queries.next_number
        if self.relay.current is not None:
            self.relay.current.queries.extend(rows)
        for some in at_once(rows):
            self.emit(self.kernel_id, {"event": "queries", "queries": some})

    # -- a cell that waits for answers

    def _begin_round(self, ids: object) -> None:
        """The running cell waits for the answers of ``ids``; without any it has been interrupted in that."""
        self._end_round()
        current, limits = self.relay.current, self.relay.limits
        if current is None or limits is None:
            return
        claimed = self.queries.claim(ids, current.queries)
        if not claimed:
            return
        self.round = Round(claimed, limits, self.policy.llm.wait_seconds, self._round_is_late)
        self.emit(self.kernel_id, {"event": "waiting", "ids": sorted(claimed)})
        # Who answers at once may have been faster than the cell.
        given = self.queries.answers
        self._answer_round({"answers": {name: given[name] for name in claimed if name in given}})

    def _answer_round(self, news: dict[str, Any]) -> None:
        live, answers = self.images.live, news["answers"]
        if self.round is None or live is None or not answers:
            return
        live.send(tags.SETTLED, (wire.json_frame(news),))
        self.round.open.difference_update(answers)
        if not self.round.open:
            self._end_round()

    def _round_is_late(self) -> None:
        live = self.images.live
        if self.round is not None and live is not None:
            live.send(tags.SETTLED, (wire.json_frame({"late": sorted(self.round.open)}),))
        self._end_round()

    def _end_round(self) -> None:
        ended, self.round = self.round, None
        if ended is not None:
            ended.end()
            self.emit(self.kernel_id, {"event": "waiting", "ids": []})

    def _abort_queue(self) -> None:
        """A cell failed and its client asked that its further cells do not run; cells of others do."""
        current = self.relay.current
        if current is None or current.direct is not None:
            return
        client = EXECUTE, current.identities
        further = [item for item in self._queue if isinstance(item, Request) and (item.kind, item.identities) == client]
        self._queue = deque(item for item in self._queue if not any(item is one for one in further))
        for request in further:
            self.front.fail(request, {"status": "aborted"})
