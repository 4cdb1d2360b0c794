"""Shorthands to grow a tree of frames in a real store."""

from collections.abc import Callable
from dataclasses import dataclass

from rlm_memory import journal, sessions
from rlm_memory.errors import MemoryLayerError
from rlm_memory.frames import ending, rows, tree
from rlm_memory.frames.results import Ended, Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Status
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store


@dataclass
class Grown:
    """A tree with its root, which stands for the session ``trunk``."""

    store: Store
    session: SessionRow
    root: FrameRow
    now: float = 1000.0

    def open_session(self, name: str, workspace: str = "") -> SessionRow:
        policy = sessions.PolicyText("default", "{}", "")
        return sessions.open_session(
            self.store, name, workspace=workspace, policy=policy, idle_seconds=300.0, now=self.now
        )

    def plan(self, goal: str, parent: FrameRow | None = None, *children: tree.Plan) -> FrameRow:
        above = (parent or self.root).key
        return tree.plan(self.store, tree.Plan(goal, children), above, author="planner", now=self.now)

    def start(self, row: FrameRow, session: SessionRow | None = None) -> FrameRow:
        key = self.session.key if session is None else session.key
        return tree.start(self.store, row.key, author="worker", now=self.now, session=key)

    def push(self, goal: str, parent: FrameRow | None = None) -> FrameRow:
        return self.start(self.plan(goal, parent))

    def pop(self, row: FrameRow, summary: str = "done", status: Status = Status.COMPLETED, **more: object) -> Ended:
        outcome = Outcome(status, summary, **more)  # type: ignore[arg-type]
        return ending.pop(self.store, row.key, outcome, author="worker", now=self.now)

    def cell(self, row: FrameRow | None, code: str, output: str = "", status: str = "ok") -> None:
        frame = None if row is None else row.key
        entry = JournalEntry(self.session.key, Author.AGENT, code, 1.0, 2.0, status, output, frame=frame)
        journal.append(self.store, [entry])

    def status(self, *of: FrameRow) -> list[Status]:
        return [rows.get(self.store, row.key).status for row in of]

    def again(self, row: FrameRow) -> FrameRow:
        return rows.get(self.store, row.key)


def hints(advice: str) -> Callable[[MemoryLayerError], bool]:
    """Check for `pytest.raises` that an error has this in its hint."""
    return lambda refused: advice in refused.hint
