"""Frames for a person: by id, in every tree, without a session.

Reading opens no session and creates no frame. A person's changes take the same steps as an agent's, with ``page`` as
author.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.tree_record import RecordedFrame
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.frames.records import record_of_frame
from rlm_mcp.service.sessions.sessions import Clock
from rlm_memory import sessions
from rlm_memory.frames import ending, rows, tree
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import OPEN, STEPS, Kind, Status, Verb
from rlm_memory.frames.survey import FrameGlance, Survey
from rlm_memory.frames.tree import Plan
from rlm_memory.store import Store

_AUTHOR = "page"
_MOST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class FrameDetail:
    """A complete frame. ``may`` names the actions that are possible now.

    ``files`` has the kinds of files written at its end: ``md``, the log, and ``ipynb``, the notebook.
    """

    frame: RecordedFrame
    files: tuple[str, ...]
    may: tuple[str, ...]


class FramesByHand:
    """A person's requests; each verb raises what the tool of that name does."""

    def __init__(self, store: Store, frames: Frames, clock: Clock) -> None:
        self._store, self._frames, self._clock = store, frames, clock

    def viewer(self) -> FrameViewer:
        """Return a follower of all frames."""
        return FrameViewer(self._store, self._frames)

    def detail(self, frame: str) -> FrameDetail:
        """Return a frame with all its records; raises UnknownFrame."""
        with self._store.transaction():
            row = self._get(frame)
            found = record_of_frame(self._store, row)
            shown = replace(found, events=found.events[-_MOST_EVENTS:])
            return FrameDetail(shown, tuple(self._frames.logs.written(row)), tuple(_may(row)))

    async def file(self, frame: str, kind: str) -> str:
        """Return the log (``md``) or the notebook (``ipynb``) of a frame; raises ToolFault if it has none."""
        return await self._frames.logs.read(self._get(frame), kind)

    async def plan(self, frame: str, goals: Sequence[Plan]) -> JsonObject:
        """Plan goals below a frame: all of them or none."""
        with self._store.transaction():
            above = self._get(frame)
            made = [tree.plan(self._store, goal, above.key, author=_AUTHOR, now=self._clock()) for goal in goals]
        return {"planned": [row.id for row in made]}

    async def push(self, frame: str, goal: str | None, *, fork: bool) -> JsonObject:
        """Start a planned or blocked frame; with a goal, start the goal below the frame."""

        def wanted() -> FrameRow:
            row = self._get(frame)
            if goal is None:
                return row
            return tree.plan(self._store, Plan(goal), row.key, author=_AUTHOR, now=self._clock())

        started = await self._frames.start(wanted, self._frames.effects(), _AUTHOR, fork=fork)
        return {"frame": started.id, "session": self._session_of(started)}

    async def pop(self, frame: str, outcome: Outcome) -> JsonObject:
        """End a frame in progress."""
        return plain(await self._frames.end(self._get(frame).key, outcome, _AUTHOR))

    async def invalidate(self, frame: str) -> JsonObject:
        """Invalidate a frame and what is planned below it."""
        return plain(await self._frames.call_off(self._get(frame).key, _AUTHOR))

    async def reopen(self, frame: str) -> JsonObject:
        """Reopen an ended frame, with those that ended with it."""
        await self._frames.keep()  # the log describes the earlier end
        back = ending.reopen(self._store, self._get(frame).key, author=_AUTHOR, now=self._clock())
        return {"reopened": [row.id for row in back]}

    async def forget(self, frame: str) -> JsonObject:
        """Delete a frame and all frames below it, with all their records."""
        return {"forgotten": self._frames.delete(self._get(frame).key)}

    async def make_current(self, frame: str) -> JsonObject:
        """Make it the current frame of all clients that have one in its tree."""
        row = self._get(frame)
        if row.status not in OPEN:
            raise ToolFault("frame_status", f"{row.id} has ended, so it cannot be current", "reopen it first")
        return {"current": row.id, "clients": self._frames.make_current(row)}

    def _get(self, frame: str) -> FrameRow:
        return rows.get(self._store, rows.frame_key(frame))

    def _session_of(self, row: FrameRow) -> str | None:
        return None if row.session is None else sessions.name_of(self._store, row.session)


class FrameViewer:
    """Follows all frames, and returns only changes."""

    def __init__(self, store: Store, frames: Frames) -> None:
        self._survey = Survey(store)
        self._frames = frames
        self._told: dict[str, FrameGlance] = {}
        self._current: dict[int, int] = {}
        self._first = True

    def look(self) -> JsonObject | None:
        """Return rows that are new or have changed, ids that are gone, and the current ones; None: no news.

        ``whole`` says that these are all rows, and replace earlier ones.
        """
        current = dict(self._frames.currents())
        first, self._first = self._first, False
        if not self._survey.look() and not first and current == self._current:
            return None
        known = self._survey.known
        rows_ = [plain(row) for key, row in known.items() if self._told.get(key) != row]
        gone = [key for key in self._told if key not in known]
        news = bool(rows_ or gone) or current != self._current or first
        self._told, self._current = dict(known), current
        if not news:
            return None
        named = {rows.frame_id(key): count for key, count in current.items()}
        return {"whole": first, "rows": rows_, "gone": gone, "current": named}


def _may(row: FrameRow) -> list[str]:
    """Return what the table of steps allows; the verb itself decides."""
    goal = row.kind is not Kind.SESSION
    allowed = {
        "push": row.status in STEPS[Verb.START],
        "push_below": row.status in OPEN,
        "plan": row.status in OPEN,
        "pop": goal and row.status in STEPS[Verb.POP],
        "current": row.status in OPEN,
        "invalidate": goal and row.status in STEPS[Verb.INVALIDATE],
        "reopen": goal and row.status in STEPS[Verb.REOPEN],
        "forget": row.status is not Status.IN_PROGRESS,
    }
    return [name for name, allows in allowed.items() if allows]
