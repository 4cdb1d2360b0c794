"""A session's kernel as the daemon sees it.

A kernel is started when it is first needed, given the session's contexts, and replaced when it dies. The rows
say which contexts a session has; a kernel is brought up to date just before each cell and, when it is idle,
soon after a change. So loading never waits for a running cell.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from rlm_contexts.errors import ContextError
from rlm_ipc import discovery, errors
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import KernelBusy, KernelDied, KernelError, SupervisorGone, UnknownKernel, machine_full
from rlm_ipc.kernel_reports import AskedQuery, BudgetUsed, CellResult, ForkInfo, KernelInfo, QueryOutcome, RollbackInfo
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.supervisor_protocol import Event, SpawnRequest
from rlm_kernel.supervisor_client import Execution, SupervisorClient
from rlm_mcp.service.sessions.kernel_events import KernelEvents
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_mcp.service.text_access import shared_text_of
from rlm_memory import contexts, queries, sessions
from rlm_memory.contexts import ContextRow
from rlm_memory.errors import SessionEnded
from rlm_memory.queries import QueryState
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store
from rlm_sandbox.policy import PinnedPolicy, without_language_wall

__all__ = ["KernelProxy"]

log = logging.getLogger(__name__)

Fresh = Callable[[SupervisorClient, str], Awaitable[None]]
"""Is given the connection and the id of a kernel."""

_STOP_SECONDS = 5.0
_TOLD_AT_ONCE = 64
"""Queries written down before the event loop sees to something else."""
LOST = "the kernel ended between two calls: its variables are lost, contexts are kept"


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
        self._fill: Fresh = events.fill
        """Fills a kernel that has just started, after its contexts and before its first cell."""
        self.attachments: list[str] = []
        """The attachments by which front ends have the session open, each as often as it is open."""
        self.expelled = ""
        """Why the supervisor has ended the kernel, and the session is about to end with it."""
        self.waiting: frozenset[str] = frozenset()
        """The queries that the running cell waits for."""
        self.provided: set[str] = set()
        """Queries that a provider is to answer."""
        self._told: list[AskedQuery] = []
        self._suspension: asyncio.Future[None] | None = None
        self._store = store
        self._gateway = gateway
        self._turn = asyncio.Lock()
        self._cells = 0
        self._starting = asyncio.Lock()
        self._attached: dict[str, int] = {}
        self._stale = True
        self._fresh = False
        self._refused = False
        """Whether the kernel has to hear that its code's own answers are not taken."""
        self._untold = False
        """Whether the kernel does not know what is used of the budget."""
        self._outcomes: dict[str, QueryOutcome] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._stopped = False

    @property
    def kernel_id(self) -> str | None:
        """The id of the live kernel."""
        return self.info.kernel_id if self.info is not None else None

    @property
    def alive(self) -> bool:
        """Whether the session has a kernel, as far as is known."""
        return self.kernel_id is not None

    def next_suspension(self) -> asyncio.Future[None]:
        """Return the future that is done when a cell begins to wait for answers; never cancel it."""
        if self._suspension is None:
            self._suspension = asyncio.get_running_loop().create_future()
        return self._suspension

    @property
    def asks(self) -> frozenset[str]:
        """The queries that the running cell waits for and an agent is to answer."""
        return self.waiting - self.provided

    @property
    def busy(self) -> bool:
        """Whether a cell runs or is about to."""
        return self._cells > 0

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Wait until no other cell of the session runs, and keep the others out."""
        self._cells += 1
        try:
            async with self._turn:
                yield
        finally:
            self._cells -= 1
        if self._behind and self.alive and not self.busy:
            self._later(self._catch_up_alone())

    async def start(self) -> str:
        """Return the id of the live kernel, starting one if there is none.

        Raises:
            SessionEnded: after `stop`.
            SessionExpelled: The supervisor has ended the session.
        """
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
            await self._drop()

    async def open(self) -> str:
        """Return the id of the live kernel for a front end: at once if it runs a cell, else when it is up to date."""
        if self.busy and self.kernel_id is not None:
            return self.kernel_id
        await self._ready_alone()
        return await self.start()

    def adopt(self, info: KernelInfo) -> None:
        """Take over a live kernel, one that an earlier daemon has started or a fork of another session's."""
        self._became(info)

    async def shadowed(self) -> set[str]:
        """Return the names of contexts that mean something else in code: a variable that took the name.

        A context that the kernel has not been given yet is none of them: it will take the name back.
        """
        if self.info is None:
            return set()
        try:
            client = await self._gateway.client(start=False)
            info = await client.kernel_info(self.info.kernel_id)
        except (KernelError, OSError):
            return set()
        return self.current(info.shadowed)

    async def fork(self, session: str, key: int, policy: PinnedPolicy) -> ForkInfo:
        """Fork the kernel for another session, of that name and key: as it is, or as it was before the cell that runs.

        Raises what `SupervisorClient.fork` does.
        """
        async with self.watched():
            if self.busy:  # the kernel cannot be brought up to date before its cell ends
                return await self._fork(await self.start(), session, key, policy)
            async with self.exclusive():
                return await self._fork(await self._ready(), session, key, policy)

    async def copy_for(self, attachment: str) -> str:
        """Fork the kernel without its language wall, for the front end at an attachment; returns the copy's kernel id.

        Raises what `SupervisorClient.fork` does.
        """
        async with self.watched():
            kernel_id = await self.open()
            rules = without_language_wall(self.policy.policy)
            label = {"copy_of": self.session.key, "attachment": attachment, "owner": self._gateway.owner}
            label["policy"] = self.policy.digest
            request = self._request(self.session.id, self.session.key, self.policy)
            request = replace(request, label=label, connection_file=None, trusted=True)
            client = await self._gateway.client()
            return (await client.fork(kernel_id, request, rules, writable=self._writable())).kernel.kernel_id

    async def _fork(self, kernel_id: str, session: str, key: int, policy: PinnedPolicy) -> ForkInfo:
        client = await self._gateway.client()
        request = self._request(session, key, policy)
        return await client.fork(kernel_id, request, policy.policy, writable=self._writable())

    async def execute(self, code: str) -> Execution:
        """Start a cell in an up-to-date kernel; the caller holds it (`exclusive`).

        Raises:
            KernelDied, SupervisorGone: the kernel could not be started or ended at once.
        """
        async with self.watched():
            kernel_id = await self._ready()
            return (await self._gateway.client()).execute(kernel_id, code)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Bracket anything that asks the kernel: when it turns out to be gone, that is noted here.

        One that has died (`KernelDied`) is not gone: the supervisor has put another process in its place.
        """
        try:
            yield
        except (SupervisorGone, UnknownKernel) as error:
            if isinstance(error, SupervisorGone):
                self._gateway.lost()
            self.forget()
            self.notice = LOST  # whoever asked may be no cell: the next cell must hear of it too
            if isinstance(error, UnknownKernel):
                raise KernelDied("the kernel has ended", Loss(Lost.EVERYTHING)) from error
            raise

    async def ask(self, question: Callable[[SupervisorClient, str], Awaitable[Any]]) -> Any:
        """Put a question to the live kernel; the caller has checked `alive`."""
        async with self.watched():
            kernel_id = await self.start()
            return await question(await self._gateway.client(), kernel_id)

    def changed(self) -> None:
        """Note that the contexts have changed: an idle kernel learns it soon, a busy one after its cell."""
        self._stale = True
        if self.alive and not self.busy:
            self._later(self._catch_up_alone())

    async def last_used(self) -> float:
        """When the kernel was last asked for something, by a notebook too (seconds since the epoch; 0: not known)."""
        if self.info is None:
            return 0.0
        try:
            client = await self._gateway.client(start=False)
            return (await client.kernel_info(self.info.kernel_id)).last_used
        except (KernelError, OSError):
            return 0.0

    async def hand_over(self, outcomes: Mapping[str, QueryOutcome], *, refused: bool = False) -> None:
        """Give answers of queries to the kernel: now if it is idle or waits for some, else when its cell has ended.

        ``refused`` says that what code has assigned to ``llm_answers`` is not taken.
        """
        self._refused = self._refused or refused
        if self.waiting:
            await asyncio.wait({self._later(self._answer_cell(outcomes))}, timeout=_STOP_SECONDS)
            return
        self._outcomes.update(outcomes)
        if self.alive and not self.busy:
            await asyncio.wait({self._later(self._catch_up_alone())}, timeout=_STOP_SECONDS)

    def refuse(self, ids: list[str], reason: str, *, over: bool = False) -> None:
        """Let queries fail that nobody could answer; told to the code that uses them, and with the next answer.

        ``over`` says that the budget is used up.
        """
        self.notice = f"{', '.join(ids)} failed: {reason}"
        self._later(self.hand_over(dict.fromkeys(ids, QueryOutcome(error=reason, over=over))))

    def budget_changed(self) -> None:
        """Have the kernel told, before its next cell, what is used of the budget."""
        self._untold = True

    async def _answer_cell(self, outcomes: Mapping[str, QueryOutcome]) -> None:
        """Hand answers to a cell that waits, past everything that is queued behind it."""
        try:
            await self.ask(lambda client, kernel_id: client.answer(kernel_id, outcomes, self._events.used()))
        except (KernelError, OSError, SessionEnded) as error:
            self._outcomes = {**outcomes, **self._outcomes}
            log.warning("the kernel of session %s has not taken its answers: %s", self.session.id, error)

    def finished(self, result: CellResult) -> str:
        """Take note of what a cell did to the globals; return what its answer has to say of the names of contexts.

        A context that was loaded again while the cell ran is not one of them: the cell took the earlier one's.
        """
        self.names.update(result.defined)
        return _of_names(self.current(result.shadowed), self.current(result.returned))

    def current(self, names: Iterable[str]) -> set[str]:
        """Return those of the names whose contexts the kernel has as they are now."""
        rows = {name: contexts.find(self._store, self.session.key, name) for name in names}
        return {name for name, row in rows.items() if row and self._attached.get(name) == row.revision}

    async def stop(self) -> None:
        """End the kernel and free its memory, for good: no other is started in its place."""
        self._stopped = True
        await self._drop()

    async def _drop(self) -> None:
        """End the kernel, if there is one, with what is under way for it."""
        for task in list(self._background):
            task.cancel()
        info = self.info
        self.forget()
        self._outcomes.clear()
        self._told.clear()
        if info is not None:
            await self.discard(info)

    async def discard(self, info: KernelInfo) -> None:
        """End a kernel that is, or was to become, this session's or a fork's, and remove what it leaves."""
        await self._gateway.discard(info)

    async def rollback(self, cells: int) -> RollbackInfo:
        """Undo the last completed cells.

        Raises what `SupervisorClient.rollback` does; KernelBusy also while a cell runs or waits.
        """
        if self.busy:
            raise KernelBusy("the session runs a cell; wait for it, or interrupt it: then memory is as before it")
        async with self.exclusive(), self.watched():
            kernel_id = await self.start()
            done = await (await self._gateway.client()).rollback(kernel_id, cells)
        self.names.difference_update(done.gone)
        self.budget_changed()
        return done

    async def restart(self) -> None:
        """Begin anew with an empty namespace and the loaded contexts; starts a kernel if there is none."""
        if self.kernel_id is not None:
            await self.ask(lambda client, kernel_id: client.restart(kernel_id))
        self.names.clear()
        self.notice = ""
        self._attached.clear()
        self._stale = self._untold = True
        await self.ready(_leave_empty)  # who wants it empty does not want what was saved

    def forget(self) -> None:
        """Let go of the kernel without ending it."""
        if self.info is not None:
            self._gateway.unlisten(self.info.kernel_id)
        self.info = None
        self._waits_for(frozenset())
        self.attachments.clear()
        self.names.clear()
        self._attached.clear()
        self._stale = True

    # --- starting and catching up -----------------------------------------------------------------

    async def _spawn(self) -> str:
        request = self._request(self.session.id, self.session.key, self.policy)
        try:
            client = await self._gateway.client()
            info = await client.spawn(request, self.policy.policy, writable=self._writable())
        except SupervisorGone:
            # The supervisor ended since it was last used: one more try with a new one.
            self._gateway.lost()
            client = await self._gateway.client()
            info = await client.spawn(request, self.policy.policy, writable=self._writable())
        if self._stopped:  # while it was started
            await self.discard(info)
            raise SessionEnded
        self._became(info)
        self._fresh = True
        self._untold = self._events.used() != BudgetUsed()
        self._outcomes = self._resolved()
        return info.kernel_id

    def _request(self, session: str, key: int, policy: PinnedPolicy) -> SpawnRequest:
        kernel_id = secrets.token_hex(8)
        return SpawnRequest(
            kernel_id=kernel_id,
            workspace=self.session.workspace or None,
            connection_file=str(discovery.runtime_dir() / "connections" / f"{kernel_id}.json"),
            query_base=queries.next_in_code(self._store, session),
            label={"session": session, "key": key, "owner": self._gateway.owner, "policy": policy.digest},
        )

    def _writable(self) -> frozenset[str]:
        """The folders that any session may write."""
        return frozenset(sessions.writable(self._store))

    def _became(self, info: KernelInfo) -> None:
        self.forget()
        self.info = info
        self.waiting = frozenset(info.waiting)
        self.attachments = list(info.attachments)
        self._attached.update(info.contexts)
        self._gateway.listen(info.kernel_id, self._on_event)

    def _resolved(self) -> dict[str, QueryOutcome]:
        """The answers that a fresh kernel's predecessor had, so that its ``llm_answers`` holds them too."""
        resolved = queries.of_session(self._store, self.session.key, QueryState.ANSWERED, QueryState.FAILED)
        return {row.id: _outcome(row) for row in resolved}

    async def ready(self, fill: Fresh) -> None:
        """Start a kernel that is filled by ``fill``; raises the KernelError that kept it from that."""
        self._fill, before = fill, self._fill
        try:
            await self._ready_alone()
        finally:
            self._fill = before

    async def _ready_alone(self) -> None:
        async with self._turn, self.watched():
            await self._ready()

    async def _ready(self) -> str:
        kernel_id = await self.start()
        if self._behind:
            await self._catch_up(kernel_id)
        if self._fresh:
            self._fresh = False
            await self._fill(await self._gateway.client(), kernel_id)
        return kernel_id

    @property
    def _behind(self) -> bool:
        return self._stale or self._untold or self._refused or bool(self._outcomes)

    async def _catch_up(self, kernel_id: str) -> None:
        """Bind and unbind until the kernel has what the rows say; hand in answers."""
        client = await self._gateway.client()
        if self._stale:
            self._stale = False
            await self._catch_up_contexts(client, kernel_id)
        if self._outcomes or self._untold or self._refused:
            outcomes, refused = self._outcomes, self._refused
            self._outcomes, self._untold, self._refused = {}, False, False
            await client.answer(kernel_id, outcomes, self._events.used(), refused=refused)

    async def _catch_up_contexts(self, client: SupervisorClient, kernel_id: str) -> None:
        wanted = {row.name: row for row in contexts.of_session(self._store, self.session.key)}
        for name in [name for name in self._attached if name not in wanted]:
            del self._attached[name]
            await client.unbind(kernel_id, name)
        for row in wanted.values():
            if self._attached.get(row.name) != row.revision:
                await self._bind(client, kernel_id, row)

    async def _bind(self, client: SupervisorClient, kernel_id: str, row: ContextRow) -> None:
        """Bind one context. One that cannot be bound is told with the next answer; cells run without it."""
        self._attached[row.name] = row.revision
        texts = self._gateway.texts
        try:
            with await shared_text_of(texts, row.digest) as shared_text:
                facts = row.type, row.metadata
                await client.bind(kernel_id, row.name, shared_text, *facts, revision=row.revision)
        except (KernelDied, SupervisorGone, UnknownKernel):
            raise
        except (ContextError, KernelError, OSError, RuntimeError) as error:
            if machine_full(error) is not None:  # for now: the next cell tries again
                del self._attached[row.name]
                self._stale = True
            log.warning("context %s of session %s cannot be attached: %s", row.name, row.session, error)
            self.notice = f"{row.name!r} could not be made a variable, but peek and scan read it: {error}"

    async def _catch_up_alone(self) -> None:
        try:
            async with self._turn, self.watched():
                if self.kernel_id is not None and self._behind:
                    await self._catch_up(self.kernel_id)
        except (KernelError, OSError) as error:
            self._stale = True  # the next cell tries again, and says what is wrong
            log.warning("the kernel of session %s is not up to date: %s", self.session.id, error)

    # --- events -----------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case protocol.QueriesAsked(queries=asked):
                self._asked(asked)
            case protocol.Recovered():
                self.budget_changed()
            case protocol.WaitsFor(ids=ids):
                self._suspended(frozenset(ids))
            case protocol.CellEnded(cell=cell):
                self._events.cell(self.kernel_id or "", cell)
            case protocol.AttachmentChanged():
                self._attachment(event)
            case protocol.AnswersAssigned(given=given):
                self.tell_all()
                self._events.given(given)
            case protocol.KernelEnded(expelled=expelled):
                self._ended(expelled)

    def _ended(self, expelled: str) -> None:
        """The kernel is gone; its session ends with it if it was ``expelled``."""
        self.tell_all()
        if not self.busy:  # a running cell's own answer tells it
            self.notice = LOST
        self.forget()
        if expelled:
            self.expelled = expelled
            self._events.expelled()

    def _attachment(self, event: protocol.AttachmentChanged) -> None:
        """A front end has come, or one has left."""
        if event.open:
            self.attachments.append(event.attachment)
        elif event.attachment in self.attachments:
            self.attachments.remove(event.attachment)
        self._events.attachment(event)

    def _asked(self, told: Sequence[AskedQuery]) -> None:
        """Take note of queries, together with those that come with them; before whatever the cell does next."""
        self.provided.update(query.id for query in told if query.mode == "provider")
        if not self._told:
            asyncio.get_running_loop().call_soon(self._tell_some)
        self._told += told

    def _tell_some(self) -> None:
        """Have some queries written down; while the others wait, requests for these go out."""
        some, self._told = self._told[:_TOLD_AT_ONCE], self._told[_TOLD_AT_ONCE:]
        if self._told:
            asyncio.get_running_loop().call_soon(self._tell_some)
        if some:
            self._events.asked(some)

    def tell_all(self) -> None:
        """Have all queries that were told written down."""
        told, self._told = self._told, []
        if told:
            self._events.asked(told)

    def _suspended(self, ids: frozenset[str]) -> None:
        """A cell waits for answers, or goes on. Answers that came before it waited are handed in now."""
        if not ids or not ids <= self.provided:
            self.tell_all()  # whoever sees that the cell waits for an agent, or for nobody, has to see what was asked
        self._waits_for(ids)
        if not ids:
            return
        suspension, self._suspension = self._suspension, None
        if suspension is not None:
            suspension.set_result(None)
        known = {name: self._outcomes.pop(name) for name in ids if name in self._outcomes}
        if known:
            self._later(self._answer_cell(known))

    def _waits_for(self, ids: frozenset[str]) -> None:
        before, self.waiting = self.waiting, ids
        if before - ids:
            self._events.dropped(before - ids)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _of_names(taken: Collection[str], returned: Collection[str]) -> str:
    """Say which names of loaded texts a cell has taken, and which mean their texts again."""
    told = []
    if taken:
        told.append(
            f"{_listed(taken)}: in code now a variable, which shadows the loaded text. The text stays: peek, scan, "
            "var_info and query read it by this name, `del` of the name brings it back in code, unload removes it"
        )
    if returned:
        told.append(f"{_listed(returned)}: in code the loaded text again, which only unload removes")
    return "; ".join(told)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


async def _leave_empty(_client: SupervisorClient, _kernel_id: str) -> None:
    """Fill a kernel with nothing."""


def _outcome(row: queries.QueryRow) -> QueryOutcome:
    if row.state is QueryState.FAILED:
        return QueryOutcome(error=row.error or "failed")
    return QueryOutcome(answer=row.answer or "")
