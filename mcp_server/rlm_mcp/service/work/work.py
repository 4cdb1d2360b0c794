"""The verbs of the queue: next, claim, renew, release, done, add, list.

Each concerns the tree of the caller's repository. An index lookup finds the tasks that can be claimed
(`rlm_memory.work.ready`). `rlm_mcp.service.holders` tracks who holds a claim and whether it is alive. The daemon
supplies the fence of a write; callers need not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from rlm_client.calls import Detail
from rlm_contexts.errors import SourceError
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_ipc.work_requests import MeasuresShown, WorkImported
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.beginnings import Beginnings
from rlm_mcp.service.caller import Caller
from rlm_mcp.service.errors import ToolFault, refuse_unknown
from rlm_mcp.service.frames.boundaries import told_of
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.holders import Holders
from rlm_mcp.service.sessions.names import session_id_for, workspace_for
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_mcp.service.work.adding import add
from rlm_mcp.service.work.by_hand import WorkByHand
from rlm_mcp.service.work.shown import shown
from rlm_mcp.service.work.trackers import export_tasks, import_tasks, read_file
from rlm_memory import sessions
from rlm_memory.errors import FrameStatusRefused, UnknownSession
from rlm_memory.frames import rows
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Kind, Status
from rlm_memory.places import tree_of
from rlm_memory.store import Store
from rlm_memory.work import holders, leases, progress
from rlm_memory.work.board import state
from rlm_memory.work.handoffs import boundaries, decay
from rlm_memory.work.holders import Holder
from rlm_memory.work.leases import Lease
from rlm_memory.work.measures import measures
from rlm_memory.work.ready import count_ready, has_queue, next_batch, ready, stuck

LONGEST_WAIT = 45.0
"""How many seconds a call waits for a ready task."""
_SHORTEST_PAUSE = 0.05
_MOST_LISTED = 500
_MOST_STUCK = 5
_LISTED = ("ready", "waiting", "stale", *map(str, Status))
_ABOVE_ENDS = {"completed": Status.COMPLETED, "failed": Status.FAILED, "blocked": Status.BLOCKED}


_DATA: Final = {
    "next": {"limit", "scope", "stale"},
    "claim": {"scope", "stale", "steal"},
    "release": {"fence", "force"},
    "done": {"decisions", "fence", "files", "force", "status", "summary"},
    "list": {"limit", "scope", "status"},
}
"""The fields of each verb's data; `add` checks its own, and `renew` takes notes of any name."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of the tool: ``id`` is a frame, ``holder`` what the lease is tied to if not to the connection.

    ``data`` is what `add` and `renew` write, and selects frames for `next`, `claim` and `list`.
    """

    do: str
    id: str | None = None
    data: Mapping[str, Any] | None = None
    fields: Detail | None = None
    wait: bool = False
    holder: str | None = None

    @property
    def stale(self) -> bool:
        """Whether the call is about stale claims instead of ready tasks."""
        return bool((self.data or {}).get("stale"))


class Work:
    """The queue of every tree.

    Attributes:
        beginnings: of queues, by their first task.
    """

    def __init__(self, store: Store, frames: Frames, live: Holders, clock: Callable[[], float]) -> None:
        self._store, self._frames, self._holders, self._clock = store, frames, live, clock
        self.by_hand = WorkByHand(store, live, clock)
        self.beginnings = Beginnings()

    def begin(self) -> None:
        """Check which holders are alive, and free the claims of dead ones that the last daemon did not free."""
        self._holders.begin()
        decay(self._store, now=self._clock())

    async def do(self, session: Session, caller: Caller, asked: Asked) -> ToolAnswer:
        """Carry out a call; raises what the verbs do."""
        if (takes := _DATA.get(asked.do)) is not None:
            refuse_unknown("work", asked.data or (), takes, f"data of {asked.do} takes {', '.join(sorted(takes))}")
        at = self._frames.current(session, caller)
        client = caller.handshake
        if asked.holder is not None and asked.do in ("next", "add", "list"):  # they need no holder
            with suppress(ToolFault):  # a token whose time is over may look all the same
                self._holders.find(client, asked.holder)  # extends the lease of a token
        match asked.do:
            case "next":
                fields = await self._next(caller, at, asked)
            case "claim":
                fields = await self._claim(session, caller, at, asked)
            case "renew":
                fields = self._renew(at, client, asked)
            case "release":
                fields = self._release(at, client, asked)
            case "done":
                fields = await self._done(session, client, at, asked)
            case "add":
                fields = add(self._store, at, asked.id, asked.data or {}, session.row.workspace, now=self._clock())
                self.beginnings.begun(at.tree)
            case _:
                fields = self._list(at, asked)
        return ToolAnswer(fields, ("frames", "progress"))

    # --- whether there is a queue -----------------------------------------------------------------

    def has_queue(self, named: str) -> bool:
        """Return whether a tree has a queue. Goals that agents plan for themselves do not count."""
        return has_queue(self._store, named)

    # --- other trackers ---------------------------------------------------------------------------

    def tree_for(self, client: ClientInfo, asked: str | None) -> str:
        """Return the name of the tree for a call that opens no session."""
        name = session_id_for(client, asked)
        try:
            return tree_of(sessions.get(self._store, name).workspace, name)
        except UnknownSession:
            return tree_of(workspace_for(client), name)

    async def import_file(self, named: str, file: Path, tracker: str, skip_missing: bool) -> WorkImported:
        """Import the tasks of a tracker's file into a tree; raises ToolFault on failure."""
        try:
            text = await asyncio.to_thread(read_file, file)
        except (SourceError, OSError, ValueError) as error:
            raise ToolFault("invalid_arguments", f"{file} cannot be read ({error})", "name a file of UTF-8") from error
        done = import_tasks(self._store, named, tracker, text, now=self._clock(), skip_missing=skip_missing)
        if done.added:
            self.beginnings.begun(named)
        return done

    def export_file(self, named: str, tracker: str) -> str:
        """Return a tree as the file of a tracker."""
        return export_tasks(self._store, named, tracker, now=self._clock())

    def measured(self, named: str) -> MeasuresShown:
        """Return the measures of the work in a tree."""
        return MeasuresShown(tuple(measures(self._store, named)))

    # --- what is next -----------------------------------------------------------------------------

    async def _next(self, caller: Caller, at: FrameRow, asked: Asked) -> JsonObject:
        """Return the ids of tasks that can be worked on in parallel, or what everything waits for."""
        most, scope = _limit(asked, 3), self._scope(at, asked)

        def look() -> list[str]:
            if asked.stale:
                late = leases.stale(self._store, at.tree, now=self._clock())
                return [rows.frame_id(key) for key in late[:most]]
            return next_batch(self._store, at.tree, now=self._clock(), most=most, scope=scope)

        found = await self._wait(look, caller, at, asked) if asked.wait else look()
        if asked.stale:
            return {"stale": found or []}
        return {"next": found} if found else self._nothing(at, scope)

    def _nothing(self, at: FrameRow, scope: int | None) -> JsonObject:
        """Say why nothing is ready: everything is done, others work, or something is stuck."""
        answer: JsonObject = {"next": []}
        running = [row for row in self._whole(at.tree, scope) if leases.is_held(row)]
        if count_ready(self._store, at.tree, scope=scope):
            answer["notice"] = "all ready tasks declare paths on which others work at the moment"
        if running:
            answer["in_progress"] = [row.id for row in running[:_MOST_STUCK]]
        elif frames := stuck(self._store, at.tree):
            answer["stuck"] = [
                f"{_obstacle(frame.frame, frame.status)}; tasks waiting for it: {frame.waiting}"
                for frame in frames[:_MOST_STUCK]
            ]
        return answer

    async def _wait(self, look: Callable[[], Any], caller: Caller, at: FrameRow, asked: Asked) -> Any:
        """Look again after each change of rows until something is found, for at most `LONGEST_WAIT`.

        Return None if the caller has hung up: nobody would work on what is found.

        A claim becomes stale without a change, so a call for stale ones also looks then. The lease of the caller's
        token goes on while it waits.

        A look that finds nothing must write nothing: that would wake all calls that wait, and theirs would wake this
        one again.
        """
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            loop.call_soon_threadsafe(changed.set)

        unwatch = self._store.watch(told)
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                while not caller.is_gone():
                    if found := look():
                        return found
                    alarm = loop.call_later(self._pause(at, asked), changed.set)
                    try:
                        await changed.wait()
                    finally:
                        alarm.cancel()
                    changed.clear()
                return None
        except TimeoutError:
            return None if caller.is_gone() else look()
        finally:
            unwatch()

    def _pause(self, at: FrameRow, asked: Asked) -> float:
        """Return after how many seconds a call that waits has something to do even if no row changes."""
        pause = LONGEST_WAIT
        if (renewal := self._holders.renew(asked.holder)) is not None:
            pause = min(pause, renewal)
        if asked.stale and (late := leases.next_stale(self._store, at.tree)) is not None:
            pause = min(pause, late - self._clock())
        return max(pause, _SHORTEST_PAUSE)

    # --- leases -----------------------------------------------------------------------------------

    async def _claim(self, session: Session, caller: Caller, at: FrameRow, asked: Asked) -> JsonObject:
        scope = self._scope(at, asked)
        key = None if asked.id is None else self._key(at, asked.id)
        self._holders.check(caller.handshake, asked.holder)

        def take() -> tuple[Lease, Holder, str | None] | None:
            return self._take(session, caller.handshake, at, asked, key, scope)

        taken = await self._wait(take, caller, at, asked) if asked.wait and key is None else take()
        if taken is None:
            return self._nothing(at, scope)
        lease, holder, token = taken
        self._frames.versions.begin(lease.key, workspace_for(caller.handshake))
        if len(leases.held_by(self._store, holder.id)) == 1 and asked.holder is None:
            self._frames.work_on(caller, lease.key)
        return self._told(lease, holder, token, asked.fields)

    def _take(
        self, session: Session, client: ClientInfo, at: FrameRow, asked: Asked, key: int | None, scope: int | None
    ) -> tuple[Lease, Holder, str | None] | None:
        """Take a lease for the holder that a call means. Return None if nothing is ready, without writing anything."""
        now, data = self._clock(), asked.data or {}
        why = None if key is None else data.get("steal")
        if key is not None and not why:
            leases.check_ready(self._store, key)  # a refusal in the transaction would roll it back
        if key is None and asked.stale:
            key, why = next(iter(leases.stale(self._store, at.tree, now=now)), None), "stale"
        if key is None and (why or not ready(self._store, at.tree, now=now, scope=scope)):
            return None
        by_time = (asked.holder or "").startswith("ttl:")
        # A holder by time is made for this lease: without the lease there is no such holder.
        with self._store.transaction() if by_time else nullcontext():
            holder, token = self._holders.of(client, asked.holder)
            if key is not None and why:
                lease: Lease | None = leases.steal(self._store, key, holder, now=now, why=str(why), session=session.key)
            else:
                since = self._holders.since(client)
                lease = leases.claim(
                    self._store, holder, at.tree, now=now, key=key, scope=scope, session=session.key, since=since
                )
        return None if lease is None else (lease, holder, token)

    def _told(self, lease: Lease, holder: Holder, token: str | None, fields: Detail | None) -> JsonObject:
        row = rows.get(self._store, lease.key)
        said: JsonObject = {"claimed": lease.frame, "fence": lease.fence, "holder": holder.id}
        said |= {name: value for name, value in shown(self._store, row, fields or "standard").items() if name != "id"}
        if token:
            said |= {"token": token, "until": holder.expires_at}
        if lease.returned:
            said["notice"] = "you have it again, with the same fence; you lost it when you disconnected or stopped"
        elif lease.fence > 1:
            said["attempt"] = lease.fence
            said["notice"] = f"attempt {lease.fence}: `progress` has the notes of the previous holder"
        if lease.progress:
            said["resuming"] = progress.resuming(lease.frame, progress.get(self._store, lease.key))
            said["progress"] = lease.progress
        return said

    def _renew(self, at: FrameRow, client: ClientInfo, asked: Asked) -> JsonObject:
        """Renew a lease, and merge the notes into the work in progress of its frame."""
        row = self._row(at, asked)
        holder = self._holders.writer(client, asked.holder, row.holder)
        data = dict(asked.data or {})
        fence = data.pop("fence", None)
        with self._store.transaction():
            leases.check(self._store, row, holder, fence, now=self._clock())
            row = rows.get(self._store, row.key)
            if row.freed_at is not None:
                raise FrameStatusRefused(row.id, row.status, "renew", "nobody has claimed it")
            if data:
                progress.update(self._store, row.key, data, now=self._clock())
        known = holders.find(self._store, row.holder) if row.holder else None
        said: JsonObject = {"renewed": row.id, "fence": row.fence}
        return said if known is None or known.expires_at is None else said | {"until": known.expires_at}

    def _release(self, at: FrameRow, client: ClientInfo, asked: Asked) -> JsonObject:
        row, data = self._row(at, asked), asked.data or {}
        by_hand = bool(data.get("force"))
        holder = None if by_hand else self._holders.writer(client, asked.holder, row.holder)
        author = holder or f"client {client.pid}"
        fence = data.get("fence")
        leases.release(self._store, row.key, holder, now=self._clock(), author=author, fence=fence)
        return {"released": row.id}

    async def _done(self, session: Session, client: ClientInfo, at: FrameRow, asked: Asked) -> JsonObject:
        row, data = self._row(at, asked), dict(asked.data or {})
        holder = None if data.get("force") else self._holders.writer(client, asked.holder, row.holder)
        status = _ABOVE_ENDS.get(str(data.get("status", "completed")))
        if status is None:
            raise _refused(f"status must be one of {', '.join(_ABOVE_ENDS)}")
        outcome = Outcome(status, str(data.get("summary", "")), _texts(data, "files"), _texts(data, "decisions"))
        ended = await self._frames.end(
            row.key, outcome, holder or f"client {client.pid}", session, by=holder, fence=data.get("fence")
        )
        said: JsonObject = {"done": ended.frame, "status": ended.status, **told_of(boundaries(self._store, row.key))}
        return said | self._frames.versions.told(row.key)

    # --- lists ------------------------------------------------------------------------------------

    def _list(self, at: FrameRow, asked: Asked) -> JsonObject:
        if asked.id is not None:
            return {"frame": shown(self._store, self._row(at, asked), asked.fields or "standard")}
        data, scope = asked.data or {}, self._scope(at, asked)
        if (wanted := data.get("status")) not in (None, *_LISTED):
            raise _refused(f"status must be one of {', '.join(_LISTED)}")
        late = leases.stale(self._store, at.tree, now=self._clock()) if wanted == "stale" else ()
        found = sorted(self._whole(at.tree, scope), key=lambda row: row.key)
        goals = [row for row in found if row.kind is not Kind.SESSION]
        if wanted is not None:
            goals = [row for row in goals if wanted in (row.status.value, state(row, stale=row.key in late))]
        most = _limit(asked, _MOST_LISTED)
        told = [shown(self._store, row, asked.fields or "minimal", now=self._clock()) for row in goals[:most]]
        return {"frames": told} | ({} if len(goals) <= most else {"more": len(goals) - most})

    def _whole(self, tree: str, scope: int | None) -> list[FrameRow]:
        """Return the frame that is the scope, else the root, with all frames below it."""
        root = rows.root_of(self._store, tree)
        return [] if root is None else rows.whole(self._store, root.key if scope is None else scope)

    # --- arguments --------------------------------------------------------------------------------

    def _row(self, at: FrameRow, asked: Asked) -> FrameRow:
        if asked.id is None:
            raise _refused(f"{asked.do} needs the id of a frame")
        return rows.get(self._store, self._key(at, asked.id))

    def _key(self, at: FrameRow, frame: str) -> int:
        return rows.same_tree(self._store, at, frame).key

    def _scope(self, at: FrameRow, asked: Asked) -> int | None:
        said = (asked.data or {}).get("scope")
        return None if said is None else self._key(at, str(said))


def _obstacle(frame: str, status: str) -> str:
    if status in {"failed", "blocked"}:
        return f"{frame} {status}"
    return f"everything in {frame} has ended, but {frame} is open (end it: work done {frame})"


def _limit(asked: Asked, default: int) -> int:
    value = (asked.data or {}).get("limit", default)
    if type(value) is not int or value < 1:
        raise _refused("limit must be a positive whole number")
    return min(value, _MOST_LISTED)


def _texts(data: Mapping[str, Any], name: str) -> list[str]:
    value = data.get(name, [])
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _refused(why: str) -> ToolFault:
    return ToolFault("invalid_arguments", f"work: {why}", "call work again with that corrected")
