"""What the service does when something happens to a session or in its kernel.

`Sessions` and `KernelProxy` tell it, and know it by the protocols `SessionEvents` and `KernelEvents` only. The parts
that act on it need the sessions themselves. So they are looked up in `Parts` when something happens, and not before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from rlm_contexts.errors import ContextError
from rlm_ipc import processes
from rlm_ipc.errors import KernelError
from rlm_ipc.kernel_reports import AskedQuery, BudgetUsed, CellNote, GivenAnswers
from rlm_ipc.supervisor_protocol import AttachmentChanged
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.background import BackgroundTasks
from rlm_mcp.service.cells.runs import Runs
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.model_runs import ModelRuns
from rlm_mcp.service.queries.answering import QueryService
from rlm_mcp.service.queries.providers import Providers
from rlm_mcp.service.sessions.attachments import Attachments
from rlm_mcp.service.sessions.budgets import Budgets
from rlm_mcp.service.sessions.durable import DurableSaves
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.sessions.snapshots import Snapshots
from rlm_mcp.service.text_access import Texts
from rlm_memory import inherited_queries
from rlm_memory.errors import SessionEnded, StoreFault
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

log = logging.getLogger(__name__)

_TIDY_SECONDS = 0.05
_MOST_TIDY_SECONDS = 30.0


class Parts(Protocol):
    """The parts of the service that act on what happens."""

    sessions: Sessions
    """The open sessions."""
    runs: Runs
    """Their cells."""
    queries: QueryService
    """Their queries."""
    providers: Providers
    """What answers queries without an agent."""
    budgets: Budgets
    """What they have used."""
    journal: Journal
    """What ran in them."""
    snapshots: Snapshots
    """What is saved of them."""
    attachments: Attachments
    """The front ends that have them open."""
    frames: Frames
    """The goals that they work for."""
    model_runs: ModelRuns
    """The models that work in them."""


class Events:
    """Takes what happens to sessions; see `sessions.sessions.SessionEvents`."""

    def __init__(self, parts: Parts, store: Store, texts: Texts, clock: Clock) -> None:
        self._parts, self._store, self._texts = parts, store, texts
        self._tasks = BackgroundTasks()
        self.durable = DurableSaves(self._save, clock)
        self._tidying: asyncio.Task[None] | None = None
        """Removes what of sessions that have ended could not be removed at once, because it was being read."""

    async def ending(self, session: SessionRow) -> None:
        """Write down what came of the goals and the run that are worked on in a session, before its rows go."""
        self._parts.model_runs.ending(session)  # first: whose child a run is, frames tell
        await self._parts.frames.end_session(session)
        inherited_queries.pass_on(self._store, session.key)

    def ended(self, session: Session) -> None:
        """Let go of a session whose rows have gone, and remove its small files."""
        self._parts.runs.drop(session.key)
        self._parts.providers.drop(session)
        self._parts.budgets.forget(session.key)
        self._parts.journal.forget(session.key)
        self.durable.forget(session.key)
        self._parts.snapshots.lasting.forget(session.key)
        self._parts.attachments.withdraw(session)

    def ended_at_rest(self, row: SessionRow) -> None:
        """Remove what was saved of a session that nobody has used again."""
        self._parts.snapshots.lasting.forget(row.key)

    def rests(self, session: Session) -> None:
        """Stop what is under way for a session that begins to rest, and write down what came of it."""
        self._parts.runs.drop(session.key)
        self.durable.forget(session.key)
        self._parts.budgets.write(session.key)
        self._parts.providers.drop(session)
        self._parts.budgets.forget(session.key)
        self._parts.journal.flush()
        self._parts.attachments.withdraw(session)

    async def gone(self) -> None:
        """Remove what sessions that have ended leave in files, and give back the memory that they had."""
        await self._parts.attachments.end_copies()
        tidy = await self._tidied()
        processes.trim_heap()
        if not tidy and (self._tidying is None or self._tidying.done()):
            self._tidying = self.soon(self._tidy_later())

    def of_kernel(self, row: SessionRow) -> KernelEvents:
        """Return what takes the events of the kernel of a session."""
        return KernelEvents(self, self._parts, row)

    def soon(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done in a task, which ends with the service at the latest."""
        return self._tasks.start(work)

    def cell_ended(self, session: int) -> bool:
        """Have saved what a cell has changed, if the policy of its session asks for that; returns whether it does."""
        found = self._parts.sessions.of_key(session)
        return found is not None and self.durable.changed(found)

    async def restarted(self, session: Session) -> None:
        """Forget what was saved of a session that begins anew: no later kernel is to be given it."""
        lasting = self._parts.snapshots.lasting
        async with lasting.lock(session.key):  # a save that is under way would bring it back
            lasting.forget(session.key)
        self.durable.changed(session)

    async def _save(self, session: Session) -> str:
        return await self._parts.snapshots.reopening.save_pieces(session)

    async def aclose(self) -> None:
        """Stop what is under way."""
        await self.durable.aclose()
        self._tasks.cancel()
        await self._tasks.wait()

    async def _tidied(self) -> bool:
        """Remove texts that nobody holds and deleted rows from the files; whether that is all."""
        left = (await self._texts.collect()).leased
        return self._store.purge() and not left

    async def _tidy_later(self) -> None:
        """Look again, ever less often, until nobody reads what is to go: kernels take a moment to end."""
        wait = _TIDY_SECONDS
        while True:
            await asyncio.sleep(wait)
            with suppress(ContextError, StoreFault, OSError):
                if await self._tidied():
                    return
            wait = min(2 * wait, _MOST_TIDY_SECONDS)


