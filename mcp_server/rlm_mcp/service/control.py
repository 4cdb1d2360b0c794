"""What an agent can do with its whole session: status, interrupt, restart, end."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from rlm_ipc.daemon_rows import OpenSession, RestingSession
from rlm_ipc.errors import CallerError, KernelError
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.outcomes import session_ended
from rlm_mcp.service.cells.cell_answers import missing_copy
from rlm_mcp.service.cells.runs import Runs
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.session_events import Events
from rlm_mcp.service.sessions.expiry import rests_until
from rlm_mcp.service.sessions.names import is_frame_id
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.tool_answers import ToolAnswer, moment
from rlm_memory import contexts, inherited_queries, queries, sessions
from rlm_memory.errors import DiskFull
from rlm_memory.frames import rows
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import OPEN, Kind
from rlm_memory.sessions import SessionStatus
from rlm_memory.store import Store


class SessionControl:
    """Session control for the tools."""

    def __init__(self, store: Store, sessions: Sessions, runs: Runs, clock: Clock, events: Events) -> None:
        self._store, self._clock, self._sessions, self._runs, self._events = store, clock, sessions, runs, events

    async def status(self, session: Session) -> ToolAnswer:
        """Describe the session: policy, kernel, walls, memory, content, runs, pending queries."""
        limits = session.policy.limits
        fields: JsonObject = {
            "session": session.id,
            "policy": session.row.policy,
            "policy_sha256": session.pinned.digest,
            "workspace": session.row.workspace or None,
            "created": moment(session.row.created_at),
            "kernel": await self._kernel(session),
            "contexts": len(contexts.names(self._store, session.key)),
            "content_bytes": contexts.charged_bytes(self._store, session.key),
            "runs": {run.id: "waiting" if run.suspended else run.state for run in self._runs.active(session)},
            "pending_llm_queries": queries.pending_ids(self._store, session.key),
            "kept_until": self._kept_until(session),
            "limits": {
                "content_bytes": limits.content_bytes,
                "memory_bytes": limits.memory_bytes,
                "cell_seconds": limits.cell_seconds,
                "idle_seconds": limits.idle_seconds,
                "unanswered_seconds": limits.unanswered_seconds,
            },
        }
        if session.policy.checkpoint == "durable":
            fields["unsaved"] = plain(self._events.durable.of(session))
        if session.kernel.notice:
            fields["notice"] = session.kernel.notice
        return ToolAnswer(fields, ("pending_llm_queries", "kernel"))

    def _kept_until(self, session: Session) -> dict[str, str | None]:
        """Return until when the session's contents are kept if it is not used; None: until someone ends it."""
        idle = session.last_used + session.policy.limits.idle_seconds
        until = rests_until(self._store, session.key, session.policy, idle)
        kept = None if until is None else moment(until)
        return {"variables": kept if session.policy.reopen else moment(idle), "texts_and_queries": kept}

    def resting(self) -> list[RestingSession]:
        """Return the suspended sessions: their contents, and until when they are kept (None: until ended)."""
        return [
            RestingSession(
                session=row.id,
                policy=row.policy,
                workspace=row.workspace,
                contexts=len(contexts.names(self._store, row.key)),
                content_bytes=contexts.charged_bytes(self._store, row.key),
                kernel="suspended",
                pending_llm_queries=tuple(queries.pending_ids(self._store, row.key)),
                last_used=moment(row.last_used_at),
                kept_until=None if row.kept_until is None else moment(row.kept_until),
            )
            for row in sessions.all_sessions(self._store, SessionStatus.RESTING)
        ]

    def row(self, session: Session) -> OpenSession:
        """Return the session's line in lists, with what opens it in a notebook."""
        info = session.kernel.info
        return OpenSession(
            session=session.id,
            policy=session.row.policy,
            workspace=session.row.workspace or "",
            contexts=len(contexts.names(self._store, session.key)),
            content_bytes=contexts.charged_bytes(self._store, session.key),
            kernel="not started" if info is None else "busy" if session.kernel.busy else "idle",
            last_used=moment(session.last_used),
            connection_file="" if info is None else info.connection_file or "",
        )

    async def interrupt(self, session: Session) -> ToolAnswer:
        """Interrupt the running and queued code; variables are kept."""
        return ToolAnswer({"session": session.id, "interrupted": await self._runs.interrupt(session)})

    async def stop(self, session: Session) -> list[str]:
        """Interrupt for the session's owner: code of agents, else a notebook's cell."""
        stopped = await self._runs.interrupt(session)
        if not stopped and session.kernel.alive:
            found = await session.kernel.ask(lambda client, kernel: client.interrupt(kernel))
            return ["notebook"] if found else []
        return stopped

    def check_runs(self, session: Session, named: str | None) -> FrameRow | None:
        """Return the frame that is named. Refuse one that does not run in the session, as an ended or a planned one.

        Raises:
            ToolFault: the session belongs to a frame above, and others may work in it.
        """
        if not is_frame_id(named):
            return None
        row = rows.get(self._store, rows.frame_key(named))
        if row.session != session.key or row.status not in OPEN:
            raise _not_its_own(row, session)
        return row

    def check_own(self, session: Session, named: str | None) -> None:
        """Refuse to end or restart a session by the id of a frame that only uses it, even if the frame runs in it.

        Raises:
            ToolFault: the session belongs to a frame above, and others may work in it.
        """
        row = self.check_runs(session, named)
        if row is None or row.kind is Kind.SESSION:
            return
        own = rows.own_goal(rows.goals_running(self._store, session.key))
        if own is None or own.key != row.key:
            raise _not_its_own(row, session)

    async def restart(self, session: Session) -> ToolAnswer:
        """Restart the kernel: variables of code are lost, loaded contexts are kept."""
        interrupted = await self._runs.interrupt(session)
        session.kernel.deliveries.frames_ended += 1  # `frames` goes with the variables, and is none of code's own
        await session.kernel.restart()
        await self._events.restarted(session)
        kept = contexts.names(self._store, session.key)
        return ToolAnswer({"session": session.id, "restarted": True, "interrupted": interrupted, "contexts": kept})

    async def rollback(self, session: Session, cells: int, named: str | None = None) -> ToolAnswer:
        """Undo the last cells: variables are restored, files and loaded texts are not. ``named`` may name a frame."""
        self.check_runs(session, named)
        if not session.kernel.alive:
            raise ToolFault("nothing_to_undo", "no code has run in this session", "call eval_code first")
        try:
            done = await session.kernel.rollback(cells)
        except CallerError as error:
            hint = "status says in can_undo how many cells can be undone; restart_session starts over"
            raise ToolFault("cannot_undo", str(error), hint) from error
        self._events.durable.changed(session)
        for row in rows.in_session(self._store, session.key):
            rows.note(self._store, row.key, "rollback", "client", self._clock(), undone=len(done.undone))
        among = done.queries
        cancelled = queries.cancel_pending(self._store, session.key, self._clock(), among=among) if among else []
        inherited_queries.pass_on(self._store, session.key, cancelled)
        fields: JsonObject = {
            "session": session.id,
            "undone": done.undone,
            "variables_restored": done.restored,
            "variables_gone": done.gone,
            "can_undo_next": done.possible,
            "not_undone": "files in the scratch folder and loaded texts are unchanged",
        }
        if cancelled:
            fields["cancelled_llm_queries"] = cancelled
        return ToolAnswer(fields, ("variables_restored", "variables_gone", "undone"))

    def spare_room(self) -> AbstractContextManager[None]:
        """Allow deletions in this block even on a full disk."""
        return self._store.spare()

    async def sweep(self) -> list[str]:
        """End sessions that were idle too long, even on a full disk, so that no other call fails because of them."""
        try:
            return await self._sessions.sweep()
        except DiskFull:
            with suppress(DiskFull), self.spare_room():
                return await self._sessions.sweep()
        return []

    async def end(self, session: Session, how: str = "rlm-kernel ended it") -> ToolAnswer:
        """End the session and delete everything in it and kept of it. Its id can be used again."""
        session.kernel.why_ended = session_ended(how)
        used = session.kernel.alive or session.woken
        dropped = await self._sessions.end(session)
        fields: JsonObject = {"ended": session.id, "unloaded": dropped}
        if not used and not dropped:  # a call opens the session that it names, so a wrong name would end a new one
            fields["notice"] = "the session held neither texts nor variables; if you meant another one, pass its name"
        return ToolAnswer(fields, ("unloaded",))

    async def _kernel(self, session: Session) -> JsonObject:
        """The kernel as the supervisor sees it now.

        Only its state if there is none, or if the supervisor does not answer.
        """
        if not session.kernel.alive:
            return {"state": "not started"}
        try:
            info: KernelInfo = await session.kernel.ask(lambda client, kid: client.kernel_info(kid))
        except KernelError as error:
            return {"state": "gone", "reason": str(error)}
        return {
            "state": info.state,
            "pid": info.pid,
            "memory_bytes": info.memory_bytes,
            "checkpoint": info.checkpoint if info.uncopied is None else missing_copy(info.uncopied),
            "can_undo": info.undoable,
            "connection_file": info.connection_file,
            "scratch": info.scratch,
            "walls": {name: plain(wall) for name, wall in info.walls.items()},
            "refused": plain(info.refused),
        }


def _not_its_own(row: FrameRow, session: Session) -> ToolFault:
    said = f"{row.id} is {row.status} and has no session of its own, so the call would hit the one above it"
    hint = f"if you mean that session, pass session={session.id!r}"
    return ToolFault("invalid_session", said, hint, session=session.id)
