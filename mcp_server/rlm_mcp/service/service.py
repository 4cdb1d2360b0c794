"""The service behind the tools: one object for all clients, which share sessions through it.

It joins the rows (rlm_memory), the texts and kernels (rlm_kernel) and the policies (rlm_sandbox), and has no
idea of MCP: tools call it with a `Caller` and get an `Answer`; `Service.render` makes the text of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlm_kernel import process, rendezvous
from rlm_kernel.contexts.errors import ContextError
from rlm_kernel.contexts.store import ContextStore
from rlm_kernel.contexts.workers import ScanWorkers
from rlm_kernel.errors import KernelError
from rlm_kernel.hostclient import KernelInfo
from rlm_mcp.errors import ClientFault
from rlm_mcp.hello import ClientHello
from rlm_mcp.sampling import Sampling
from rlm_mcp.service.answers import Answer, encode, fit, whole_of
from rlm_mcp.service.budgets import Budgets
from rlm_mcp.service.citing import Citing
from rlm_mcp.service.contexts import Contexts
from rlm_mcp.service.control import Control
from rlm_mcp.service.doors import Doors
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.forks import Forks
from rlm_mcp.service.gateway import Connect, KernelGateway, connect_host
from rlm_mcp.service.handles import Handles
from rlm_mcp.service.journal import Journal, entry_row
from rlm_mcp.service.policies import Policies
from rlm_mcp.service.progress import Progress
from rlm_mcp.service.providers import Providers
from rlm_mcp.service.queries import GivenAnswer, Queries
from rlm_mcp.service.reading import Reading
from rlm_mcp.service.record import known_session, note_turn, record_of
from rlm_mcp.service.recursion import Recursion
from rlm_mcp.service.runs import CUTTABLE, Run, Runs, Waiting
from rlm_mcp.service.sessions import Clock, Session, Sessions
from rlm_mcp.service.snapshots import Request, Snapshots
from rlm_mcp.service.tables import Tables
from rlm_mcp.service.texts import Texts
from rlm_mcp.service.variables import KernelVariables
from rlm_mcp.service.watch import Watch
from rlm_memory import queries
from rlm_memory.errors import SessionEnded, StoreFault
from rlm_memory.store import Store
from rlm_sandbox.errors import PolicyError

__all__ = ["Caller", "Service"]

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 30.0
_TIDY_SECONDS = 0.05


@dataclass(frozen=True)
class Caller:
    """Who calls a tool: the client, the session that the call itself names, where progress goes, and its own model."""

    hello: ClientHello
    session: str | None
    progress: Progress
    sampling: Sampling | None = None


class Service:
    """Everything the tools can do, by noun: `contexts`, `reading`, `handles`, `queries`, `runs`, `control`.

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
        self.sessions = Sessions(store, self.gateway, self.policies, clock)
        variables = KernelVariables(store)
        self.contexts = Contexts(store, self._texts, variables, clock)
        self.reading = Reading(store, self._texts, self.contexts, variables, self._scanner)
        self.citing = Citing(self._texts, self.contexts)
        self.tables = Tables(self._texts, self.contexts)
        self.handles = Handles(store, self.contexts, clock)
        self.budgets = Budgets(store)
        self.queries = Queries(store, self.budgets, clock)
        self.providers = Providers(store, self.queries, self.budgets, clock)
        self.providers.recurse = Recursion(self, store, self.providers, self.budgets).answer
        self.journal = Journal(store, clock)
        self.runs = Runs(store, clock, waiting or Waiting(), self.journal, self.queries, self.budgets)
        snapshots = files.root.parent / "snapshots"
        asking = self.budgets, self.providers.asked
        self.snapshots = Snapshots(store, files, self.sessions, self.policies, self.journal, clock, snapshots, *asking)
        self.control = Control(store, self.sessions, self.runs, self.gateway, clock)
        self.doors = Doors(store, self.sessions, self.gateway, self.journal, clock)
        self.sessions.on_ended = self._ended
        self.sessions.on_rest = self._rests
        self.sessions.on_gone = self._gone
        self.watch = Watch(store, self.sessions, self.gateway, self.runs, self.journal, variables)
        self._forks = Forks(store, self.sessions, self.policies, clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._sweeping = asyncio.Lock()
        self._tidying: asyncio.Task[None] | None = None
        """Removes what of sessions that have ended could not be removed at once, because it was being read."""

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

        ``warm`` starts the kernel host in the background, so that the first cell need not wait for it.
        """
        folder = state or rendezvous.state_dir()
        store = Store.open(folder / "rlm.sqlite3")
        service = cls(store, ContextStore(folder / "contexts"), clock=clock, waiting=waiting, connect=connect)
        try:
            await service._start(warm)
            yield service
        finally:
            await service._stop()
            store.close()

    @asynccontextmanager
    async def session(self, caller: Caller) -> AsyncIterator[Session]:
        """Bracket one call: end what has idled, open the caller's session, keep it from idling meanwhile."""
        await self.sweep()
        session = await self.sessions.open(caller.hello, caller.session)
        self._listen(session)
        if session.woken and session.policy.reopen:
            self.snapshots.reopen(session)
        with self.sessions.use(session):
            yield session

    async def follow(self, session: Session, run: Run, caller: Caller) -> Answer:
        """Wait for a run. What it asks goes to the client's own model, if the policy says so and the client has one."""
        sampling = caller.sampling if session.policy.llm.sampling else None
        if sampling is None:
            return await self.runs.follow(run, caller.progress)
        if brought := sampling.brought():
            await self.queries.answer(session, brought)
        loop = asyncio.get_running_loop()
        end = loop.time() + self.runs.longest
        while True:
            came = await self.runs.follow(run, caller.progress, longest=end - loop.time())
            rows = [row for row in queries.pending(self._store, session.key) if row.id in session.kernel.asks]
            if not run.suspended or not rows or loop.time() >= end:
                return came
            given = await sampling.ask(run.id, rows, end - loop.time())
            if not (await self.queries.answer(session, given)).fields["answered"]:
                return came

    async def answer_queries(self, session: Session, given: list[GivenAnswer], caller: Caller) -> Answer:
        """Take answers. Of a cell that waited for one of them the answer tells what came of it, or what it asks now."""
        waiting, run = session.kernel.waiting, self.runs.suspended(session)
        taken = await self.queries.answer(session, given)
        if run is None or waiting.isdisjoint(taken.fields["answered"]):
            return taken
        limit = session.policy.limits.answer_chars
        taken.limit = limit // 2
        fields = json.loads(await self.render(session, taken))
        try:
            came = await self.follow(session, run, caller)
            came.limit = came.limit or limit - len(encode(fields))
            fields |= json.loads(await self.render(session, came))
        except ToolFault as fault:
            fields |= fault.answer()
        return Answer(fields, (*CUTTABLE, *taken.cuttable))

    async def fork(self, parent: Session, name: str | None, policy: str | None) -> Answer:
        """Make a session that begins with every variable of ``parent``; see `Forks.fork`."""
        child, answer = await self._forks.fork(parent, name, policy)
        self._listen(child)
        return answer

    def list_sessions(self) -> list[dict[str, Any]]:
        """One row for each open session, for the person whose sessions they are; no tool gives it to agents."""
        return [self.control.row(session) for session in self.sessions]

    def list_resting(self) -> list[dict[str, Any]]:
        """One row for each session that has idled away and is kept; to look at it does not wake it."""
        return self.control.resting()

    async def tidy(self) -> dict[str, Any]:
        """Free what nobody can reach: sessions that were due, texts and snapshots of none; ``freed_bytes`` of texts."""
        freed, ended = self._texts.freed, await self.sweep()
        self.snapshots.tidy()
        left = (await self._texts.collect()).leased
        self._store.purge()
        freed = self._texts.freed - freed
        return {"ended": ended, "freed_bytes": freed, "still_read": left, "resting": self.list_resting()}

    def list_journal(self, session: str, last: int | None = None) -> list[dict[str, Any]]:
        """What ran in a session, the oldest cell first; raises ToolFault if there is none."""
        row = known_session(self._store, session)
        return [entry_row(entry) for entry in self.journal.of_session(row.key, last)]

    def list_queries(self, session: str) -> list[dict[str, Any]]:
        """The pending queries of a session with their whole prompts, for the program that answers them."""
        return self.queries.list_pending(session)

    async def note_turn(self, told: object) -> dict[str, Any]:
        """Keep a turn of a model that works in a session; raises ToolFault when it is none, or of no session."""
        return note_turn(self._store, told)

    async def record(self, session: str, last: int | None = None) -> dict[str, Any]:
        """What ran in a session with its policy, contexts and answers; raises ToolFault if there is none."""
        row = known_session(self._store, session)
        told = {"kernelspec": self.doors.spec_of(row), "doors": self.doors.log(row.key)}
        return record_of(self._store, self.journal, session, last) | told

    async def save_session(self, session: str, path: Path | None, *, embed: bool) -> dict[str, Any]:
        """Write an open session to a file; raises ToolFault (with what to do) when that cannot be done."""
        found = self.sessions.get(session)
        if found is None:
            raise ToolFault("session_not_found", f"no session {session[:80]} is open", "list them: rlm-kernel sessions")
        try:
            with self.sessions.use(found):
                return await self.snapshots.save(found, path, embed=embed)
        except (KernelError, StoreFault, ClientFault) as error:
            raise fault_from(error) from error

    async def restore_session(self, request: Request, hello: ClientHello) -> dict[str, Any]:
        """Open a session from a snapshot; raises ToolFault or SnapshotRefused."""
        try:
            answer = await self.snapshots.restore(request, hello)
        except (KernelError, StoreFault) as error:
            raise fault_from(error) from error
        found = self.sessions.get(answer["restored"])
        if found is not None:
            self._listen(found)
        return answer

    async def apply_policy(self, session: str, policy: str, *, looser: bool) -> dict[str, Any]:
        """Give a session another policy: its user's word, by name or path; raises ToolFault with what to do.

        Its kernel ends with its variables; loaded contexts stay.
        """
        row = known_session(self._store, session)
        try:
            new = await self.policies.read(policy, row.workspace)
            more = self.policies.looser_than(row, new.policy)
            if more and not looser:
                said = f"{new.origin!r} permits more than {row.policy!r}: {'; '.join(more)}"
                raise ToolFault("policy_looser", said, "say --looser if that is what you want")
            found = await self.sessions.change_policy(row, new, looser=bool(more))
        except (PolicyError, KernelError, StoreFault, SessionEnded) as error:
            raise fault_from(error) from error
        if found is not None:
            self.runs.drop(found.key)
            await self.doors.close(found)
            self._listen(found)
            found.kernel.notice = f"its user gave the session another policy, {new.origin!r}: variables are lost"
        return {"session": session, "policy": new.origin, "policy_sha256": new.digest, "permits_more": more}

    async def enter_door(self, door: str, key: str) -> dict[str, Any]:
        """Let a front end into the session of a door; raises ToolFault with what to do."""
        try:
            return await self.doors.enter(door, key)
        except (KernelError, StoreFault) as error:
            raise fault_from(error) from error

    async def manage_doors(self, do: str, door: str, session: str, mode: str) -> dict[str, Any]:
        """List the doors of all sessions, ``add`` one or ``revoke`` one; raises ToolFault."""
        if do == "add":
            return self.doors.add(session, mode)
        if do == "revoke":
            return await self.doors.revoke(door)
        return {"doors": self.doors.rows()}

    async def sweep(self) -> list[str]:
        """End the sessions that have idled for longer than their policy allows; return their ids."""
        async with self._sweeping:
            return await self.sessions.sweep(self.snapshots.save_lasting)

    def _ended(self, session: Session) -> None:
        """Let go of a session whose rows have gone."""
        self.runs.drop(session.key)
        self.providers.drop(session)
        self.budgets.forget(session.key)
        self.journal.forget(session.key)
        self.snapshots.forget(session)
        self.doors.withdraw(session)

    def _rests(self, session: Session) -> None:
        """Let go of what is under way for a session that begins to rest."""
        self.runs.drop(session.key)
        self.budgets.write(session.key)
        self.providers.drop(session)
        self.budgets.forget(session.key)
        self.journal.flush()
        self.doors.withdraw(session)

    async def _gone(self) -> None:
        """Remove what sessions that have ended leave in files, and give back the memory that they had."""
        await self.doors.end_copies()
        tidy = await self._tidied()
        process.trim_heap()
        if not tidy and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy_later())

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
            wait = min(2 * wait, _SWEEP_SECONDS)

    async def render(self, session: Session, answer: Answer) -> str:
        """Write an answer as the client gets it; what there is no room for is kept under a name."""
        if answer.text is None:
            limit = answer.limit or session.policy.limits.answer_chars
            text = encode(answer.fields)
            if len(text) > limit or answer.spool is not None:
                text = fit(answer.fields, answer.cuttable, limit, await self._keep(session, answer))
            answer.text = text
        return answer.text

    async def _keep(self, session: Session, answer: Answer) -> str:
        """Keep the whole of an answer; returns its name, or why there is none: a preview is given anyway."""
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
        await self.sessions.restore()
        self.doors.tidy()
        live, copies = await self.gateway.adopt()
        for session in self.sessions:
            self._listen(session)
            if _is_held(live.get(session.key), session):
                await self._adopt(session, live.pop(session.key))
            else:
                self._tell_loss(session)
                self.providers.give_up(session)
        await self.control.end_orphans([*live.values(), *await self.doors.adopt(copies)])
        await self._gone()
        self._tasks.append(asyncio.create_task(self._sweep_now_and_then()))
        if warm:
            self._tasks.append(asyncio.create_task(self._warm()))

    def _listen(self, session: Session) -> None:
        """Have what the session's kernel tells written down: queries, and cells that no call of ours waits for."""
        kernel = session.kernel
        kernel.on_queries = lambda told: self._asked(session, told)
        kernel.on_given = lambda told: self._given(session, told)
        kernel.on_rest = lambda ids: self.providers.withdraw(session, ids)
        kernel.used = lambda: self.budgets.used(session)
        kernel.on_cell = lambda note: self.journal.told(session.key, kernel.kernel_id or "", note)
        kernel.on_door = lambda event: self.doors.noted(session, event)
        kernel.on_expelled = lambda: self._expelled(session)
        self.doors.publish(session)
        if session.policy.reopen:
            kernel.on_fresh = lambda client, kernel_id: self.snapshots.revive(session, client, kernel_id)

    def _expelled(self, session: Session) -> None:
        """End a session that has lost its kernel for what its code has tried, when its runs have been told."""

        async def end() -> None:
            await self.runs.finished(session)
            await self.sessions.expel(session)

        self._soon(end())

    def _asked(self, session: Session, told: list[dict[str, Any]]) -> None:
        try:
            rows = self.runs.note_queries(session, told)
        except StoreFault as error:
            session.kernel.refuse([str(query.get("id")) for query in told], f"it could not be written down: {error}")
            return
        self.providers.asked(session, rows)

    def _given(self, session: Session, told: dict[str, Any]) -> None:
        """Take answers that a person's cell has assigned; what is wrong with them the next answer tells."""

        async def take() -> None:
            with suppress(KernelError, StoreFault, SessionEnded):
                session.kernel.notice = await self.queries.given(session, told) or session.kernel.notice

        self._soon(take())

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _adopt(self, session: Session, info: KernelInfo) -> None:
        """Take over a kernel, and what it did while no daemon was there."""
        session.kernel.adopt(info)
        session.kernel.budget_changed()  # what was used last, it may not have been told
        with suppress(KernelError, OSError):
            client = await self.gateway.client(start=False)
            self.runs.note_queries(session, await client.pending_queries(info.kernel_id))
            self.providers.asked(session, queries.pending(self._store, session.key))
            for note in await client.cells(info.kernel_id, self.journal.last_serial(info.kernel_id)):
                self.journal.told(session.key, info.kernel_id, note)

    def _tell_loss(self, session: Session) -> None:
        """Have the next answer say that variables are lost: cells of this session ran, and its kernel is gone."""
        ran = self.journal.of_session(session.key, 1)
        if ran and ran[0].ended_at >= session.row.created_at:
            session.kernel.notice = "the kernel ended while no daemon ran: its variables are lost, contexts are kept"

    async def _stop(self) -> None:
        self.gateway.start_no_more()
        tasks = self._tasks if self._tidying is None else [*self._tasks, self._tidying]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in list(self.sessions):
            await self.snapshots.save_lasting(session)
        await self.runs.aclose()
        await self.providers.aclose()
        self.budgets.write_all()
        self.journal.close()
        self.doors.rest()
        self.sessions.close()
        self.gateway.close()
        await self._scanner.aclose()

    async def _warm(self) -> None:
        try:
            await self.gateway.client()
        except (KernelError, OSError, RuntimeError) as error:
            log.warning("the kernel host could not be started ahead of need: %s", error)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self.sweep()
                self.journal.trim_all()
            except Exception:
                log.exception("the sweep of idle sessions failed")


def _is_held(kernel: KernelInfo | None, session: Session) -> bool:
    """Whether there is a kernel that was started under the policy which the session has."""
    return kernel is not None and kernel.label.get("policy") == session.pinned.digest