class KernelEvents:
    """Takes what happens in the kernel of one session; see `sessions.kernel_events.KernelEvents`.

    A kernel may still tell something when its session has ended. Then there is nobody to take it.
    """

    def __init__(self, events: Events, parts: Parts, row: SessionRow) -> None:
        self._events, self._parts, self._row = events, parts, row

    def asked(self, told: Sequence[AskedQuery]) -> None:
        """Write queries down that code has asked, and have those answered that need no agent."""
        if (session := self._session()) is None:
            return
        try:
            rows = self._parts.queries.note(session, told)
        except StoreFault as error:
            session.kernel.refuse([query.id for query in told], f"it could not be recorded: {error}")
            return
        self._parts.providers.asked(session, rows)

    def given(self, told: GivenAnswers) -> None:
        """Take answers that a person's cell has assigned; what is wrong with them the next answer tells."""
        if (session := self._session()) is not None:
            self._events.soon(self._take(session, told))

    def dropped(self, ids: frozenset[str]) -> None:
        """Stop working on queries that no cell waits for any more."""
        if (session := self._session()) is not None:
            self._parts.providers.withdraw(session, ids)

    def used(self) -> BudgetUsed:
        """Return what queries of the session have used of its budget."""
        session = self._session()
        return BudgetUsed() if session is None else self._parts.budgets.used(session)

    def cell(self, kernel_id: str, note: CellNote) -> None:
        """Write down a cell that has ended."""
        if (session := self._session()) is not None:
            self._parts.journal.told(session.key, kernel_id, note)

    def attachment(self, event: AttachmentChanged) -> None:
        """Write down that a front end has come or left."""
        if (session := self._session()) is not None:
            self._parts.attachments.noted(session, event)

    def began_anew(self) -> None:
        """Remove what was saved of the session: no later kernel is to be given it."""
        if (session := self._session()) is not None:
            self._events.soon(self._events.restarted(session))

    def saved_later(self, lost: int) -> bool:
        """Whether variables on the disk are later than those that a kernel has which lacks so many cells."""
        session = self._session()
        if session is None or session.policy.checkpoint != "durable":
            return False
        return self._events.durable.of(session).cells < lost and self._parts.snapshots.lasting.exists(session.key)

    def low_memory(self) -> None:
        """Save the session and let it rest until it is used again, if its policy has it come back."""
        if (session := self._session()) is not None:
            self._events.soon(self._make_room(session))

    def expelled(self) -> None:
        """End the session, which has lost its kernel for what its code has tried, when its runs have been told."""
        if (session := self._session()) is not None:
            self._events.soon(self._expel(session))

    def has_saved(self) -> bool:
        """Whether the session comes back with variables that were saved."""
        session = self._session()
        return session is not None and session.policy.reopen and self._parts.snapshots.lasting.exists(session.key)

    async def fill(self, client: SupervisorClient, kernel_id: str) -> bool:
        """Give a kernel that has just started the variables that were saved of the session, if there are any."""
        session = self._session()
        if session is None or not session.policy.reopen:
            return False
        return await self._parts.snapshots.reopening.revive(session, client, kernel_id)

    async def deliver(self, client: SupervisorClient, kernel_id: str, *, again: bool) -> None:
        """Give a kernel what frames below have handed over."""
        if (session := self._session()) is not None:
            await self._parts.frames.values.deliver(session, client, kernel_id, again=again)

    def _session(self) -> Session | None:
        found = self._parts.sessions.get(self._row.id)
        return found if found is not None and found.key == self._row.key else None

    async def _take(self, session: Session, told: GivenAnswers) -> None:
        with suppress(KernelError, StoreFault, SessionEnded):
            session.kernel.notice = await self._parts.queries.given(session, told) or session.kernel.notice

    async def _make_room(self, session: Session) -> None:
        """Save a session and end its kernel, if nothing uses it and its policy has it come back by itself."""
        if not session.policy.reopen or session.is_used():
            return
        used, snapshots, sessions = session.last_used, self._parts.snapshots, self._parts.sessions
        unsaved = await snapshots.reopening.save(session, trial=False)
        saved = not unsaved and snapshots.lasting.exists(session.key)
        if saved and not session.is_used() and session.last_used == used and sessions.get(session.id) is session:
            log.warning("memory is short: session %s is saved, and its kernel ended until it is used again", session.id)
            await sessions.idled(session, used, "")

    async def _expel(self, session: Session) -> None:
        await self._parts.runs.finished(session)
        await self._parts.sessions.expel(session)
