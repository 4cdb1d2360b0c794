"""The queries of one session as the supervisor knows them: asked, pending, waited for and answered.

The kernel announces them, and a kernel may be hostile: it may repeat ids, invent answers or ask without end. So every
count and size is checked here, before the daemon hears of a query.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import replace

from rlm_ipc import messages, worker_protocol
from rlm_ipc.answer_schema import LONGEST_SCHEMA, fault_of
from rlm_ipc.errors import ProtocolError
from rlm_ipc.kernel_reports import AskedQuery, GivenAnswers, QueryOutcome
from rlm_ipc.messages import Json

MOST_CHARACTERS = 16 * worker_protocol.MAX_PROMPT
"""Maximum characters in one session's pending prompts, which the supervisor holds in memory."""
FULL = (
    f"the pending prompts have over {MOST_CHARACTERS:,} characters in total; "
    "wait for answers before you ask more, or ask less at once"
)
MOST_GIVEN = 128 << 20
"""Maximum characters of JSON in answers that code gives itself: the longest that a kernel accepts, all escaped."""
_LONGEST_PROBLEM = 300
QUERIES_A_SECOND = 100.0
_ROWS_AT_ONCE = 256


class Rate:
    """A token bucket: ``at_once`` tokens, refilled at ``per_second``."""

    def __init__(self, at_once: int, per_second: float) -> None:
        self._most, self._per_second = float(max(at_once, 1)), per_second
        self._left, self._since = self._most, time.monotonic()

    def take(self, count: int) -> float:
        """Take ``count`` tokens. Return for how many seconds the bucket is empty after that."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._since) * self._per_second) - count
        self._since = now
        return max(0.0, -self._left / self._per_second)


class QueryBook:
    """Queries by id. ``next_number`` is the first id that no kernel of the session has used.

    ``full`` means that the last `ask` refused a query because the pending prompts are too long in total.
    """

    def __init__(self, next_number: int, limit: int, modes: Iterable[str]) -> None:
        self.next_number = next_number
        self.full = False
        self._characters = 0
        self._rate = Rate(limit, QUERIES_A_SECOND)
        self._limit = limit
        self._modes = frozenset(modes)
        self.pending: dict[str, AskedQuery] = {}
        self.answers: dict[str, QueryOutcome] = {}
        self._awaited: set[str] = set()
        self._changed: dict[str, None] = {}

    def restore(self, next_number: int, pending: Iterable[AskedQuery], answers: Mapping[str, QueryOutcome]) -> None:
        """Start with what another supervisor, or the book of another session, knew."""
        self.next_number = next_number
        for row in pending:
            self._wait_for(row)
        self._enter_answers(answers)

    def take_changed(self) -> list[str]:
        """Return the ids of queries that were asked, answered or withdrawn since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def ask(self, told: Iterable[Json]) -> list[AskedQuery]:
        """Enter the queries that a kernel announced; malformed, known, excessive and forbidden ones are dropped."""
        self.full = False
        return [row for query in told if (row := self._enter(query)) is not None]

    def known(self, told: Iterable[Json]) -> list[str]:
        """Return the known ids among them: a kernel repeats to a new supervisor what it has asked."""
        ids = dict[str, None]()
        for query in told:
            with suppress(ProtocolError):
                ids[messages.read(AskedQuery, query).id] = None
        return [query_id for query_id in ids if query_id in self.pending or query_id in self.answers]

    def rest(self, told: Sized) -> float:
        """Return for how many seconds to stop reading from a kernel that has announced this; 0 within its limit.

        Refused queries count as well, because examining them is what takes the time.
        """
        return self._rate.take(max(1, len(told)))

    def inherit(self, parent: QueryBook, waited: Iterable[str]) -> None:
        """Start with what the parent knows, except for the queries that its running cell waits for."""
        without = set(waited)
        pending = (row for query_id, row in parent.pending.items() if query_id not in without)
        self.restore(parent.next_number, pending, parent.answers)

    def forget(self) -> None:
        """Drop everything, at the end of the session."""
        self.pending.clear()
        self.answers.clear()
        self._awaited.clear()

    def _enter_answers(self, answers: Mapping[str, QueryOutcome]) -> None:
        self._changed.update(dict.fromkeys(answers))
        self.answers.update(answers)

    def _wait_for(self, row: AskedQuery) -> None:
        self._changed[row.id] = None
        self.pending[row.id] = row
        self._characters += len(row.prompt)

    def _enter(self, told: Json) -> AskedQuery | None:
        try:
            query = messages.read(AskedQuery, told)
        except ProtocolError:
            return None
        if not 0 <= query.number < worker_protocol.MOST_QUERIES:
            return None
        if len(query.prompt) > worker_protocol.MAX_PROMPT or len(query.model or "") > worker_protocol.MAX_MODEL:
            return None
        if query.mode not in self._modes or (query.schema is not None and fault_of(query.schema)):
            return None
        if query.id in self.answers or query.id in self.pending or len(self.pending) >= self._limit:
            return None
        if self._characters + len(query.prompt) > MOST_CHARACTERS:
            self.full = True
            return None
        self.next_number = max(self.next_number, query.number + 1)
        self._wait_for(query)
        return query

    def claim(self, ids: Iterable[str], asked: Iterable[str]) -> set[str]:
        """Return those of ``ids`` that the cell that ``asked`` them may wait for.

        Each id counts once: the cell's clock is paused during a wait, and must not be paused forever.
        """
        claimed = set(ids).intersection(asked) - self._awaited
        self._awaited |= claimed
        return claimed

    def resolve(self, answers: Mapping[str, QueryOutcome]) -> None:
        """Enter answers. They are kept for a process that takes over later."""
        self._enter_answers(answers)
        for query_id in answers:
            self.withdraw(query_id)

    def withdraw(self, query_id: str) -> bool:
        """Forget a pending query. Return False if it was not pending."""
        self._changed[query_id] = None
        row = self.pending.pop(query_id, None)
        self._characters -= len(row.prompt) if row is not None else 0
        return row is not None


def at_once(rows: Iterable[AskedQuery]) -> Iterator[tuple[AskedQuery, ...]]:
    """Divide rows into messages: one over the protocol's limit would cost the reader its connection."""
    some: list[AskedQuery] = []
    characters = 0
    for row in rows:
        some.append(row)
        characters += len(row.prompt) + (LONGEST_SCHEMA if row.schema else 0)
        if characters > worker_protocol.PROMPTS_AT_ONCE or len(some) == _ROWS_AT_ONCE:
            yield tuple(some)
            some, characters = [], 0
    if some:
        yield tuple(some)


def given_in(given: GivenAnswers | None) -> GivenAnswers | None:
    """Return the answers that a cell has given itself, as its kernel reports them; None for none or too many."""
    if given is None or len(json.dumps(messages.plain(given))) > MOST_GIVEN:
        return None
    if given.problem is not None:
        return replace(given, answers=None, problem=given.problem[:_LONGEST_PROBLEM])
    return given if isinstance(given.answers, list | dict) else None
