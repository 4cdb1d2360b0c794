"""A session's kernel as the daemon sees it.

A kernel is started when it is first needed, given the session's contexts, and replaced when it dies. The rows
say which contexts a session has; a kernel is brought up to date just before each cell and, when it is idle,
soon after a change. So loading never waits for a running cell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from rlm_ipc import errors
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import KernelBusy, KernelDied, KernelError, SupervisorGone, UnknownKernel
from rlm_ipc.kernel_reports import CellResult, ForkInfo, KernelInfo, QueryOutcome, RollbackInfo
from rlm_ipc.outcomes import NEW_POLICY, Loss, Lost
from rlm_ipc.supervisor_core import KernelState
from rlm_ipc.supervisor_protocol import Event
from rlm_kernel.supervisor_client import Execution, SupervisorClient
from rlm_mcp.service.background import BackgroundTasks
from rlm_mcp.service.sessions.bound_contexts import BoundContexts, of_names
from rlm_mcp.service.sessions.kernel_deliveries import BackToSaved, KernelDeliveries
from rlm_mcp.service.sessions.kernel_events import Fresh, KernelEvents
from rlm_mcp.service.sessions.kernel_queries import KernelQueries
from rlm_mcp.service.sessions.kernel_start import KernelStart
from rlm_mcp.service.sessions.kernel_turn import KernelTurn
from rlm_mcp.service.sessions.kernel_watch import KernelWatch
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_memory.errors import SessionEnded
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store
from rlm_sandbox.policy import PinnedPolicy

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0
T = TypeVar("T")


class KernelProxy:
    """The kernel of one session."""

    def __init__(
        self, row: SessionRow, policy: PinnedPolicy, store: Store, gateway: KernelGateway, events: KernelEvents
    ) -> None:
        self.session = row
        self.policy = policy
        self.info: KernelInfo | None = None
        """The live kernel, as it was when it started."""
        self.notice = ""
        """What the next answer has to tell: variables that were lost between two calls."""
        self.names: set[str] = set()
        """Globals that cells have defined; names that the service makes up must not hide them."""
        self._events = events
        self.deliveries = KernelDeliveries(events)
        self.attachments: list[str] = []
        """The attachments by which front ends have the session open, each as often as it is open."""
        self.why_ended = ""  # what front ends are told when the kernel ends
        self.expelled = ""
        """Why the supervisor has ended the kernel, and the session is about to end with it."""
        self.queries = KernelQueries(store, row.key, events)
        self.bound = BoundContexts(store, row.key, gateway.texts)
        self._gateway = gateway
        self.begin = KernelStart(store, gateway)
        self.turn = KernelTurn(self.queries, self._turn_over)
        self.watched = KernelWatch(self._gone)
        self._starting = asyncio.Lock()
        self._background = BackgroundTasks()
        self._stopped = False

    @property
    def kernel_id(self) -> str | None:
        """The id of the live kernel."""
        return self.info.kernel_id if self.info is not None else None

    @property
    def alive(self) -> bool:
        """Whether the session has a kernel, as far as is known."""
        return self.info is not None

    @property
    def busy(self) -> bool:
        """Whether a cell runs or is about to."""
        return self.turn.cells > 0

    def _turn_over(self) -> None:
        if self._behind and self.alive and not self.busy:
            self._background.start(self._catch_up_alone())

    async def start(self) -> str:
        """Return the id of the live kernel, starting one if there is none.

        Raises:
            SessionEnded: after `stop`.
            SessionExpelled: The supervisor has ended the session.
        """
        if self.info is not None and not self._stopped and not self.expelled:
            return self.info.kernel_id
        async with self._starting:
            if self.expelled:
                raise errors.SessionExpelled(self.expelled)
            if self._stopped:
                raise SessionEnded
            return self.kernel_id or await self._spawn()

    async def change_policy(self, row: SessionRow, policy: PinnedPolicy) -> None:
        """End the kernel; the next one is held to the policy."""
        async with self._starting:
            self.session, self.policy = row, policy
            await self._drop(NEW_POLICY)

    async def open(self) -> str:
        """Return the id of the live kernel for a front end: at once if it runs a cell, else when it is up to date."""
        if self.busy and self.kernel_id is not None:
            return self.kernel_id
        return await self._ready_alone()

    def adopt(self, info: KernelInfo) -> None:
        """Take over a live kernel: a new one, one that an earlier daemon started, or a fork of another session's."""
        self.forget()
        self.info = info
        self.deliveries.fresh, self.deliveries.outdated = info.untouched, False
        self.queries.waiting = frozenset(info.waiting)
        self.attachments = list(info.attachments)
        self.bound.revisions.update(info.contexts)
        self._gateway.listen(info.kernel_id, self._on_event, self.refresh)

    async def seen(self) -> KernelInfo | None:
        """Return the kernel as the supervisor sees it now; None if there is none, or the supervisor does not say."""
        if (kernel_id := self.kernel_id) is None:
            return None
        with suppress(KernelError, OSError):
            return await (await self._gateway.client(start=False)).kernel_info(kernel_id)
        return None

    async def shadowed(self) -> set[str]:
        """Return the names of contexts that mean something else in code: a variable that took the name.

        A context that the kernel has not been given yet is none of them: it will take the name back.
        """
        asked, names = self.watched.asked, self.watched.shadowed
        if names is None or self.busy or self.attachments:
            if (info := await self.seen()) is None:
                return set()
            names = info.shadowed
            self.watched.note_shadowed(names, None if self.busy else asked)
        return self.bound.current(names)

    async def fork(self, session: str, key: int, policy: PinnedPolicy) -> ForkInfo:
        """Fork the kernel for another session, of that name and key: as it is, or as it was before the cell that runs.

        Raises what `SupervisorClient.fork` does.
        """
        with self.watched:
            if self.busy:  # the kernel cannot be brought up to date before its cell ends
                return await self.begin.fork(await self.start(), self.session, session, key, policy)
            async with self.turn:
                return await self.begin.fork(await self._ready(), self.session, session, key, policy)

    async def copy_for(self, attachment: str) -> str:
        """Fork the kernel without its language wall, for the front end at an attachment; returns the copy's kernel id.

        Raises what `SupervisorClient.fork` does.
        """
        with self.watched:
            return await self.begin.copy(await self.open(), self.session, self.policy, attachment)

    async def execute(self, *cells: str, attachment: str = "") -> list[Execution]:
        """Start cells, one after the other, in an up-to-date kernel; the caller has its turn (`KernelTurn`).

        Those behind one that does not end well are skipped. ``attachment`` is `TERMINAL` if a person runs them.

        Raises:
            KernelDied, SupervisorGone: the kernel could not be started or ended at once.
        """
        with self.watched:
            kernel_id = await self._ready()
            return (await self._gateway.client()).execute_all(kernel_id, cells, attachment)

    def _gone(self, error: SupervisorGone | UnknownKernel) -> None:
        """Note that the kernel has turned out to be gone; raises what its caller is told, unless that is ``error``."""
        self.forget()
        empty = self.deliveries.fresh  # what it had not been given yet, the next one gets
        self.notice = self.deliveries.loss  # whoever asked may be no cell: the next cell must hear of it too
        if not empty and not self.notice:
            raise BackToSaved from error
        if empty or isinstance(error, UnknownKernel):
            raise KernelDied("the kernel has ended", Loss(Lost.NOTHING if empty else Lost.EVERYTHING)) from error

    async def ask(self, question: Callable[[SupervisorClient, str], Awaitable[T]]) -> T:
        """Put a question to the live kernel; the caller has checked `alive`."""
        with self.watched:
            kernel_id = await self.start()
            return await question(await self._gateway.client(), kernel_id)

    def changed(self) -> None:
        """Note that the contexts have changed: an idle kernel learns it soon, a busy one after its cell."""
        self.bound.stale = True
        self._turn_over()

    async def hand_over(self, outcomes: Mapping[str, QueryOutcome], *, refused: bool = False) -> None:
        """Give answers of queries to the kernel: now if it is idle or waits for some, else when its cell has ended.

        ``refused`` says that what code has assigned to ``llm_answers`` is not taken.
        """
        self.queries.refused = self.queries.refused or refused
        if self.queries.waiting:
            await asyncio.wait({self._background.start(self._answer_cell(outcomes))}, timeout=_STOP_SECONDS)
            return
        self.queries.outcomes.update(outcomes)
        if self.alive and not self.busy:
            await asyncio.wait({self._background.start(self._catch_up_alone())}, timeout=_STOP_SECONDS)

    def refuse(self, ids: list[str], reason: str, *, over: bool = False) -> None:
        """Let queries fail that nobody could answer; told to the code that uses them, and with the next answer.

        ``over`` says that the budget is used up.
        """
        self.notice = f"{', '.join(ids)} failed: {reason}"
        self._background.start(self.hand_over(dict.fromkeys(ids, QueryOutcome(error=reason, over=over))))

    def budget_changed(self) -> None:
        """Have the kernel told, before its next cell, what is used of the budget."""
        self.queries.budget_changed = True

    async def _answer_cell(self, outcomes: Mapping[str, QueryOutcome]) -> None:
        """Hand answers to a cell that waits, past everything that is queued behind it."""
        try:
            await self.ask(lambda client, kernel_id: self.queries.answer(client, kernel_id, outcomes))
        except (KernelError, OSError, SessionEnded) as error:
            self.queries.outcomes = {**outcomes, **self.queries.outcomes}
            log.warning("the kernel of session %s has not taken its answers: %s", self.session.id, error)

    def finished(self, result: CellResult) -> str:
        """Take note of what a cell did to the globals; return what its answer has to say of the names of contexts.

        A context that was loaded again while the cell ran is not one of them: the cell took the earlier one's.
        """
        self.names.update(result.defined)
        return of_names(self.bound.current(result.shadowed), self.bound.current(result.returned))

    async def stop(self) -> None:
        """End the kernel and free its memory, for good: no other is started in its place."""
        self._stopped = True
        await self._drop(self.why_ended)

    async def _drop(self, why: str) -> None:
        """End the kernel, if there is one, with what is under way for it; front ends are told ``why``."""
        self._background.cancel()
        info = self.info
        self.forget()
        self.queries.stop()
        if info is not None:
            await self._gateway.discard(info, why)

    async def rollback(self, cells: int) -> RollbackInfo:
        """Undo the last completed cells.

        Raises what `SupervisorClient.rollback` does; KernelBusy also while a cell runs or waits.
        """
        if self.busy:
            raise KernelBusy("the session is running a cell; wait for it or interrupt it, then roll back")
        async with self.turn, self.watched:
            kernel_id = await self.start()
            done = await (await self._gateway.client()).rollback(kernel_id, cells)
        self.names.difference_update(done.gone)
        self.budget_changed()
        return done

    async def restart(self) -> None:
        """Begin anew with an empty namespace and the loaded contexts; starts a kernel if there is none."""
        if self.kernel_id is not None:
            await self.ask(self._empty)
        self.notice = ""
        await self.ready(None)  # who wants it empty does not want what was saved

    async def _empty(self, client: SupervisorClient, kernel_id: str) -> None:
        await client.restart(kernel_id)
        self.names.clear()
        self.bound.forget()
        self.budget_changed()

    def forget(self) -> None:
        """Let go of the kernel without ending it."""
        if self.info is not None:
            self._gateway.unlisten(self.info.kernel_id)
        self.info = None
        self.queries.wait_for(frozenset())
        self.attachments.clear()
        self.names.clear()
        self.bound.forget()

    # --- starting and catching up -----------------------------------------------------------------

    async def _spawn(self) -> str:
        info = await self.begin.spawn(self.session, self.policy)
        if self._stopped:  # while it was started
            await self._gateway.discard(info)
            raise SessionEnded
        self.adopt(info)
        self.queries.start()
        return info.kernel_id

    async def ready(self, fill: Fresh | None) -> None:
        """Start a kernel that is filled by ``fill``; raises the KernelError that kept it from that."""
        self.deliveries.fill = fill
        try:
            await self._ready_alone()
        finally:
            self.deliveries.fill = self._events.fill  # not what it was before: that may be what another caller has set

    async def _ready_alone(self) -> str:
        async with self.turn.lock, self.watched:
            return await self._ready()

    async def _ready(self) -> str:
        kernel_id = await self.start()
        if self.deliveries.outdated:
            await self._empty(await self._gateway.client(), kernel_id)
            self.deliveries.outdated, self.deliveries.fresh = False, True
        if self._behind:
            await self._catch_up(kernel_id)
        if self.deliveries.due:
            await self.deliveries.give(await self._gateway.client(), kernel_id)
            if self._behind:
                await self._catch_up(kernel_id)
        return kernel_id

    @property
    def _behind(self) -> bool:
        return self.bound.stale or self.queries.has_news

    async def _catch_up(self, kernel_id: str) -> None:
        """Bind and unbind until the kernel has what the rows say; hand in answers."""
        client = await self._gateway.client()
        self.notice = await self.bound.catch_up(client, kernel_id) or self.notice
        await self.queries.catch_up(client, kernel_id)

    async def _catch_up_alone(self) -> None:
        try:
            async with self.turn.lock, self.watched:
                if self.kernel_id is not None and self._behind:
                    await self._catch_up(self.kernel_id)
        except (KernelError, OSError) as error:
            self.bound.stale = True  # the next cell tries again, and says what is wrong
            log.warning("the kernel of session %s is not up to date: %s", self.session.id, error)

    def _on_event(self, event: Event) -> None:
        self.watched.asked += 1
        match event:
            case protocol.QueriesAsked(queries=asked):
                self.queries.add(asked)
            case protocol.Recovered():
                self.queries.wait_for(frozenset())  # the cell that waited went with its process
                self.budget_changed()
                self.deliveries.recovered(event)
            case protocol.WaitsFor(ids=ids):
                if known := self.queries.suspend(frozenset(ids)):
                    self._background.start(self._answer_cell(known))
            case protocol.CellEnded(cell=cell):
                self._events.cell(self.kernel_id or "", cell)
            case protocol.AttachmentChanged():
                self._attachment(event)
            case protocol.AnswersAssigned(given=given):
                self.queries.write_all()
                self._events.given(given)
            case protocol.LowMemory():
                self._events.low_memory()
            case protocol.KernelEnded(expelled=expelled):
                self._ended(expelled)

    def _ended(self, expelled: str) -> None:
        """The kernel is gone; its session ends with it if it was ``expelled``."""
        self.queries.write_all()
        if not self.busy:  # a running cell's own answer tells it
            self.notice = self.deliveries.loss or self.notice
        self.forget()
        if expelled:
            self.expelled = expelled
            self._events.expelled()

    def refresh(self, info: KernelInfo) -> None:
        """Take what the supervisor tells now for what events may have told before they were listened to."""
        self.attachments = list(info.attachments)
        if info.lost:
            self._on_event(protocol.Recovered(lost=info.lost))
        if info.waiting or info.state == KernelState.IDLE:  # a new one may be yet to hear that the cell waits
            self._on_event(protocol.WaitsFor(info.waiting))

    def _attachment(self, event: protocol.AttachmentChanged) -> None:
        """A front end has come, or one has left."""
        if event.open:
            self.attachments.append(event.attachment)
        elif event.attachment in self.attachments:
            self.attachments.remove(event.attachment)
        self._events.attachment(event)
