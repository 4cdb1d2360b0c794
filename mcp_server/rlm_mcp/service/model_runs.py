"""Runs of models, to be read by a person, even after their sessions have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from rlm_ipc.errors import KernelError
from rlm_ipc.messages import plain, read
from rlm_ipc.session_record import RecordedVariable, RunBelow, SessionRecord
from rlm_ipc.session_requests import KeepTurn, TurnKept
from rlm_ipc.worker_requests import VariableRow
from rlm_mcp.formats.model_runs import RunLine, RunShown, lines_of, shown
from rlm_mcp.service.cells.pictures import picture_of
from rlm_mcp.service.contexts.variables import KernelVariables
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.record import keep_turn, known_session, record_of
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_memory import ended_runs, model_turns, sessions
from rlm_memory.ended_runs import EndedRuns
from rlm_memory.frames import tree
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

_MOST_SESSIONS = 100
"""How many ended sessions have their runs listed."""
_MOST_VARIABLES = 50
_LONGEST_WORD = 100
_OURS = frozenset(("answer", "final_variable", "FINAL", "FINAL_VAR"))
"""Names that a run gives its session before the first turn."""


class ModelRuns:
    """The runs of all sessions."""

    def __init__(self, store: Store, journal: Journal, variables: KernelVariables, clock: Clock) -> None:
        self._store, self._journal, self._variables, self._clock = store, journal, variables, clock
        self._known: dict[int, tuple[int, list[RunLine]]] = {}
        """The runs of open sessions, with the number of the latest turn seen."""
        self._alone: set[int] = set()
        """Sessions that exist only for a run without an answer yet."""
        self._stops: dict[int, str] = {}
        """Why the run of such a session has stopped."""

    async def _held(self, session: Session | None) -> list[RecordedVariable]:
        """Return a session's variables for the record of a turn; none while its kernel is busy."""
        rows: list[VariableRow] | None = None
        if session is not None:
            with suppress(KernelError, OSError):
                rows = await self._variables.rows(session)
        named = [row for row in rows or () if row.name not in _OURS][:_MOST_VARIABLES]
        return [
            RecordedVariable(*(text[:_LONGEST_WORD] for text in (row.name, row.type, row.preview))) for row in named
        ]

    async def note(self, row: SessionRow, turn: KeepTurn, live: Session | None) -> TurnKept:
        """Record a turn; ``live`` is its session, if that is open."""
        held = await self._held(live)
        keep_turn(self._store, row.key, turn, held)
        if turn.lasting and live is not None and live.policy.reopen:
            if turn.final is None:
                self._alone.add(row.key)
            else:
                self._keep(row)  # at once, so that no crash loses the answer
        return TurnKept(turn.session, tuple(held))

    def note_stop(self, session: str, reason: str) -> bool:
        """Note why a run ends without an answer, until its session ends. Return False if the run has no record."""
        key = known_session(self._store, session).key
        if key in self._alone:
            self._stops[key] = reason
        return key in self._alone

    def ending(self, row: SessionRow) -> None:
        """Keep the run of a session that is about to end, if the session existed only for the run."""
        if row.key in self._alone:
            self._keep(row)

    def _keep(self, row: SessionRow) -> None:
        self._alone.discard(row.key)  # first: on a full disk this fails, and the session must still end
        record, parent, stopped = self._record(row), self._parent(row.key), self._stops.pop(row.key, None)
        lines = [plain(line) for line in lines_of(record, row.key, parent, lives=False, stopped=stopped)]
        ended_runs.keep(self._store, EndedRuns(row.key, parent, self._clock(), lines, plain(record)))

    def lines(self) -> list[RunLine]:
        """List the runs, the latest first."""
        with self._store.transaction():
            latest = model_turns.latest(self._store)
            self._known = {key: self._of_live(key, turn) for key, turn in latest.items()}
            kept = [read(RunLine, line) for line in ended_runs.lines(self._store, _MOST_SESSIONS)]
            ended = [line for line in kept if line.key not in latest]
        live = [line for _, lines in self._known.values() for line in lines]
        return sorted([*live, *ended], key=lambda line: -line.started)

    async def show(self, session: int, number: int) -> RunShown:
        """Return the run of a session that begins with the turn of that number; raises ToolFault if there is none."""
        known = self.lines()
        line = next((one for one in known if (one.key, one.number) == (session, number)), None)
        found = None if line is None else await asyncio.to_thread(shown, self._kept(session), line, known)
        if found is None:
            raise ToolFault("run_not_found", "this run is no longer kept", "see the list of runs")
        return found

    def below(self, session: str) -> tuple[RunBelow, ...]:
        """Return the records of the runs below those of a session; raises ToolFault if there is no such session."""
        above = [(known_session(self._store, session).key, session)]
        found: list[RunBelow] = []
        for key, name in above:
            for child in ended_runs.below(self._store, key):
                found.append(RunBelow(name, self._kept(child)))
                above.append((child, found[-1].record.session))
        return tuple(found)

    async def picture(self, session: int, cell: int, number: int) -> bytes:
        """Return a picture that a cell of a run showed, as PNG; raises ToolFault if there is none."""
        cells = self._kept(session).cells
        displays: Sequence[dict[str, str]] = next((one.displays for one in cells if one.number == cell), ())
        return await picture_of(displays, number)

    def expire(self) -> None:
        """Delete the runs whose time is up."""
        if ended_runs.expire(self._store, self._clock()):
            self._store.purge()

    def forget(self, session: int) -> int:
        """Delete the runs of an ended session, with those below them. Return the number of sessions."""
        gone = ended_runs.forget(self._store, session)
        if not gone:
            raise ToolFault(
                "run_not_found",
                "the session of this run is open, or the run is no longer kept",
                "end its session first",
            )
        self._store.purge()
        return gone

    def viewer(self) -> RunViewer:
        """Return a follower of the runs."""
        return RunViewer(self._store, self)

    def _of_live(self, key: int, turn: int) -> tuple[int, list[RunLine]]:
        seen = self._known.get(key)
        if seen is not None and seen[0] == turn:
            return seen
        row = sessions.get(self._store, sessions.name_of(self._store, key))
        return turn, lines_of(self._record(row), key, self._parent(key), lives=True)

    def _parent(self, key: int) -> int | None:
        """Return the key of the session that this one was forked from, while that is open."""
        name = tree.parents(self._store, [key]).get(key)
        row = None if name is None else sessions.find(self._store, name)
        return None if row is None else row.key

    def _kept(self, session: int) -> SessionRecord:
        ended = ended_runs.find(self._store, session)
        if ended is not None:
            return read(SessionRecord, ended.record)
        return self._record(sessions.get(self._store, sessions.name_of(self._store, session)))

    def _record(self, row: SessionRow) -> SessionRecord:
        return record_of(self._store, self._journal, row, None, None, ())


class RunViewer:
    """Follows the list of runs."""

    def __init__(self, store: Store, runs: ModelRuns) -> None:
        self._store, self._runs = store, runs
        self._seen: object = None

    def look(self) -> list[RunLine] | None:
        """Return the runs, the latest first; None if they have not changed since the last call."""
        now = (model_turns.latest(self._store), ended_runs.latest(self._store))
        if now == self._seen:
            return None
        self._seen = now
        return self._runs.lines()
