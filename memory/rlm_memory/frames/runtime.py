"""Push and pop with their slow parts, and what remains to be done after a crash.

    push   rows: in progress, a session is promised ── kernel forked ── rows: the session, promise kept
    pop    values to the content store ── rows: status, compaction, promises ── log, notebook, kernel's end

A promise is a row of ``frame_operations``, or a value that has not been delivered. `Runtime.recover` runs when a daemon
starts: it takes back a push whose session never came, and does everything else. So each operation is done or not done,
wherever the process died. An effect that is requested twice must change nothing the second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.frame_schema import operations
from rlm_memory.frames import ending, tree
from rlm_memory.frames.results import Ended, HandedOver, Outcome
from rlm_memory.frames.rows import FrameRow, frame_key, get, in_session, nearest_session
from rlm_memory.store import Store
from rlm_memory.tables import columns_of

log = logging.getLogger(__name__)

_OWED = f"SELECT {columns_of(operations)} FROM frame_operations ORDER BY number"
_KEPT = "DELETE FROM frame_operations WHERE number = :done"
_LOGGED = "UPDATE frames SET log = :log WHERE key = :named"
_TO_BE_WRITTEN = "SELECT 1 FROM frame_operations WHERE of_session = :session AND what IN ('log', 'notebook') LIMIT 1"
_VALUES = "SELECT h.frame, h.name, h.digest, h.size, h.form FROM frame_handovers h"
_OF_FRAME = f"{_VALUES} WHERE h.frame = :frame"
_TO_SESSION = f"""
    {_VALUES} JOIN frames target ON target.key = h.target JOIN frames giver ON giver.key = h.frame
    WHERE target.session = :session"""
_BY_AGE = "ORDER BY giver.ended, h.name"
_HANDED = f"{_TO_SESSION} {_BY_AGE}"
_UNDELIVERED = f"{_TO_SESSION} AND h.delivered_at IS NULL {_BY_AGE}"
_DELIVERED = "UPDATE frame_handovers SET delivered_at = :now WHERE frame = :frame AND name = :name"


@dataclass(frozen=True, slots=True)
class Operation:
    """One promise: ``push``, ``log``, ``notebook`` or ``end``. ``of_session`` is the key of the session it concerns."""

    number: int
    frame: int
    what: str
    of_session: int | None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A value handed over by a frame, with its digest and size in the content store."""

    frame: int
    name: str
    digest: str
    size: int
    form: str


class Effects(Protocol):
    """The work of other processes and files in a push or pop. Each effect may be requested again after a crash."""

    async def open_session(self, frame: FrameRow, source: int | None, opened: Callable[[int], None]) -> None:
        """Open a session for ``frame``, forked from the session ``source`` (None: a new one).

        ``opened`` is called with its key in the transaction that creates its row; if it raises, the kernel is ended.
        """

    async def store_values(self, frame: FrameRow, names: Sequence[str]) -> list[HandedOver]:
        """Serialize variables of the frame's session into the content store, and keep them until the pop commits."""

    def extracted(self, frames: Sequence[int]) -> None:
        """Record the frames that end without a summary, in the transaction that ends them."""

    async def write_log(self, frame: FrameRow, session: int | None) -> str:
        """Write the whole Markdown log of a frame, or leave the existing one. Return its path."""

    async def write_notebook(self, frame: FrameRow, session: int) -> None:
        """Write the whole notebook of a frame, or leave the existing one."""

    async def end_session(self, session: int) -> None:
        """End a session that only ran frames, if it has not ended."""


