"""Budgets: what the queries of sessions have used of the limits of their policies, counted and refused in one place.

A budget belongs to a session's key. A session that begins, by whatever way, has a key of its own and a whole budget;
what goes on under its key (a new kernel, a rollback, a rest, another daemon) goes on with what is used. A kernel is
told what that is, and decides nothing by it but to refuse at once a batch that would be refused here.
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
"""What providers use; beside it there is the number of queries."""


class OverBudget(Exception):
    """A session has used what its policy permits."""


@dataclass(frozen=True)
class Payer:
    """Whose budget a session's queries are charged to: the session and its query of which all of this came.

    ``depth`` is how many sessions lie between: 0 for a session that pays for itself.
    """

    session: Session
    row: QueryRow
    depth: int


@dataclass
class _Account:
    """What one session has used that is not written down yet."""

    unwritten: Used = field(default_factory=Used)
    bills: list[AnswerUse] = field(default_factory=list)
    at_work: int = 0
    since: float = 0.0
    """When providers began to work; what passes until they pause is time of the budget, however many they are."""

    @property
    def is_due(self) -> bool:
        """Whether there is something to write down."""
        return bool(self.at_work or self.bills) or self.unwritten != Used()


class Budgets:
    """The budgets of all sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[int, _Account] = {}
        self._payers: dict[int, Payer] = {}

    # --- who pays ---------------------------------------------------------------------------------

    def payer(self, session: Session, row: QueryRow) -> Payer:
        """Tell who pays for a query of the session."""
        return self._payers.get(session.key) or Payer(session, row, 0)

    @contextmanager
    def paid_by(self, child: int, payer: Payer) -> Iterator[None]:
        """Charge what providers do for the session ``child`` to ``payer``."""
        self._payers[child] = replace(payer, depth=payer.depth + 1)
        try:
            yield
        finally:
            del self._payers[child]

    # --- what is used -----------------------------------------------------------------------------

    def used(self, session: Session) -> BudgetUsed:
        """What is used: queries, and of providers tokens, cost and seconds.

        What providers do for a session that another one pays for is what that one has used.
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
        """What is used, and what may be."""
        used = plain(self.used(session))
        return {name: {"used": used[name], "limit": _limit(session, name)} for name in ("calls", *PROVIDED)}

    def calls_left(self, session: Session) -> int:
        """How many queries the session may still ask."""
        return max(0, session.policy.limits.queries - budgets.used(self._store, session.key).calls)

    def seconds_left(self, session: Session) -> float:
        """For how many seconds a provider may work for the session.

        Raises:
            OverBudget: something that providers use is used up.
        """
        used = self.used(session)
        amounts = plain(used)
        for name in PROVIDED:
            if amounts[name] >= _limit(session, name):
                raise OverBudget(self.over(session, name))
        return _limit(session, "seconds") - used.seconds

    @staticmethod
    def over(session: Session, name: str) -> str:
        """What is said when something is used up."""
        if name == "calls":
            return f"this session may ask at most {session.policy.limits.queries} queries (limits.queries)"
        limit = _limit(session, name)
        return f"the budget is used up; queries of this session may use at most {limit:g} {name} (limits.query_{name})"

    # --- using it ---------------------------------------------------------------------------------

    def ask(self, session: Session, count: int) -> None:
        """Count queries that are written down in the same transaction: the caller has looked at `calls_left`."""
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
        """Count what an answer has used; `write` writes it down."""
        account = self._account(session.key)
        account.bills.append(bill)
        account.unwritten += Used(tokens=bill.input_tokens + bill.output_tokens, cost=bill.cost)

    def owes(self, session: int) -> bool:
        """Whether answers were charged that are not written down."""
        return session in self._accounts and bool(self._accounts[session].bills)

    def write(self, session: int) -> None:
        """Write down what has been used of a budget."""
        account = self._accounts.get(session)
        if account is not None and account.is_due:
            with suppress(SessionEnded), self.writing(session):
                pass

    @contextmanager
    def writing(self, session: int) -> Iterator[None]:
        """Write down what has been used of a budget, together with what the caller writes: all of it, or nothing."""
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
        """Write down what has been used of every budget, as far as the disk takes it: the daemon ends."""
        for session in list(self._accounts):
            try:
                self.write(session)
            except StoreFault as error:
                log.error("what session %d has used cannot be written down: %s", session, error)

    def forget(self, session: int) -> None:
        """Let go of the budget of a session that has ended, or rests: then the rows have it."""
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
