"""Live sessions: which are open, under which policy, since when unused, and how they end.

The rows are the truth; what lives here is the kernel, the runs and the time of the last use, which is written
back to the row now and then (a call that only reads shall not write).
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

from rlm_kernel.hostclient import KernelInfo
from rlm_mcp.hello import ClientHello
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.kernels import KernelGateway, SessionKernel
from rlm_mcp.service.names import session_id_for, workspace_for
from rlm_memory import contexts, handles, queries, sessions
from rlm_memory.errors import StoreFault
from rlm_memory.sessions import SessionRow, SessionState
from rlm_memory.store import Store
from rlm_sandbox.policy import Policy, is_stricter_or_equal, load_policy

__all__ = ["DEFAULT_POLICY", "Clock", "Session", "Sessions"]

log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds since the epoch."""

DEFAULT_POLICY = "default"
_JUMP_SECONDS = 5.0
"""By how much clocks may drift apart between two looks before it counts as a jump."""
_TOUCH_SECONDS = 10.0
"""How far a row's last_used_at may lag behind: after a restart, a session idles away that much sooner."""


@dataclass(eq=False)
class Session:
    """One open session: its row as it was opened, its policy, its kernel, and the calls that use it now."""

    row: SessionRow
    policy: Policy
    kernel: SessionKernel
    last_used: float
    expired: bool = False
    """Whether an earlier life under this id ended by idling: an agent that misses a variable is told."""
    calls: int = field(default=0)
    reopened: bool = False
    """Whether what was saved of an expired session has been put back."""
    reopening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while that is done: other calls wait."""
    _written: float = field(default=0.0)

    @property
    def id(self) -> str:
        """The full session id."""
        return self.row.id

    def is_idle(self, now: float) -> bool:
        """Whether nothing uses the session, and nothing has for longer than its policy allows."""
        unused = not self.calls and not self.kernel.busy and not self.kernel.doors
        return unused and now - self.last_used > self.policy.limits.idle_seconds


class Sessions:
    """The open sessions of the daemon."""

    def __init__(self, store: Store, gateway: KernelGateway, clock: Clock, steady: Clock | None = None) -> None:
        """``steady`` does not jump when somebody sets the clock; default: the machine's, beside the machine's clock."""
        self._store = store
        self._gateway = gateway
        self._clock = clock
        self._steady = steady or (time.monotonic if clock is time.time else clock)
        self._seen = self._clock(), self._steady()
        self._open: dict[str, Session] = {}
        self._due: list[tuple[float, int, weakref.ref[Session]]] = []
        """A heap: for each open session a moment before which it cannot have idled away."""
        self._order = itertools.count()
        self.on_closed: Callable[[str], None] = lambda _session: None
        """Is told the id of a session that has ended, before its kernel does."""

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open.values()))

    def get(self, session: str) -> Session | None:
        """Return the open session of that id, or None."""
        return self._open.get(session)

    def restore(self) -> None:
        """Open again what was active when the daemon last ended; a row whose policy is gone is left alone."""
        for row in sessions.all_sessions(self._store, SessionState.ACTIVE):
            try:
                self._admit(row, load_policy(row.policy), last_used=min(row.last_used_at, self._clock()))
            except Exception:
                log.exception("session %s cannot be opened again", row.id)

    def open(self, hello: ClientHello, asked: str | None) -> Session:
        """Return the session of a call, opening it when it is new or has ended.

        It runs without awaiting anything, so two first calls at once make one session.

        Raises:
            ToolFault: the id is none, or the client asks for a stricter policy than the session has.
            PolicyError: the policy cannot be read.
        """
        name = session_id_for(hello, asked)
        session = self._open.get(name)
        wanted = hello.env.get("RLM_KERNEL_POLICY")
        if session is not None:
            _refuse_weaker(session, wanted)
            return session
        policy = load_policy(wanted or DEFAULT_POLICY)
        earlier = sessions.find(self._store, name)
        now = self._clock()
        row = sessions.open_session(
            self._store,
            name,
            workspace=workspace_for(hello),
            policy=wanted or DEFAULT_POLICY,
            idle_seconds=policy.limits.idle_seconds,
            now=now,
        )
        session = self._admit(row, policy, last_used=now)
        session.expired = earlier is not None and earlier.state is SessionState.EXPIRED
        return session

    def admit_fork(self, row: SessionRow, parent: Session, info: KernelInfo, attached: dict[str, int]) -> Session:
        """Open a session on a kernel that was forked from that of ``parent``, with the contexts ``attached``."""
        policy = load_policy(row.policy) if row.policy != parent.row.policy else parent.policy
        session = self._admit(row, policy, last_used=row.last_used_at)
        session.kernel.adopt(info, attached)
        session.kernel.names.update(parent.kernel.names)
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

    async def sweep(self, before: Callable[[Session], Awaitable[None]]) -> list[str]:
        """End what has idled too long: kernels, and rows unless queries are pending. Returns the ids.

        ``before`` is called with each of them; a session that is used meanwhile does not end.
        """
        now = self._clock()
        self._absorb_jump(now)
        due = self._take_due(now)
        try:
            idle = []
            for session in due:
                if session.is_idle(now):
                    session.last_used = max(session.last_used, await session.kernel.last_used())
                if session.is_idle(now):
                    idle.append(session)
            ended = []
            for session in idle:
                await before(session)
                if session.is_idle(now) and self._open.get(session.id) is session:
                    keep = bool(queries.pending_ids(self._store, session.id))
                    await self._close(session, SessionState.EXPIRED, keep_rows=keep)
                    ended.append(session.id)
            return ended
        finally:
            self._expect(due)

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
        """End a session on request: kernel, contexts, handles, pending queries. Returns the dropped names."""
        queries.cancel_pending(self._store, session.id, self._clock())
        return await self._close(session, SessionState.ENDED, keep_rows=False)

    def close(self) -> None:
        """Write back the times of use; kernels and rows stay for the next daemon."""
        for session in self:
            self._write_use(session)
            session.kernel.forget()
        self._open.clear()

    def _admit(self, row: SessionRow, policy: Policy, *, last_used: float) -> Session:
        kernel = SessionKernel(row, policy, self._store, self._gateway)
        session = Session(row, policy, kernel, last_used, _written=row.last_used_at)
        self._open[row.id] = session
        self._expect([session])
        return session

    def _touch(self, session: Session) -> None:
        session.last_used = self._clock()
        if session.last_used - session._written > _TOUCH_SECONDS:
            self._write_use(session)

    def _write_use(self, session: Session) -> None:
        with suppress(StoreFault):  # a full disk keeps nobody from using a session
            sessions.touch(self._store, session.id, session.last_used)
            session._written = session.last_used

    async def _close(self, session: Session, state: SessionState, *, keep_rows: bool) -> list[str]:
        self._open.pop(session.id, None)
        dropped: list[str] = []
        with self._store.transaction():
            sessions.move(self._store, session.id, state)
            if not keep_rows:
                dropped = contexts.drop_all(self._store, session.id)
                handles.drop_all(self._store, session.id)
        self.on_closed(session.id)
        await session.kernel.stop()
        return dropped


def _refuse_weaker(session: Session, wanted: str | None) -> None:
    """A client that asks for a strict policy must not be given a session that runs under a laxer one."""
    if not wanted or wanted == session.row.policy:
        return
    if not is_stricter_or_equal(session.policy, load_policy(wanted)):
        raise ToolFault(
            "policy_conflict",
            f"session {session.id} runs under {session.row.policy!r}, which permits more than {wanted!r}",
            "use another session id, or end this one first",
            session=session.id,
            policy=session.row.policy,
        )
