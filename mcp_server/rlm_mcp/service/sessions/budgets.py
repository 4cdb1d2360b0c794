"""Budgets: count what the queries of a session use, and refuse queries beyond the limits of its policy.

A budget belongs to a session's key. Each session that begins gets a new key and a full budget, however it begins. A
session that continues under its key (with a new kernel, after a rollback or a pause, under another daemon) keeps what
it has used. The kernel is told that only so that it can refuse at once a batch that would be refused here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace

from rlm_ipc.daemon_rows import AnswerUse
from rlm_ipc.kernel_reports import BudgetUsed
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import plain
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory import budgets, queries
from rlm_memory.budgets import Used
from rlm_memory.errors import SessionEnded, StoreFault
from rlm_memory.queries import QueryRow
from rlm_memory.store import Store

log = logging.getLogger(__name__)

PROVIDED = ("tokens", "cost", "seconds")
"""What providers use, apart from the number of queries."""


class OverBudget(Exception):
    """A session has used what its policy permits."""


@dataclass(frozen=True)
class Payer:
    """The session whose budget pays for another session's queries, and its query that started that session.

    ``depth`` is the number of sessions between them: 0 for a session that pays for itself.
    """

    session: Session
    row: QueryRow
    depth: int


@dataclass
class _Account:
    """What one session has used that is not stored yet."""

    unwritten: Used = field(default_factory=Used)
    bills: list[AnswerUse] = field(default_factory=list)
    at_work: int = 0
    since: float = 0.0
    """When providers began to work. The time until all of them pause counts once, however many work together."""

    @property
    def is_due(self) -> bool:
        """Whether there is something to store."""
        return bool(self.at_work or self.bills) or self.unwritten != Used()


class Budgets:
    """The budgets of all sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[int, _Account] = {}
        self._payers: dict[int, Payer] = {}

    # --- who pays ---------------------------------------------------------------------------------

    def payer(self, session: Session, row: QueryRow) -> Payer:
        """Return who pays for a query of the session."""
        return self._payers.get(session.key) or Payer(session, row, 0)

    @contextmanager
    def paid_by(self, child: int, payer: Payer) -> Iterator[None]:
        """Charge the work of providers for the session ``child`` to ``payer``."""
        self._payers[child] = replace(payer, depth=payer.depth + 1)
        try:
            yield
        finally:
            del self._payers[child]

    # --- what is used -----------------------------------------------------------------------------

    def used(self, session: Session) -> BudgetUsed:
        """Return what is used: queries, and the tokens, cost and seconds of providers.

        If another session pays for this one, the providers' part is what the payer has used.
        """
        own = paid = budgets.used(self._store, session.key)
        account = self._account(session.key)
        if (payer := self._payers.get(session.key)) is not None:
            paid = budgets.used(self._store, payer.session.key)
            account = self._account(payer.session.key)
        total = paid + account.unwritten
        seconds = total.milliseconds / 1000 + (_now() - account.since if account.at_work else 0.0)
        return BudgetUsed(own.calls, total.tokens, round(total.cost, 6), round(seconds, 6))

    def shown(self, session: Session) -> dict[str, dict[str, float]]:
        """Return what is used, and the limits."""
        used = plain(self.used(session))
        return {name: {"used": used[name], "limit": _limit(session, name)} for name in ("calls", *PROVIDED)}

    def calls_left(self, session: Session) -> int:
        """Return how many queries the session may still ask."""
        return max(0, session.policy.limits.queries - budgets.used(self._store, session.key).calls)

    def seconds_left(self, session: Session) -> float:
        """Return for how many seconds a provider may still work for the session.

        Raises:
            OverBudget: a limit of what providers use is reached.
        """
        used = self.used(session)
        amounts = plain(used)
        for name in PROVIDED:
            if amounts[name] >= _limit(session, name):
                raise OverBudget(self.over(session, name))
        return _limit(session, "seconds") - used.seconds

    @staticmethod
    def over(session: Session, name: str) -> str:
        """Return the message for a limit that is reached."""
        if name == "calls":
            return f"this session may ask at most {session.policy.limits.queries} queries (limits.queries)"
        limit = _limit(session, name)
        return f"the budget is used up; queries of this session may use at most {limit:g} {name} (limits.query_{name})"

    # --- using it ---------------------------------------------------------------------------------

    def ask(self, session: Session, count: int) -> None:
        """Count queries that the same transaction stores; the caller has checked `calls_left`."""
        budgets.add(self._store, session.key, Used(calls=count))

    @contextmanager
    def working(self, session: Session) -> Iterator[None]:
        """Count the time in which a provider works for the session."""
        account = self._account(session.key)
        if not account.at_work:
            account.since = _now()
        account.at_work += 1
        try:
            yield
        finally:
            self._note_time(account)
            account.at_work -= 1

    def charge(self, session: Session, bill: AnswerUse) -> None:
        """Count what an answer has used; `write` stores it."""
        account = self._account(session.key)
        account.bills.append(bill)
        account.unwritten += Used(tokens=bill.input_tokens + bill.output_tokens, cost=bill.cost)

    def owes(self, session: int) -> bool:
        """Whether answers were charged whose use is not stored yet."""
        return session in self._accounts and bool(self._accounts[session].bills)

    def write(self, session: int) -> None:
        """Store what a session has used."""
        account = self._accounts.get(session)
        if account is not None and account.is_due:
            with suppress(SessionEnded), self.writing(session):
                pass

    @contextmanager
    def writing(self, session: int) -> Iterator[None]:
        """Store what a session has used in one transaction with what the caller writes."""
        account = self._account(session)
        if account.at_work:
            self._note_time(account)
        more, bills = account.unwritten, account.bills
        with self._store.transaction():
            if more != Used() or bills:
                queries.spend(self._store, session, bills)
                budgets.add(self._store, session, more)
            yield
        account.unwritten, account.bills = Used(), []

    def write_all(self) -> None:
        """Store what all sessions have used, as far as the disk permits, because the daemon is about to end."""
        for session in list(self._accounts):
            try:
                self.write(session)
            except StoreFault as error:
                log.error("what session %d has used cannot be written down: %s", session, error)

    def forget(self, session: int) -> None:
        """Drop the account of a session that has ended or is saved: everything is stored."""
        self._accounts.pop(session, None)

    # --- accounts ---------------------------------------------------------------------------------

    def _account(self, session: int) -> _Account:
        return self._accounts.setdefault(session, _Account())

    @staticmethod
    def _note_time(account: _Account) -> None:
        milliseconds = round(1000 * (_now() - account.since))
        account.since += milliseconds / 1000
        account.unwritten += Used(milliseconds=milliseconds)


def _limit(session: Session, name: str) -> float:
    limits = session.policy.limits
    limit: float = limits.queries if name == "calls" else getattr(limits, f"query_{name}")
    return limit


def _now() -> float:
    return asyncio.get_running_loop().time()
