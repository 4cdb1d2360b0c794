"""The service behind the tools: one object for all clients, which share sessions through it.

It joins the rows (rlm_memory), the texts (rlm_contexts), the kernels (rlm_kernel) and the policies (rlm_sandbox), and
does not know MCP: tools call it with a `Caller` and get a `ToolAnswer`; `Service.render` turns that into text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rlm_client.rlm.prompts import is_set_up
from rlm_contexts.errors import ContextError
from rlm_contexts.search.pool import ScanWorkers
from rlm_contexts.store.store import ContextStore
from rlm_ipc import discovery, left_kernels
from rlm_ipc.daemon_requests import Tidied
from rlm_ipc.daemon_rows import JournalCell, OpenSession, RestingSession
from rlm_ipc.errors import KernelError
from rlm_ipc.json_lines import hooks_folder
from rlm_ipc.session_record import SessionRecord
from rlm_ipc.session_requests import KeepTurn, PolicyApplied, RestoreSession, SessionRestored, SessionSaved, TurnKept
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.caller import Caller
from rlm_mcp.service.cells.cell_answers import CUTTABLE, LEAST_OF_A_CELL
from rlm_mcp.service.cells.run import Run
from rlm_mcp.service.cells.runs import Runs, Waiting
from rlm_mcp.service.contexts.citations import Citing
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.contexts.handles import Handles
from rlm_mcp.service.contexts.reading import Reading
from rlm_mcp.service.contexts.sql import Tables
from rlm_mcp.service.contexts.variables import KernelVariables
from rlm_mcp.service.control import SessionControl
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.by_hand import FramesByHand
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.frames.reading import FrameReading
from rlm_mcp.service.frames.summaries import FrameSummaries
from rlm_mcp.service.frames.trees import FrameTrees
from rlm_mcp.service.frames.turns import FrameTurns
from rlm_mcp.service.holders import Holders
from rlm_mcp.service.hooks.hooks import Hooks
from rlm_mcp.service.lock.lock import Lock
from rlm_mcp.service.model_runs import ModelRuns
from rlm_mcp.service.overview import Overview
from rlm_mcp.service.queries.answering import GivenAnswer, QueryService
from rlm_mcp.service.queries.providers import Providers
from rlm_mcp.service.recursive_queries import Recursion
from rlm_mcp.service.session_events import Events
from rlm_mcp.service.sessions.attachments import Attachments
from rlm_mcp.service.sessions.budgets import Budgets
from rlm_mcp.service.sessions.forks import Forks
from rlm_mcp.service.sessions.journal import Journal, entry_row
from rlm_mcp.service.sessions.policies import Policies
from rlm_mcp.service.sessions.record import known_session, record_of
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.sessions.snapshots import Snapshots
from rlm_mcp.service.sessions.supervisor_gateway import Connect, KernelGateway, connect_host
from rlm_mcp.service.taking_over import TakingOver
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer, encode, fit, whole_of
from rlm_mcp.service.work.chains import Chains
from rlm_mcp.service.work.hand_offs import HandOffs
from rlm_mcp.service.work.work import Work
from rlm_memory import queries, sessions
from rlm_memory.errors import StoreFault
from rlm_memory.store import Store

__all__ = ["Caller", "Service"]

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 30.0


class Service:
    """The operations of the tools, by area: `contexts`, `reading`, `handles`, `queries`, `runs`, `control` and others.

    Use `Service.open`; there is one for each daemon.
    """

    def __init__(
        self,
        store: Store,
        files: ContextStore,
        *,
        clock: Clock = time.time,
        waiting: Waiting | None = None,
        connect: Connect = connect_host,
    ) -> None:
        self._store = store
        self._scanner = ScanWorkers(files)
        self._texts = Texts(store, files)
        self.gateway = KernelGateway(files, str(files.root), connect)
        self.policies = Policies(store)
        self._events = Events(self, store, self._texts, clock)
        self.sessions = Sessions(store, self.gateway, self.policies, self._events, clock)
        variables = KernelVariables(store)
        self.contexts = Contexts(store, self._texts, variables, self.sessions, clock)
        self.reading = Reading(store, self._texts, self.contexts, variables, self._scanner)
        self.citing = Citing(self._texts, self.contexts)
        self.tables = Tables(self._texts, self.contexts)
        self.handles = Handles(store, self.contexts, clock)
        self.budgets = Budgets(store)
        self.queries = QueryService(store, self.sessions, self.budgets, clock)
        self.providers = Providers(store, self.queries, self.budgets, Recursion(self, store, self.budgets), clock)
        self.journal = Journal(store, clock, self._events.cell_ended)
        self.runs = Runs(store, clock, waiting or Waiting(), self.journal, self.queries)
        state = files.root.parent
        asking = self.budgets, self.providers.asked
        self.snapshots = Snapshots(
            store, files, self.sessions, self.policies, self.journal, clock, state / "snapshots", *asking
        )
        self.control = SessionControl(store, self.sessions, self.runs, clock, self._events)
        self.attachments = Attachments(store, self.sessions, self.gateway, self.journal, clock)
        self.model_runs = ModelRuns(store, self.journal, variables, clock)
        self.watch = Overview(store, self.sessions, self.gateway, self.runs, self.journal, variables, self._events)
        self._forks = Forks(store, self.sessions, self.gateway, self.policies, clock)
        summaries = FrameSummaries(store, self.sessions, self.queries, self.providers)
        self.holders = Holders(store, clock, str(discovery.runtime_dir()))
        self.lock = Lock(store, self._texts, clock, state / "locks")
        live = self.sessions, self._forks, self.journal, summaries, self.holders, self.lock.frames
        self.frames = Frames(store, files, *live, clock, state / "frames")
        self.frame_reading = FrameReading(store, self.frames)
        self.trees = FrameTrees(store, self.frames, self.journal)
        self.turns = FrameTurns(store, self.frames, clock)
        self.work = Work(store, self.frames, self.holders, clock)
        self.chains = Chains(store, self.sessions, self.frames, clock)
        self.hand_offs = HandOffs(store, self._texts, self.contexts, self.frames, self.holders, clock)
        self.frames_by_hand = FramesByHand(store, self.frames, clock)
        self.hooks = Hooks(store, self.frames, self.holders, clock, Path(hooks_folder(str(state))))
        self._tasks: list[asyncio.Task[None]] = []
        self._left = state / left_kernels.FOLDER

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        state: Path | None = None,
        *,
        clock: Clock = time.time,
        waiting: Waiting | None = None,
        connect: Connect = connect_host,
        warm: bool = True,
    ) -> AsyncIterator[Service]:
        """Open the service on the user's state folder (or ``state``), with the sessions of the last daemon.

        ``warm`` starts the supervisor in the background, so that the first cell does not wait for it.
        """
        folder = state or discovery.state_dir()
        store = Store.open(folder / "rlm.sqlite3")
        service = cls(store, ContextStore(folder / "contexts"), clock=clock, waiting=waiting, connect=connect)
        try:
            with store.spare():
                await service._start(warm)
            yield service
        finally:
            await service._stop()
            store.close()

    @asynccontextmanager
    async def session(self, caller: Caller) -> AsyncIterator[Session]:
        """Bracket a call: open the caller's session, and keep it from idling during the call."""
        session = await self.opened(caller)
        with self.sessions.use(session):
            yield session

    async def opened(self, caller: Caller) -> Session:
        """End idle sessions, and return the caller's. `Sessions.use` keeps it from idling."""
        await self.control.sweep()
        self.holders.stir(caller.handshake)
        session = await self.sessions.open(caller.handshake, self.frames.session_named(caller.session))
        self.attachments.publish(session)
        if session.woken and session.policy.reopen:
            self.snapshots.reopen(session)
        return session

    async def follow(self, session: Session, run: Run, caller: Caller, *, patient: bool = False) -> ToolAnswer:
        """Wait for a run, as `Runs.follow` does.

        Its queries go to the client's own model, if the policy says so and the client has one.
        """
        sampling = caller.sampling if session.policy.llm.sampling else None
        if sampling is None:
            return await self.runs.follow(run, caller.progress, patient=patient)
        if brought := sampling.brought():
            await self.queries.answer(session, brought)
        loop = asyncio.get_running_loop()
        end = loop.time() + self.runs.longest
        while True:
            came = await self.runs.follow(run, caller.progress, longest=end - loop.time(), patient=patient)
            asked = session.kernel.queries.of_agent
            rows = [row for row in queries.pending(self._store, session.key) if row.id in asked]
            if not run.suspended or not rows or loop.time() >= end:
                return came
            given = await sampling.ask(run.id, rows, end - loop.time())
            if not (await self.queries.answer(session, given)).answered:
                return came

    async def answer_queries(self, session: Session, given: list[GivenAnswer], caller: Caller) -> ToolAnswer:
        """Store answers. If a cell waited for one of them, the answer includes its result, or its next queries."""
        waiting, run = session.kernel.queries.waiting, self.runs.suspended(session)
        taken = await self.queries.answer(session, given)
        told = taken.told()
        if run is None or waiting.isdisjoint(taken.answered):
            return told
        limit = session.policy.limits.answer_chars
        told.limit = limit // 2
        fields = json.loads(await self.render(session, told))
        try:
            came = await self.follow(session, run, caller)
            came.limit = came.limit or limit - len(encode(fields))
            fields |= json.loads(await self.render(session, came))
        except ToolFault as fault:
            fields |= fault.answer()
        return ToolAnswer(fields, (*CUTTABLE, *told.cuttable))

    async def fork(self, parent: Session, name: str | None, policy: str | None) -> ToolAnswer:
        """Create a session with a copy of every variable of ``parent``; see `Forks.fork`."""
        child, answer = await self._forks.fork(parent, name, policy)
        self.attachments.publish(child)
        return answer

    def list_sessions(self) -> tuple[OpenSession, ...]:
        """Return a row for each open session, for their owner; no tool shows it to agents."""
        return tuple(self.control.row(session) for session in self.sessions)

    def list_resting(self) -> tuple[RestingSession, ...]:
        """Return a row for each suspended session; reading it does not wake the session."""
        return tuple(self.control.resting())

    async def tidy(self) -> Tidied:
        """Delete what cannot be reached: expired sessions, and texts and snapshots without a session."""
        freed = self._texts.freed
        await self.sweep()
        self.snapshots.tidy()
        await self._texts.collect()
        self._store.purge()
        await asyncio.to_thread(self._store.compact)
        return Tidied(self._texts.freed - freed)

    def list_journal(self, session: str, last: int | None = None) -> tuple[JournalCell, ...]:
        """Return the cells that ran in a session, the oldest first; raises ToolFault if there is no such session."""
        entries = self.journal.of_session(known_session(self._store, session).key, last)
        return tuple(entry_row(entry) for entry in entries if not is_set_up(entry.code))

    async def note_turn(self, turn: KeepTurn) -> TurnKept:
        """Record a turn of a model in a session; raises ToolFault if there is no such session."""
        row = known_session(self._store, turn.session)
        return await self.model_runs.note(row, turn, self.sessions.get(row.id))

    async def record(self, session: str, last: int | None = None) -> SessionRecord:
        """Return a session's record: cells, policy, contexts and answers; raises ToolFault if it does not exist."""
        row = known_session(self._store, session)
        kept = self.attachments.spec_of(row), self.attachments.log(row.key)
        return record_of(self._store, self.journal, row, last, *kept)

    async def save_session(self, session: str, path: Path | None, *, embed: bool) -> SessionSaved:
        """Write a session to a file, waking it if it is suspended; raises what `Snapshots.save` does."""
        row = sessions.find(self._store, session)
        found = (await self.sessions.woken(row.key) if row else None) or self.sessions.named(session)
        with self.sessions.use(found):
            return await self.snapshots.save(found, path, embed=embed)

    async def restore_session(self, request: RestoreSession, handshake: ClientInfo) -> SessionRestored:
        """Open a session from a snapshot; raises what `Snapshots.restore` does."""
        answer = await self.snapshots.restore(request, handshake)
        found = self.sessions.get(answer.restored)
        if found is not None:
            self.attachments.publish(found)
        return answer

    async def apply_policy(self, session: str, policy: str, *, looser: bool) -> PolicyApplied:
        """Give a session another policy, by name or path, for its user; raises ToolFault if it is looser.

        Its kernel ends with its variables; loaded contexts are kept.
        """
        row = known_session(self._store, session)
        new = await self.policies.read(policy, row.workspace)
        more = self.policies.looser_than(row, new.policy)
        if more and not looser:
            said = f"{new.origin!r} permits more than {row.policy!r}: {'; '.join(more)}"
            raise ToolFault("policy_looser", said, "add --looser to confirm it")
        found = await self.sessions.change_policy(row, new, looser=bool(more))
        if found is not None:
            self.runs.drop(found.key)
            await self.attachments.close(found)
            self.attachments.publish(found)
            found.kernel.notice = f"its user gave this session another policy, {new.origin!r}: variables are lost"
        return PolicyApplied(session, new.origin, new.digest, tuple(more))

    async def sweep(self) -> list[str]:
        """End or suspend the sessions that were idle too long, and expire records of ended ones. Return their ids."""
        ended = await self.control.sweep()
        if discovery.is_full(self._left.parent):  # variables that cannot be saved now stay in memory
            return ended
        self.model_runs.expire()
        return [*ended, *await self.sessions.sweep(self.snapshots.reopening.save)]

    async def render(self, session: Session, answer: ToolAnswer) -> str:
        """Render an answer for the client; parts that do not fit are stored under a name."""
        if answer.text is None:
            limit = answer.limit or session.policy.limits.answer_chars
            if answer.parts:
                await self._gather(session, answer, limit)
            text = encode(answer.fields)
            if len(text) > limit or answer.spool is not None:
                text = fit(answer.fields, answer.cuttable, limit, await self._keep(session, answer))
            answer.text = text
        return answer.text

    async def _gather(self, session: Session, answer: ToolAnswer, limit: int) -> None:
        """Put the cells of a batch into its answer. Short ones leave their room to long ones."""
        parts, answer.cuttable = answer.parts, ("cells",)
        answer.fields["cells"] = [part.fields for part in parts]
        if len(encode(answer.fields)) > limit or any(part.spool for part in parts):
            apart, left = limit // len(parts) >= LEAST_OF_A_CELL, limit - len(parts) - 100
            for at, part in enumerate(sorted(parts, key=lambda part: len(encode(part.fields)))):
                part.limit = left // (len(parts) - at) if apart else LEAST_OF_A_CELL
                if apart or part.spool is not None:
                    part.fields = json.loads(await self.render(session, part))
                    left -= len(part.text or "")
            answer.fields["cells"] = [part.fields for part in parts]

    async def _keep(self, session: Session, answer: ToolAnswer) -> str:
        """Store a whole answer. Return its name, or the reason for a failure: a preview is shown anyway."""
        whole = answer.spool or whole_of(answer.fields, answer.cuttable)
        try:
            return await self.contexts.keep_output(session, whole)
        except (ContextError, StoreFault, OSError) as error:
            return f"(not kept: {error})"
        finally:
            if answer.spool is not None:
                with suppress(OSError):
                    await asyncio.to_thread(answer.spool.unlink)

    async def _start(self, warm: bool) -> None:
        self.snapshots.tidy()
        self.sessions.restore()
        self.attachments.tidy()
        found = TakingOver(self, self._events, self._store, self.gateway, self._left)
        alive = await found.kernels()
        await self.frames.recover()
        self.work.begin()
        await found.idled(alive)
        await self._events.gone()
        self.hooks.start()
        self._tasks += map(asyncio.create_task, (self._sweep_now_and_then(), *([self._warm()] if warm else [])))

    async def _stop(self) -> None:
        self.gateway.start_no_more()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self._events.aclose(), return_exceptions=True)
        for session in list(self.sessions):
            await self.snapshots.reopening.save(session, trial=False)
        await self.hooks.aclose()
        await self.lock.aclose()
        await self.runs.aclose()
        await self.providers.aclose()
        self.budgets.write_all()
        self.journal.close()
        self.frames.changes.close()
        self.holders.close()
        self.attachments.rest()
        self.sessions.close()
        self.gateway.close()
        await self._scanner.aclose()

    async def _warm(self) -> None:
        try:
            await self.gateway.client()
        except (KernelError, OSError, RuntimeError) as error:
            log.warning("the supervisor could not be started in advance: %s", error)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self.sweep()
                self.frames.spill()
                self.lock.projects.sweep()
                self.journal.trim_all()
                await asyncio.to_thread(self._store.compact)
            except Exception:
                log.exception("the sweep of idle sessions failed")
