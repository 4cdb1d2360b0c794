"""The verbs of frames: plan, push, pop, show, invalidate, reopen, forget; and which frame is current for whom.

The rows are the truth (`rlm_memory.frames`). Only the current frames live in memory (`currents`). They follow the
client and the session argument of its calls, because sub-agents of one program share its connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rlm_contexts.store.pins import holding
from rlm_contexts.store.store import ContextStore
from rlm_ipc.messages import JsonObject
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.caller import Caller
from rlm_mcp.service.frames.artifacts import written_since
from rlm_mcp.service.frames.boundaries import told_of
from rlm_mcp.service.frames.changes import FrameChanges, Part
from rlm_mcp.service.frames.currents import Currents
from rlm_mcp.service.frames.effects import FrameEffects
from rlm_mcp.service.frames.logs import FrameLogs
from rlm_mcp.service.frames.summaries import FrameSummaries
from rlm_mcp.service.frames.values import FrameValues
from rlm_mcp.service.holders import Holders
from rlm_mcp.service.lock.frames import FrameLocks
from rlm_mcp.service.sessions.forks import Forks
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.names import is_frame_id
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_mcp.service.unchanged import Unchanged
from rlm_memory import sessions
from rlm_memory.errors import UnknownFrame
from rlm_memory.frames import context, ending, rows, survey, tree
from rlm_memory.frames.results import Ended, Invalidated, Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.runtime import Runtime, handed_over
from rlm_memory.frames.states import OPEN, Kind, Status
from rlm_memory.frames.tree import Plan
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store
from rlm_memory.work import leases
from rlm_memory.work.handoffs import boundaries, decay

_MOST_LISTED = 200
"""The most frames that one answer lists."""
_CUTTABLE = ("context", "tree")


class Frames:
    """The goals of all sessions."""

    def __init__(
        self,
        store: Store,
        files: ContextStore,
        live: Sessions,
        forks: Forks,
        cells: Journal,
        summaries: FrameSummaries,
        holders: Holders,
        versions: FrameLocks,
        clock: Clock,
        folder: Path,
    ) -> None:
        self._store, self._live, self._forks, self._cells, self._clock = store, live, forks, cells, clock
        self._summaries, self.versions = summaries, versions
        self.values = FrameValues(store, files, clock)
        self.logs = FrameLogs(store, cells, clock, folder)
        self.changes = FrameChanges(store, self.logs)
        self._holders = holders
        self._keeping, self._rows = asyncio.Lock(), Unchanged(store)
        self._currents = Currents()
        self._views = survey.Views(store, _MOST_LISTED)

    # --- who asks ---------------------------------------------------------------------------------

    def session_named(self, asked: str | None) -> str | None:
        """Return the session that a call's argument means; the id of a frame in progress means its session."""
        if not is_frame_id(asked):
            return asked
        near = rows.nearest_session(self._store, rows.frame_key(asked))
        if near is None or near.session is None:
            raise UnknownFrame(asked)
        return sessions.name_of(self._store, near.session)

    def of_call(self, session: Session, caller: Caller) -> int | None:
        """Return the frame that a call runs for: the named one, the client's current one, or the session's own."""
        here = self._rows.read(rows.goals_running, session.key)
        named = self._currents.get(caller)
        if is_frame_id(caller.session):
            named = rows.frame_key(caller.session)
        if any(row.key == named for row in here):
            return named
        own = rows.own_goal(here)
        return None if own is None else own.key

    def current(self, session: Session, caller: Caller) -> FrameRow:
        """Return the default frame of a call; the session gets a frame if it has none."""
        own = tree.of_session(self._store, session.row, author=caller.handshake.author, now=self._clock())
        if is_frame_id(caller.session):
            return rows.same_tree(self._store, own, caller.session)
        row = self._find(self._currents.get(caller))
        return row if row is not None and row.tree == own.tree and row.status in OPEN else own

    def working_on(self, client: ClientInfo, named: str) -> int | None:
        """Return the frame in a tree that a client works on: its agent's current one, else the client's, or None."""
        for row in map(self._find, self._currents.latest(client.pid, client.agent)):
            if row is not None and row.tree == named and row.status is Status.IN_PROGRESS:
                return row.key
        return None

    def work_on(self, caller: Caller, key: int) -> None:
        """Make a claimed frame the current one of the client's calls."""
        self._currents.put(caller, key)

    def currents(self) -> Counter[int]:
        """Count, by frame, the clients whose current frame it is."""
        return self._currents.count()

    def make_current(self, row: FrameRow) -> int:
        """Make a frame the current one of all clients that have one in its tree. Return their number."""
        return self._currents.move(lambda key: (at := self._find(key)) is not None and at.tree == row.tree, row.key)

    # --- verbs ------------------------------------------------------------------------------------

    def plan(self, session: Session, caller: Caller, wanted: Plan, parent: str | None) -> ToolAnswer:
        """Plan a goal with its subgoals."""
        above, at = self.named(session, caller, parent)
        made = tree.plan(self._store, wanted, above.key, author=caller.handshake.author, now=self._clock())
        fields = {"planned": survey.lines_below(self._store, made)}
        return self.told(made, at, fields, ("planned",))

    async def push(
        self,
        session: Session,
        caller: Caller,
        goal: str,
        *,
        parent: str | None = None,
        fork: bool = True,
        policy: str | None = None,
        name: str | None = None,
    ) -> ToolAnswer:
        """Start a goal, or a planned frame by its id, in a fork of the nearest session above, or in that session.

        ``name`` is that of the fork.
        """
        at, author = self.current(session, caller), caller.handshake.author
        twins: list[str] = []
        planned_here: list[int] = []

        def wanted() -> FrameRow:
            if is_frame_id(goal):
                return rows.same_tree(self._store, at, goal)
            above = at if parent is None else rows.same_tree(self._store, at, parent)
            planned = (row for row in rows.children(self._store, above.key) if row.status is Status.PLANNED)
            twins[:] = [row.id for row in planned if row.goal == goal.strip()]
            row = tree.plan(self._store, Plan(goal), above.key, author=author, now=self._clock())
            planned_here.append(row.key)
            return row

        effects = self.effects(session, policy, name)
        try:
            started = await self.start(wanted, effects, author, fork=fork)
        except BaseException:
            for key in planned_here:  # the caller pushes the goal again; others would be offered this one
                with suppress(UnknownFrame):
                    self.delete(key)
            raise
        fields: JsonObject = {"session": self._session_of(started)}
        if effects.forked is not None:
            known = ("forked_from", "policy", "source", "notice", "threads_not_running", "tasks_not_running")
            fields |= {name: effects.forked[name] for name in known if name in effects.forked}
        if twins:
            fields["planned_too"] = f"{twins[0]} plans the same goal: push('{twins[0]}') would have started that frame"
        pushed = map(self._find, self._currents.pushed(caller))
        beside = [row for row in pushed if row and row.status is Status.IN_PROGRESS]
        parallel = any(row.parent == started.parent for row in beside)
        self._currents.put_pushed(caller, {started.key, *(row.key for row in beside)})
        if parallel:
            fields["current_unchanged"] = f"another goal of yours is in progress here; pass session={started.id!r}"
        else:
            self._currents.put(caller, started.key)
        fields["context"] = self.context_of(session, started)
        return self.told(started, started if not parallel else at, fields, ("context",))

    async def start(
        self, wanted: Callable[[], FrameRow], effects: FrameEffects, author: str, *, fork: bool
    ) -> FrameRow:
        """Start a frame; files that its code writes from now on are its artifacts."""

        def marked() -> FrameRow:
            if (row := wanted()).status is not Status.IN_PROGRESS:
                self.logs.begin(row.id)
            return row

        await self.keep()
        row = await Runtime(self._store, effects).push(marked, author=author, now=self._clock(), fork=fork)
        if (own := self._live.of_key(row.session)) is not None:
            self.versions.begin(row.key, own.row.workspace)
        return row

    async def pop(self, session: Session, caller: Caller, frame: str | None, outcome: Outcome) -> ToolAnswer:
        """End a frame; the same pop again gets the same answer."""
        client = caller.handshake
        row, _ = self.named(session, caller, frame)
        by = self._holders.writer(client, None, row.holder)
        ended = await self.end(row.key, outcome, client.author, session, by=by)
        parent = rows.frame_key(ended.parent)
        done, at = rows.get(self._store, row.key), rows.get(self._store, parent)
        if sessions.find(self._store, session.id) is not None and not is_frame_id(caller.session):
            at = self.current(session, caller)
        happened = {name: value for name, value in asdict(ended).items() if value != []}
        fields: JsonObject = {**happened, **told_of(boundaries(self._store, row.key)), **self.versions.told(row.key)}
        pending = {"pending_llm_queries": open_} if (open_ := self._summaries.pending(done.key)) else {}
        return self.told(done, at, fields | pending | {"log": done.log}, ("summary", "pending_llm_queries"))

    async def end(
        self,
        key: int,
        outcome: Outcome,
        author: str,
        session: Session | None = None,
        *,
        by: str | None = None,
        fence: int | None = None,
    ) -> Ended:
        """End a frame, with all consequences for kernels, files and clients whose current frame it was.

        ``by`` is the holder that asks; without one, a person ends it, whoever holds it.
        """
        allowed = partial(leases.check, self._store, holder=by, fence=fence, now=self._clock())
        self._cells.flush()
        row = rows.get(self._store, key)
        if (own := self._live.of_key(row.session)) is not None and row.status is Status.IN_PROGRESS:
            outcome = replace(outcome, written=await written_since(self.logs.began(row.id), own))
        with holding():
            runtime = Runtime(self._store, self.effects(session))
            ended = await runtime.pop(key, outcome, author=author, now=self._clock(), allowed=allowed)
        if row.kind in {Kind.STORY, Kind.EPIC}:
            decay(self._store, now=self._clock(), tree=row.tree)
        parent = rows.frame_key(ended.parent)
        self._currents.move(lambda current: current == key, parent)
        if row.status is Status.IN_PROGRESS:
            await self.versions.end(key, outcome.written)
        await self.keep()
        self._tell_kernels(parent)
        return ended

    def named(self, session: Session, caller: Caller, frame: str | None) -> tuple[FrameRow, FrameRow]:
        """Return the frame that a call means (the named one, else the current one), and the current one."""
        at = self.current(session, caller)
        return (at if frame is None else rows.same_tree(self._store, at, frame)), at

    def show(self, session: Session, caller: Caller, frame: str | None) -> ToolAnswer:
        """Show a frame with its context and its tree. If it is named and open, make it current."""
        with self._store.transaction():  # one transaction, because starting one takes as long as reading a row
            row, at = self.named(session, caller, frame)
            if frame is not None and row.status in OPEN:
                self._currents.put(caller, row.key)
                at = row
            view = self._views.of(row, session.policy.limits.context_tokens)
            fields: JsonObject = {
                "kind": row.kind.value,
                "session": self._session_of(row),
                "children": [rows.frame_id(key) for key in view.children],
                "log": row.log,
            }
            if row.status is not Status.PLANNED and (kept := rows.compaction_of(self._store, row.key)) is not None:
                fields |= {"summary": kept.text, "summary_by": kept.source}
                fields |= {"artifacts": list(kept.artifacts), "decisions": list(kept.decisions)}
                if values := [value.name for value in handed_over(self._store, row.key)]:
                    fields["handed_over"] = values
            fields |= {"tree": list(view.tree), "context": view.context}
            return self.told(row, at, fields)

    async def invalidate(self, session: Session, caller: Caller, frame: str) -> ToolAnswer:
        """Invalidate a frame and what is planned below; name the frames that are in progress below."""
        at = self.current(session, caller)
        row = rows.same_tree(self._store, at, frame)
        done = await self.call_off(row.key, caller.handshake.author)
        fields: JsonObject = {"invalidated": list(done.invalidated)}
        if done.running:
            fields["still_running"] = list(done.running)
            fields["notice"] = "these frames are still in progress below an invalidated frame; pop them"
        return self.told(rows.get(self._store, row.key), self.current(session, caller), fields)

    async def call_off(self, key: int, author: str) -> Invalidated:
        """Invalidate a frame and what is planned below it, and write the logs."""
        self._cells.flush()
        done = ending.invalidate(self._store, key, author=author, now=self._clock())
        await self.keep()
        return done

    async def reopen(self, session: Session, caller: Caller, frame: str) -> ToolAnswer:
        """Plan an ended frame again, with the frames that ended with it."""
        at = self.current(session, caller)
        await self.keep()  # its log is of what has ended
        row = rows.same_tree(self._store, at, frame)
        back = ending.reopen(self._store, row.key, author=caller.handshake.author, now=self._clock())
        return self.told(back[0], at, {"reopened": [row.id for row in back]})

    def forget(self, session: Session, caller: Caller, frame: str) -> ToolAnswer:
        """Delete a frame with everything below it and everything kept about them."""
        at = self.current(session, caller)
        return ToolAnswer({"forgotten": self.delete(rows.same_tree(self._store, at, frame).key)}, ("forgotten",))

    def delete(self, key: int) -> list[str]:
        """Delete a frame and all frames below it, rows and files. Return their ids."""
        gone = [row.id for row in ending.forget(self._store, key)]
        self.logs.forget(gone)
        self._views.clear()
        self._store.purge()
        return gone

    def follow(
        self, session: Session, caller: Caller, parts: Sequence[Part], tell: Callable[[Part], None]
    ) -> Callable[[], None]:
        """Notify each changed part of the caller's tree from now on. Return a function that ends this."""
        tree = self.current(session, caller).tree
        return self.changes.follow(tree, parts, session.policy.limits.context_tokens, tell)

    # --- what happens to sessions -----------------------------------------------------------------

    async def end_session(self, session: SessionRow) -> None:
        """Block the goals of a session that is about to end, and write their logs while their cells exist."""
        self._cells.flush()
        with self._store.transaction():
            blocked = ending.end_session(self._store, session.key, author="daemon", now=self._clock())
            self._summaries.ask([row.key for row in blocked])
        if blocked:
            await Runtime(self._store, self.effects()).keep({"log", "notebook"})

    async def recover(self) -> None:
        """Finish or undo the pending effects of an earlier daemon."""
        await Runtime(self._store, self.effects()).recover(now=self._clock())

    def spill(self) -> None:
        """Move cells beyond the bound of running frames from the journal to their files; called from time to time."""
        for session in self._live:
            for row in rows.goals_running(self._store, session.key):
                self.logs.spill(row)

    async def keep(self) -> None:
        """Carry out the pending effects of ended frames, one caller at a time."""
        async with self._keeping:
            await Runtime(self._store, self.effects()).keep()

    def effects(
        self, session: Session | None = None, policy: str | None = None, name: str | None = None
    ) -> FrameEffects:
        """Return the effects of a push or pop of this session; without one, those that need no session."""
        return FrameEffects(self._live, self._forks, self.logs, self.values, self._summaries, session, policy, name)

    def _tell_kernels(self, parent: int) -> None:
        """Have the parent's kernel receive the result of a frame before its next cell."""
        near = rows.nearest_session(self._store, parent)
        if near is not None and (found := self._live.of_key(near.session)) is not None:
            found.kernel.deliveries.frames_ended += 1

    def context_of(self, session: Session, row: FrameRow) -> str:
        """Return the context of a frame for a model."""
        return context.assemble(self._store, row.key, tokens=session.policy.limits.context_tokens)

    def _find(self, key: int | None) -> FrameRow | None:
        """Return a frame of any tree, unless it was forgotten."""
        try:
            return None if key is None else rows.get(self._store, key)
        except UnknownFrame:
            return None

    def _session_of(self, row: FrameRow) -> str | None:
        if row.session is None or row.status is not Status.IN_PROGRESS:
            return None
        return sessions.name_of(self._store, row.session)

    def told(
        self, row: FrameRow, current: FrameRow, fields: JsonObject, cuttable: Sequence[str] = _CUTTABLE
    ) -> ToolAnswer:
        """Return the first fields of an answer: the path from the root, and the current frame."""
        above = rows.above(self._store, row.key)
        way = above if current.key == row.key else rows.above(self._store, current.key)
        breadcrumb = " > ".join(upper.id for upper in reversed(way))
        said: JsonObject = {"breadcrumb": breadcrumb, "current": current.id, "frame": row.id}
        parent = None if row.parent is None else rows.frame_id(row.parent)
        said |= {"goal": row.goal, "status": row.status.value, "parent": parent, **fields}
        if warned := [upper.id for upper in above[1:] if upper.status is Status.INVALIDATED]:
            said.setdefault("notice", f"{', '.join(warned)} above it was invalidated")
        return ToolAnswer(said, tuple(cuttable))
