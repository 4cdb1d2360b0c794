"""Live sessions: which are open, under which policy, since when unused, and how they end.

The rows are the truth; what lives here is the kernel, the runs and the time of the last use, which is written
back to the row now and then (a call that only reads shall not write).

A session ends in this order: its rows go, in one transaction; what this process holds of it goes, before anything
else can happen; then its kernel, and last its files. Who still holds the `Session` writes no more: its key is gone.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from rlm_ipc.kernel_reports import KernelInfo
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.expiry import lost, rests_until, went
from rlm_mcp.service.sessions.kernel_events import KernelEvents
from rlm_mcp.service.sessions.kernel_proxy import KernelProxy
from rlm_mcp.service.sessions.names import session_id_for, workspace_for
from rlm_mcp.service.sessions.policies import Policies, as_row, policy_for
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_memory import contexts, sessions
from rlm_memory.errors import SessionEnded, StoreFault
from rlm_memory.sessions import How, SessionRow, SessionStatus
from rlm_memory.store import Store
from rlm_sandbox.policy import PinnedPolicy, Policy

log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds since the epoch."""

_JUMP_SECONDS = 5.0
"""By how much clocks may drift apart between two looks before it counts as a jump."""
_MOST_EXPELLED = 100
_LOOK_SECONDS = 1.0
"""How long a call may trust the last look at the sessions that rest, and at the clock."""
_TOUCH_SECONDS = 10.0
"""How far a row's last_used_at may lag behind: after a restart, a session idles away that much sooner."""


@dataclass(eq=False)
class Session:
    """One open session: its row as it was opened, its policy, its kernel, and the calls that use it now."""

    row: SessionRow
    pinned: PinnedPolicy
    family: PinnedPolicy
    """What the first session had of which this one is a fork."""
    kernel: KernelProxy
    last_used: float
    idled: str = ""
    """What went when it, or the one before it of its name, idled away: an agent that misses a variable is told."""
    unsaid: str = ""
    """What ``list_vars`` has to tell once: that the session has expired, and what went."""
    woken: bool = False
    """Whether it has rested, and goes on."""
    listed: tuple[str, ...] = ()
    """The queries that the last cell has listed that asked any."""
    calls: int = field(default=0)
    _written: float = field(default=0.0)

    @property
    def policy(self) -> Policy:
        """What the session may do."""
        return self.pinned.policy

    @property
    def id(self) -> str:
        """The full session id: the name by which clients know it."""
        return self.row.id

    @property
    def key(self) -> int:
        """What its rows are keyed by: never that of another session, of the same name or not."""
        return self.row.key

    @property
    def identity(self) -> tuple[int, str]:
        """Its key and the hash of its policy: what a connection is admitted to."""
        return self.key, self.pinned.digest

    def is_used(self) -> bool:
        """Whether a call, a cell or a front end uses the session."""
        return bool(self.calls or self.kernel.busy or self.kernel.attachments)

    def is_idle(self, now: float) -> bool:
        """Whether nothing uses the session, and nothing has for longer than its policy allows."""
        return not self.is_used() and now - self.last_used > self.policy.limits.idle_seconds


class SessionEvents(Protocol):
    """What sessions tell of their lives, for whom it may concern."""

    async def ending(self, session: SessionRow) -> None:
        """The rows of a session are about to go: keep what others are to have of it."""

    def ended(self, session: Session) -> None:
        """The rows of a session have gone: let go of what this process holds of it."""

    def ended_at_rest(self, row: SessionRow) -> None:
        """The rows of a session that rested have gone: remove its files."""

    def rests(self, session: Session) -> None:
        """A session is about to rest: stop what is under way for it, and write down what came of it."""

    async def gone(self) -> None:
        """Kernels of sessions have ended: remove the texts that nobody holds any more."""

    def of_kernel(self, row: SessionRow) -> KernelEvents:
        """Return what takes the events of the kernel of a session, which is about to open."""


