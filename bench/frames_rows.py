"""Frames: what the rows of a push, of a pop and of a context cost, against a bare transaction of the same database.

The bare transaction inserts one event and updates one frame by their keys: what the system can do. A push is a plan and
a start; a pop is the end of a frame with a summary, its promises and the folding of its parent. Contexts are assembled
in trees of 10,000 frames: wide, deep, and wide with everything planned. Nothing else should run beside it.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from ratio import Case, compare

from rlm_memory import sessions
from rlm_memory.frames import ending, tree
from rlm_memory.frames.context import PER_TOKEN, assemble
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Status
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

FRAMES = 10_000
ROUNDS = 100
LIMITS = {"push": 2e-3, "pop": 3e-3, "context": 2e-3}
"""Seconds at the median."""


def grown(store: Store, name: str) -> tuple[SessionRow, FrameRow]:
    """Open a session with a tree of its own."""
    policy = sessions.PolicyText("default", "{}", "")
    row = sessions.open_session(store, name, workspace="", policy=policy, idle_seconds=9.0, now=1.0)
    return row, tree.of_session(store, row, author="bench", now=1.0)


def wide(store: Store) -> FrameRow:
    """Make a frame among 10,000 that have ended."""
    session, root = grown(store, "wide")
    with store.transaction():
        for number in range(FRAMES):
            row = pushed(store, root, session, f"goal {number}")
            ending.pop(store, row.key, Outcome(Status.COMPLETED, "It came to this. " * 12), author="bench", now=1.0)
    return pushed(store, root, session, "the current one")


def deep(store: Store) -> FrameRow:
    """Make a frame below 10,000 others."""
    session, at = grown(store, "deep")
    with store.transaction():
        for number in range(FRAMES):
            at = tree.plan(store, tree.Plan(f"goal {number}"), at.key, author="bench", now=1.0)
    return tree.start(store, at.key, author="bench", now=1.0, session=session.key)


def planned(store: Store) -> FrameRow:
    """Make a frame among 10,000 that are planned."""
    session, root = grown(store, "planned")
    with store.transaction():
        for number in range(FRAMES):
            tree.plan(store, tree.Plan(f"goal {number}"), root.key, author="bench", now=1.0)
    return pushed(store, root, session, "the current one")


def pushed(store: Store, parent: FrameRow, session: SessionRow, goal: str) -> FrameRow:
    """Plan a goal and start it in that session."""
    with store.transaction():
        row = tree.plan(store, tree.Plan(goal), parent.key, author="bench", now=1.0)
        return tree.start(store, row.key, author="bench", now=1.0, session=session.key)


def bare(store: Store) -> Callable[[], None]:
    """The least that changes a status and tells of it."""
    event = "INSERT INTO frame_events (frame, at, author, verb, data) VALUES (1, 1.0, 'bench', 'note', '{}')"
    status = "UPDATE frames SET started_at = 1.0 WHERE key = 1"

    def run() -> None:
        with store.transaction():
            store.run(event)
            store.run(status)

    return run


def cases(store: Store) -> Iterator[Case]:
    """What is compared, the bare transaction first."""
    session, root = grown(store, "pushes")
    yield Case("bare transaction", bare(store))
    numbers = itertools.count()
    running: list[FrameRow] = []

    def push() -> None:
        running.append(pushed(store, root, session, f"goal {next(numbers)}"))

    def pop() -> float:
        if not running:
            push()
        began = time.perf_counter()
        outcome = Outcome(Status.COMPLETED, "It came to this. " * 12, ["a.py"], ["use a"])
        ending.pop(store, running.pop().key, outcome, author="bench", now=1.0)
        return time.perf_counter() - began

    yield Case("push", push)
    yield Case("pop", pop)
    for name, grow in (("wide", wide), ("deep", deep), ("planned", planned)):
        frame = grow(store)
        print(f"context, {name}: {-(-len(assemble(store, frame.key)) // PER_TOKEN)} tokens (estimated)")
        yield Case(f"context, {name}", partial(assembled, store, frame.key))


def assembled(store: Store, key: int) -> None:
    """Assemble the context of a frame."""
    assemble(store, key)


def measure(benchmark: str, cases: Callable[[Store], Iterator[Case]], limits: Mapping[str, float]) -> None:
    """Compare the cases in a new database, and say which limits hold: seconds at the median, by the kind of case."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "rows.sqlite3")
        results = compare(benchmark, list(cases(store)), rounds=ROUNDS, warm_up=20)
        store.close()
    for result in results:
        if limit := limits.get(result.case.partition(",")[0]):
            print(f"  {result.case}: {result.median * 1e3:.2f} ms of {limit * 1e3:g}, {result.cost:.1f} times bare")


if __name__ == "__main__":
    measure("frames: rows", cases, LIMITS)
