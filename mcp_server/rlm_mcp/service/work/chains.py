"""Stores the chains of loops, and shows a loop all frames of its scope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlm_ipc import process_identity
from rlm_ipc.chain_requests import (
    AgentRun,
    BatchNoted,
    Chain,
    ChainOpened,
    HandedOff,
    NoteChain,
    Noted,
    NoteRun,
    OpenChain,
    SurveyWork,
    TaskLine,
    WorkSurveyed,
)
from rlm_ipc.messages import alike, plain, read
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.caller import Caller
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.sessions.sessions import Sessions
from rlm_memory.frames import rows
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Kind
from rlm_memory.store import Store
from rlm_memory.work import chains, handoffs, holders, leases, metrics, paths
from rlm_memory.work.board import state
from rlm_memory.work.chains import ChainRow, Surveyed


class Chains:
    """The chains of all trees."""

    def __init__(self, store: Store, sessions: Sessions, frames: Frames, clock: Callable[[], float]) -> None:
        self._store, self._sessions, self._frames, self._clock = store, sessions, frames, clock

    async def open(self, asked: OpenChain, client: ClientInfo) -> ChainOpened:
        """Start a chain, or continue the last unfinished one of that scope.

        Raises:
            ToolFault: another loop works there, or there is no chain to continue.
            UnknownFrame: there is no such scope in this tree.
        """
        session = await self._sessions.open(client, asked.session)
        at = self._frames.current(session, Caller(client, None))
        root, where = rows.root_of(self._store, at.tree) or at, at.tree
        with self._store.transaction():
            scope = None if asked.scope is None else rows.same_tree(self._store, root, asked.scope).key
            waiting = [chain for chain in chains.open_ones(self._store, where) if self._overlap(chain.scope, scope)]
            if busy := next(
                (one for one in waiting if one.loop != asked.loop and process_identity.is_alive(one.loop)), None
            ):
                pid = process_identity.pid_in(busy.loop)
                hint = "wait for it, or stop it with Ctrl-C in its terminal"
                raise ToolFault("loop_runs", f"chain {busy.number} is already running there, in process {pid}", hint)
            if asked.continued:
                if not (same := [one for one in waiting if one.scope == scope]):
                    raise ToolFault("no_chain", "no chain of this scope was interrupted", "leave out --continue")
                return self._continue(same[-1], asked, asked.scope or root.id)
            for left in waiting:
                known = replace(read(Chain, dict(left.data)), outcome="left", ended_at=self._clock())
                chains.note(self._store, replace(left, ended_at=known.ended_at, data=plain(known)))
            size = asked.size or metrics.FIRST_SIZE
            made = Chain(0, asked.scope, asked.loop, asked.options, size, started_at=self._clock())
            row = chains.begin(self._store, where, scope, asked.loop, plain(made))
            made = replace(made, number=row.number)
            chains.note(self._store, replace(row, data=plain(made)))
        return ChainOpened(made, asked.scope or root.id, ())

    def _continue(self, row: ChainRow, asked: OpenChain, top: str) -> ChainOpened:
        known = read(Chain, dict(row.data))
        chain = replace(known, loop=asked.loop, size=asked.size or known.size, outcome="")
        chain = chain if asked.options is None else replace(chain, options=asked.options)
        chains.note(self._store, replace(row, loop=asked.loop, data=plain(chain)))
        return ChainOpened(chain, top, tuple(read(AgentRun, data) for data in chains.runs(self._store, chain.number)))

    def note(self, told: NoteChain) -> BatchNoted:
        """Store a chain and the outcome of a batch; raises RowRequestError if the chain is gone."""
        chain, next_size = told.chain, told.chain.size
        with self._store.transaction():
            row = chains.latest(self._store, chain.number)
            chains.note(self._store, replace(row, loop=chain.loop, ended_at=chain.ended_at, data=plain(chain)))
            if told.batch_outcome:
                next_size = metrics.note_batch(
                    self._store,
                    f"chain-{chain.number}",
                    row.tree,
                    metrics.BatchOutcome(told.batch_outcome),
                    size=told.batch_size,
                    tasks=told.tasks,
                    interrupted=told.interrupted,
                    now=self._clock(),
                ).next_size
        return BatchNoted(next_size)

    def note_run(self, told: NoteRun) -> Noted:
        """Store a run of an agent; raises RowRequestError if its chain or its task is gone."""
        run = told.run
        key = rows.frame_key(run.task)
        with self._store.transaction():
            rows.get(self._store, key)
            chains.note_run(self._store, told.chain, run.number, key, plain(run), run.ended_at)
        return Noted()

    def survey(self, asked: SurveyWork) -> WorkSurveyed:
        """Return a frame and all frames below it; raises UnknownFrame if there is none."""
        with self._store.transaction():
            found = chains.survey(self._store, rows.frame_key(asked.frame))
            declared = paths.declared(self._store, [one.row.key for one in found])
            goals = [one for one in found if one.row.kind is not Kind.SESSION]
            return WorkSurveyed(tuple(self._line(one, declared.get(one.row.key, [])) for one in goals))

    def _line(self, found: Surveyed, declared: list[str]) -> TaskLine:
        row = found.row
        return alike(
            TaskLine,
            row,
            parent=None if row.parent is None else rows.frame_id(row.parent),
            kind=row.kind.value,
            type=found.item.type,
            title=row.goal,
            status=state(row),
            held=leases.is_held(row),
            process=self._process(row),
            badly=found.badly,
            after=tuple(found.after),
            description=found.item.description,
            acceptance=found.item.acceptance,
            paths=tuple(path.removeprefix("/") or "." for path in declared),
            progress=found.progress.data,
            progress_at=found.progress.updated_at,
            handoff=self._handed_off(row.key),
        )

    def _process(self, row: FrameRow) -> str:
        holder = holders.find(self._store, row.holder) if leases.is_held(row) and row.holder else None
        return holder.kin or "" if holder is not None and holder.anchor == "process" else ""

    def _handed_off(self, key: int) -> HandedOff | None:
        left = handoffs.of_frame(self._store, key)
        if left is None:
            return None
        return HandedOff(left.status.value, left.summary, tuple(left.files), tuple(left.decisions), left.created_at)

    def _overlap(self, one: int | None, other: int | None) -> bool:
        """Tell whether two scopes overlap: one of them is everything, or one is above the other."""
        if one is None or other is None:
            return True
        return self._is_above(one, other) or self._is_above(other, one)

    def _is_above(self, one: int, other: int) -> bool:
        """Tell whether the first is the second, or above it."""
        return any(row.key == one for row in rows.above(self._store, other))