class Runtime:
    """Push, pop and recovery over one store.

    ``step`` is called between any two steps, so that tests can raise in it.
    """

    def __init__(self, store: Store, effects: Effects, step: Callable[[str], None] = lambda _name: None) -> None:
        self._store, self._effects, self._step = store, effects, step

    async def push(self, wanted: Callable[[], FrameRow], *, author: str, now: float, fork: bool = True) -> FrameRow:
        """Start a frame in a session forked from the nearest one above, or (``fork=False``) in that session itself.

        ``wanted`` finds or plans the frame, in the transaction that starts it.

        Raises:
            UnknownFrame, FrameStatusRefused: as `rlm_memory.frames.tree.start`.
            BaseException: what ``wanted`` or `Effects.open_session` raised; then the frame is planned.
        """
        with self._store.transaction():
            key = wanted().key
            near = nearest_session(self._store, key)
            shared = None if fork or near is None else near.session
            row = tree.start(self._store, key, author=author, now=now, session=shared, push=shared is None)
        self._step("push: rows")
        if shared is not None:
            return row
        source = None if near is None else near.session

        def opened(session: int) -> None:
            tree.keep_push(self._store, key, session, source)
            self._step("push: session's rows")

        try:
            await self._effects.open_session(row, source, opened)
        except BaseException as error:  # a caller that cancels its call has not learned of the frame
            tree.undo_push(self._store, key, author=author, now=now, why=type(error).__name__)
            raise
        self._step("push: done")
        return get(self._store, key)

    async def pop(
        self, key: int, outcome: Outcome, *, author: str, now: float, allowed: ending.Allowed = ending.anybody
    ) -> Ended:
        """End a frame. The same pop again gets the same answer.

        Raises:
            UnknownFrame, FrameStatusRefused, FramesRunning: as `rlm_memory.frames.ending.check_pop`.
            RowRequestError: what ``allowed`` raised.
            Exception: what `Effects.store_values` raised; the frame keeps running.
        """
        with self._store.transaction():
            allowed(get(self._store, key))
        ended = ending.popped(self._store, key, outcome)
        if ended is None:
            row = ending.check_pop(self._store, key, outcome)
            values = await self._effects.store_values(row, outcome.hand_over) if outcome.hand_over else []
            self._step("pop: values")
            with self._store.transaction():
                ended = ending.pop(self._store, key, outcome, values, author=author, now=now, allowed=allowed)
                own = [key] if ended.source == "extract" else []
                self._effects.extracted([*own, *map(frame_key, ended.failed)])
            self._step("pop: rows")
        return ended

    def owed(self) -> list[Operation]:
        """List the promises that are still open, in the order in which they were made."""
        return self._store.records(Operation, _OWED)

    async def keep(self, what: Collection[str] = ("log", "notebook", "end")) -> None:
        """Fulfil the promises of these kinds that ends of frames have made. The next call retries those that fail.

        A session ends only after everything about it is written: its cells are deleted with it, including those of
        other frames.
        """
        for owed in sorted(self.owed(), key=lambda owed: owed.what == "end"):
            if owed.what not in what or (owed.what == "end" and self._to_be_written(owed.of_session)):
                continue
            try:
                await self._keep(owed)
            except Exception:
                log.exception("the %s of frame f%d could not be written yet", owed.what, owed.frame)

    async def recover(self, *, now: float) -> None:
        """Fulfil or take back the promises of a dead daemon. It may itself be interrupted and run again."""
        for owed in self.owed():
            if owed.what == "push":
                tree.undo_push(self._store, owed.frame, author="recovery", now=now, why="the daemon ended")
                self._step("recover: push")
        await self.keep()

    async def _keep(self, owed: Operation) -> None:
        row = get(self._store, owed.frame)
        at: str | None = None
        match owed.what:
            case "log":
                at = await self._effects.write_log(row, owed.of_session)
            case "notebook" if owed.of_session is not None:
                await self._effects.write_notebook(row, owed.of_session)
            case "end" if owed.of_session is not None and not self._in_use(owed.of_session):
                await self._effects.end_session(owed.of_session)
        self._step(f"keep: {owed.what}")
        with self._store.transaction():
            if at is not None:
                self._store.run(_LOGGED, named=owed.frame, log=at)
            self._store.run(_KEPT, done=owed.number)
        self._step(f"keep: {owed.what} noted")

    def _in_use(self, session: int) -> bool:
        """Whether a frame runs in that session, so that the kernel does not belong to one frame alone."""
        return bool(in_session(self._store, session))

    def _to_be_written(self, session: int | None) -> bool:
        """Whether a log or notebook with cells of that session is still to be written."""
        return self._store.row(_TO_BE_WRITTEN, session=session) is not None


def undelivered(store: Store, session: int, *, again: bool = False) -> list[Undelivered]:
    """List the values that must be in a session's kernel before its next cell, the latest hand-over last.

    ``again`` includes those that an earlier kernel already had.
    """
    return store.records(Undelivered, _HANDED if again else _UNDELIVERED, session=session)


def delivered(store: Store, values: Sequence[Undelivered], *, now: float) -> None:
    """Record that values are in the kernel they were meant for."""
    store.run_each(_DELIVERED, [{"frame": value.frame, "name": value.name, "now": now} for value in values])


def handed_over(store: Store, key: int) -> list[Undelivered]:
    """List the values that a frame has handed over, delivered or not."""
    return store.records(Undelivered, _OF_FRAME, frame=key)