class Sessions:
    """The open sessions of the daemon."""

    def __init__(
        self,
        store: Store,
        gateway: KernelGateway,
        policies: Policies,
        events: SessionEvents,
        clock: Clock,
        steady: Clock | None = None,
    ) -> None:
        """``steady`` does not jump when somebody sets the clock; default: the machine's, beside the machine's clock."""
        self._store, self._gateway, self._policies, self._events, self._clock = store, gateway, policies, events, clock
        self._steady = steady or (time.monotonic if clock is time.time else clock)
        self._seen, self._looked = (self._clock(), self._steady()), 0.0
        self._open: dict[str, Session] = {}
        self._due: list[tuple[float, int, weakref.ref[Session]]] = []
        """A heap: for each open session a moment before which it cannot have idled away."""
        self._order = itertools.count()
        self._sweeping, self._saving = asyncio.Lock(), asyncio.Lock()
        self._expelled: dict[str, str] = {}
        """Why sessions were ended that nobody has opened again since."""

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open.values()))

    def get(self, session: str) -> Session | None:
        """Return the open session of that id, or None."""
        return self._open.get(session)

    def named(self, name: str) -> Session:
        """Return the open session of a name; raises ToolFault if there is none."""
        session = self.get(name)
        if session is None:
            raise ToolFault("session_not_found", f"no session {name[:80]} is open", "list them: rlm-kernel sessions")
        return session

    def of_key(self, key: object) -> Session | None:
        """Return the open session of that key, or None."""
        return next((session for session in self._open.values() if session.key == key), None)

    async def woken(self, key: int | None) -> Session | None:
        """Return the session of that key, opened again if it rests; None if it has ended."""
        if key is None:
            return None
        if (session := self.of_key(key)) is not None:
            return session
        try:
            name = sessions.name_of(self._store, key)
        except SessionEnded:
            return None
        return await self._begin(name, ClientInfo(), None)

    def restore(self) -> None:
        """Open again what was active when the daemon last ended; a row without its policy is left alone."""
        for row in sessions.all_sessions(self._store, SessionStatus.ACTIVE):
            try:
                self._admit(row, last_used=min(row.last_used_at, self._clock()))
            except Exception:
                log.exception("session %s cannot be opened again", row.id)

    async def open(self, handshake: ClientInfo, asked: str | None, given: PinnedPolicy | None = None) -> Session:
        """Return the session of a call, opening it when it is new or has ended; ``given`` is its policy then.

        Raises:
            ToolFault: the id is none, or the session is not for this client (`Policies.refuse_client`).
            PolicyError: the policy cannot be read, or was not kept.
        """
        name = session_id_for(handshake, asked)
        session = self._open.get(name)
        if session is None:
            session = await self._begin(name, handshake, given)
        if given is not None or session.identity not in handshake.admitted:
            await self._policies.refuse_client(session.row, session.pinned, session.family.policy, handshake, given)
            handshake.admitted.add(session.identity)
        return session

    async def _begin(self, name: str, handshake: ClientInfo, given: PinnedPolicy | None) -> Session:
        """Open a session that is not open. One that rests goes on under the policy and workspace that it had."""
        policy, workspace = given, workspace_for(handshake)
        if policy is None and sessions.find(self._store, name) is None:
            policy = await self._policies.read(policy_for(handshake), workspace)
        if (opened := self._open.get(name)) is not None:  # by another call, meanwhile
            return opened
        now, earlier, ending = self._clock(), sessions.find(self._store, name), sessions.ending_of(self._store, name)
        if earlier is not None:
            policy, _ = self._policies.admit(earlier)
        assert policy is not None
        with self._store.transaction():
            row = sessions.open_session(
                self._store,
                name,
                workspace=workspace,
                policy=as_row(policy),
                idle_seconds=policy.policy.limits.idle_seconds,
                now=now,
            )
            self._policies.admit(row)
        session = self._admit(row, last_used=now)
        session.woken = earlier is not None
        kept = earlier is not None and (policy.policy.reopen or earlier.kept_until is None)
        session.idled = session.unsaid = session.kernel.notice = lost(earlier, ending, variables_kept=kept)
        if reason := self._expelled.pop(name, ""):
            session.kernel.notice = f"the previous session of this name was ended: {reason}"
        if earlier is None:
            handshake.admitted.add(session.identity)
        return session

    def admit_fork(self, row: SessionRow, parent: Session, info: KernelInfo) -> Session:
        """Open a session on a kernel that was forked from that of ``parent``."""
        session = self._admit(row, parent=parent.policy, last_used=row.last_used_at)
        session.kernel.adopt(info)
        session.kernel.names.update(parent.kernel.names)
        return session

    async def change_policy(self, row: SessionRow, policy: PinnedPolicy, *, looser: bool) -> Session | None:
        """Give a session another policy, because its user says so; its kernel ends. Returns it if it is open.

        With ``looser`` it begins a family of its own: clients are compared with what it has now.
        """
        idle = policy.policy.limits.idle_seconds
        with self._store.transaction():
            family = None if looser else self._policies.family_of(row)
            changed = sessions.set_policy(self._store, row.key, as_row(policy), as_row(family or policy), idle)
            pinned, family = self._policies.admit(changed)
        session = self.of_key(row.key)
        if session is not None:
            session.row, session.pinned, session.family = changed, pinned, family
            await session.kernel.change_policy(changed, pinned)
            self._expect([session])
        return session

    @contextmanager
    def use(self, session: Session) -> Iterator[None]:
        """Bracket a call: while it runs the session cannot idle away."""
        session.calls += 1
        self._touch(session)
        try:
            yield
        finally:
            session.calls -= 1
            self._touch(session)

    async def sweep(self, save: Callable[[Session], Awaitable[str]] | None = None) -> list[str]:
        """End what has idled too long, or let it rest. Returns the ids. A session that is used meanwhile goes on.

        With ``save`` that concerns the sessions that are to be saved before, otherwise the others: to save takes its
        time, so no call waits for it. ``save`` returns why the variables could not be saved.
        """
        now = self._clock()
        has_due = abs(now - self._looked) >= _LOOK_SECONDS or (self._due and self._due[0][0] < now)
        if save is None and not has_due and not self._sweeping.locked():
            return []
        async with self._sweeping if save is None else self._saving:
            self._looked = now = self._clock()
            overdue = sessions.overdue(self._store, now) if save is None else []
            for row in overdue:
                await self._events.ending(row)
                gone = went(self._store, row, now - row.last_used_at, variables=True)
                sessions.end(self._store, row.key, How.EXPIRED, now, gone)
                self._events.ended_at_rest(row)
            self._absorb_jump(now)
            due = self._take_due(now)
            try:
                ended = []
                for session in due:
                    if session.policy.reopen is (save is not None) and await self._has_idled(session, now):
                        unsaved = "" if save is None else await save(session)
                        if session.is_idle(now) and self._open.get(session.id) is session:
                            await self.idled(session, now, unsaved)
                            ended.append(session.id)
                if ended or overdue:
                    await self._events.gone()
                return ended
            finally:
                self._expect(due)

    async def _has_idled(self, session: Session, now: float) -> bool:
        if session.is_idle(now) and (kernel := await session.kernel.seen()):  # a notebook may have used it
            session.last_used = max(session.last_used, kernel.last_used)
        return session.is_idle(now)

    def _take_due(self, now: float) -> list[Session]:
        """Take those out of the heap that may have idled away; `_expect` puts back what stays open."""
        due = []
        while self._due and self._due[0][0] < now:
            session = heapq.heappop(self._due)[2]()
            if session is not None and self._open.get(session.id) is session:
                due.append(session)
        return due

    def _expect(self, found: Iterable[Session]) -> None:
        for session in found:
            if self._open.get(session.id) is session:
                moment = session.last_used + session.policy.limits.idle_seconds
                heapq.heappush(self._due, (moment, next(self._order), weakref.ref(session)))

    def _absorb_jump(self, now: float) -> None:
        """After the clock was set: nobody has idled for the time that it jumped over."""
        seen, steady = self._seen, self._steady()
        self._seen = now, steady
        jump = (now - seen[0]) - (steady - seen[1])
        if abs(jump) > _JUMP_SECONDS:
            log.warning("the clock jumped by %.0f s: idle times do not count that", jump)
            for session in self:
                session.last_used += jump
            self._due.clear()
            self._expect(self)

    async def end(self, session: Session) -> list[str]:
        """End a session on request, with all that belongs to it. Returns the names of its contexts."""
        dropped = contexts.names(self._store, session.key)
        await self._end(session, How.ENDED)
        await self._events.gone()
        return dropped

    async def expel(self, session: Session) -> None:
        """End a session whose kernel the supervisor has ended; who opens it again is told why."""
        if self._open.get(session.id) is session:
            self._expelled[session.id] = session.kernel.expelled
            while len(self._expelled) > _MOST_EXPELLED:
                del self._expelled[next(iter(self._expelled))]
            await self.end(session)

    def close(self) -> None:
        """Write back the times of use; kernels and rows stay for the next daemon."""
        for session in self:
            self._write_use(session)
            session.kernel.forget()
        self._open.clear()

    def _admit(self, row: SessionRow, *, last_used: float, parent: Policy | None = None) -> Session:
        policy, family = self._policies.admit(row, parent)
        kernel = KernelProxy(row, policy, self._store, self._gateway, self._events.of_kernel(row))
        session = Session(row, policy, family, kernel, last_used, _written=row.last_used_at)
        self._open[row.id] = session
        self._expect([session])
        return session

    def _touch(self, session: Session) -> None:
        session.last_used = self._clock()
        if session.last_used - session._written > _TOUCH_SECONDS:
            self._write_use(session)

    def _write_use(self, session: Session) -> None:
        with suppress(StoreFault):  # a full disk keeps nobody from using a session
            sessions.touch(self._store, session.key, session.last_used)
            session._written = session.last_used

    async def idled(self, session: Session, now: float, unsaved: str, *, gone: bool = False) -> None:
        """End a session that has idled away, or let it rest; ``unsaved`` is why its variables could not be saved.

        ``gone`` says that its kernel has gone already, with variables.
        """
        until = rests_until(self._store, session.key, session.policy, now)
        if until is not None and until <= now:
            await self._end(session, How.EXPIRED, variables=gone or session.kernel.alive)
            return
        self._forget(session)
        self._events.rests(session)
        sessions.rest(self._store, session.key, until, unsaved or None)
        await session.kernel.stop()

    async def _end(self, session: Session, how: How, *, variables: bool = False) -> None:
        idle = session.policy.limits.idle_seconds
        gone = went(self._store, session.row, idle, variables=variables) if how is How.EXPIRED else None
        await self._events.ending(session.row)
        sessions.end(self._store, session.key, how, self._clock(), gone)
        self._forget(session)
        self._events.ended(session)
        await session.kernel.stop()

    def _forget(self, session: Session) -> None:
        if self._open.get(session.id) is session:
            del self._open[session.id]
