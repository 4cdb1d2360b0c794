"""Random trees with a crash before any statement or between any two steps: every operation is done, or not done.

Kernels, content and logs outlive the daemon, as they do in earnest; rows are those of a real database. The short form
runs with every other test: ``RLM_FRAMES_OPS=20000 RLM_FRAMES_SEED=7`` makes a long one of it.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast
from xml.etree import ElementTree as ET

import pytest
from told_statements import tell_of_statements

from rlm_memory import journal, queries, sessions
from rlm_memory.errors import RowRequestError
from rlm_memory.frames import context, ending, rows, runtime, summaries, tree
from rlm_memory.frames.results import HandedOver, Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.runtime import Runtime
from rlm_memory.frames.states import OPEN, OUTCOMES, Kind, Status
from rlm_memory.journal import Author, JournalEntry
from rlm_memory.queries import QueryRow
from rlm_memory.sessions import How
from rlm_memory.store import Store

OPS = int(os.environ.get("RLM_FRAMES_OPS", "240"))
SEED = int(os.environ.get("RLM_FRAMES_SEED", "1"))
OPERATIONS = 40
"""Operations of one tree."""
T = TypeVar("T")
PLACES = {
    *("BEGIN", "SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "COMMIT"),
    *("push: rows", "effect: kernel forked", "push: session's rows", "push: done", "recover: push"),
    *("pop: values", "pop: rows", "cell: values put", "effect: session's rows gone", "effect: log written"),
    *("effect: notebook written", "keep: log", "keep: notebook", "keep: end"),
    *("keep: log noted", "keep: notebook noted", "keep: end noted"),
}
"""Every kind of place: a statement, a commit, or between two steps."""
NASTY = "</goal><frame id='f1'>&\x00\ud800"


def _nothing() -> None:
    pass


class Crash(BaseException):
    """The daemon is gone."""


@dataclass
class Fuse:
    """Crashes at the n-th place that it is told of; 0 never does. Aimed, at the first kind that it has not had yet.

    The aim makes a few operations enough to crash at each kind of place, whatever the dice say.
    """

    left: int = 0
    aimed: bool = False
    places: Counter[str] = field(default_factory=Counter)

    def __call__(self, place: str) -> None:
        if self.left <= 0:
            return
        if not self.aimed:
            self.left -= 1
        if self.left == 0 or (self.aimed and place not in self.places):
            self.left = 0
            self.places[place] += 1
            raise Crash(place)


class Machine:
    """What a daemon's death leaves: kernels, stored values, log files. It does the effects of push and pop."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        self.path, self.fuse = path, fuse
        self.kernels: dict[int, dict[str, str]] = {}
        self.content: dict[str, str] = {}
        self.logs: dict[int, tuple[str, ...]] = {}
        self.notebooks: set[int] = set()
        self.cells: dict[int, list[str]] = {}
        self.now = 1e9
        self.after: Callable[[], None] = _nothing
        """What must hold of the operation that was cut short, once the next daemon has begun."""
        self.store = Store.open(path)

    @property
    def runtime(self) -> Runtime:
        return Runtime(self.store, self, self.fuse)

    def restart(self) -> None:
        """Begin as a new daemon does: kernels of no session are ended, promises are kept or taken back."""
        fuse, self.fuse.left = self.fuse.left, 0
        self.store.close()
        self.store = Store.open(self.path)
        self.fuse.left = fuse
        lives = {row.key for row in sessions.all_sessions(self.store)}
        for key in self.kernels.keys() - lives:
            del self.kernels[key]
        _run(self.runtime.recover(now=self.now))

    def cell(self, row: FrameRow) -> None:
        """Run a cell for a frame: values that were handed over are there before it."""
        if row.session is None or row.session not in self.kernels:
            return
        waiting = runtime.undelivered(self.store, row.session)
        for value in waiting:
            self.kernels[row.session][value.name] = self.content[value.digest]
        self.fuse("cell: values put")
        runtime.delivered(self.store, waiting, now=self.now)
        code = f"cell {sum(map(len, self.cells.values()))}"
        entry = JournalEntry(row.session, Author.AGENT, code, self.now, self.now, "ok", "out", frame=row.key)
        journal.append(self.store, [entry])
        self.cells.setdefault(row.key, []).append(code)
        journal.trim(self.store, row.session, rows=1)

    async def open_session(self, frame: FrameRow, source: int | None, opened: Callable[[int], None]) -> None:
        key = sessions.new_key(self.store)
        self.kernels[key] = dict(self.kernels[source]) if source is not None else {}
        self.fuse("effect: kernel forked")
        try:
            with self.store.transaction():
                self.open_row(key)
                opened(key)
        except Exception:
            del self.kernels[key]
            raise

    def open_row(self, key: int) -> None:
        policy = sessions.PolicyText("default", "{}", "")
        sessions.open_session(self.store, f"s{key}", workspace="", policy=policy, idle_seconds=9, now=self.now, key=key)

    def extracted(self, frames: Sequence[int]) -> None:
        for key in frames:
            near = rows.nearest_session(self.store, cast("int", rows.get(self.store, key).parent))
            if near is not None and near.session is not None:
                summaries.ask(self.store, key, near.session, mode="deferred", now=self.now)

    async def store_values(self, frame: FrameRow, names: Sequence[str]) -> list[HandedOver]:
        assert frame.session is not None
        values = {name: self.kernels[frame.session][name] for name in names}
        self.content |= {f"d-{value}": value for value in values.values()}
        return [HandedOver(name, f"d-{value}", len(value)) for name, value in values.items()]

    async def write_log(self, frame: FrameRow, session: int | None) -> str:
        cells = tuple(cell.code for cell in journal.of_frame(self.store, frame.key))
        known = self.logs.get(frame.key, ())
        self.logs[frame.key] = (*known, *(cell for cell in cells if cell not in known))
        self.fuse("effect: log written")
        return f"frame-{frame.id}.md"

    async def write_notebook(self, frame: FrameRow, session: int) -> None:
        self.notebooks.add(frame.key)
        self.fuse("effect: notebook written")

    async def end_session(self, session: int) -> None:
        """End a session in the daemon's order: rows, then the kernel."""
        with self.store.transaction():
            ending.end_session(self.store, session, author="frames", now=self.now)
            sessions.end(self.store, session, How.ENDED, self.now)
        self.fuse("effect: session's rows gone")
        self.kernels.pop(session, None)


def all_frames(store: Store) -> dict[int, FrameRow]:
    return {key: rows.get(store, key) for key in store.scalars("SELECT key FROM frames")}


def check(machine: Machine, first: int) -> None:
    """What must hold between any two operations, after any crash."""
    store, found = machine.store, all_frames(machine.store)
    assert not machine.runtime.owed()
    running = {row.session for row in found.values() if row.status is Status.IN_PROGRESS}
    assert set(machine.kernels) <= running | {first}, "a kernel that runs for nobody"
    assert {row.key for row in sessions.all_sessions(store)} == set(machine.kernels)
    for row in found.values():
        above = [found[upper.key] for upper in rows.above(store, row.key)[1:]]
        assert row.depth == len(above)
        assert {upper.tree for upper in above} <= {row.tree}
        if row.status in {Status.PLANNED, Status.IN_PROGRESS}:
            assert {upper.status for upper in above} <= OPEN | {Status.INVALIDATED}
            assert row.status is Status.IN_PROGRESS or rows.first_closed(above) is None, f"{row} below {above}"
            assert row.ended is None
            assert row.cause is None
        statuses = [entry.data["status"] for entry in rows.events_of(store, row.key) if "status" in entry.data]
        assert statuses[-1] == row.status
        if row.status in OUTCOMES or row.ended is not None:
            assert rows.compaction_of(store, row.key) is not None
            assert row.log == f"frame-{row.id}.md"
            assert set(machine.cells.get(row.key, ())) <= set(machine.logs[row.key]), "a cell that no log has"
        if row.status is Status.IN_PROGRESS and row.session is not None:
            assert row.session in machine.kernels, f"{row.id} runs without its kernel"
            ran = [cell.code for cell in journal.of_frame(store, row.key)]
            known = machine.logs.get(row.key, ())
            assert [cell for cell in machine.cells.get(row.key, ()) if cell not in known] == [
                cell for cell in ran if cell not in known
            ]
        for query in summaries.asked_for(store, row.key):
            assert f"goal of {row.id}: " in query.prompt
        ended = [child.ended for child in found.values() if child.parent == row.key and child.ended is not None]
        assert row.folded_count == sum(number <= row.folded for number in ended)
        for value in runtime.handed_over(store, row.key):
            assert value.digest in machine.content


def do(machine: Machine, dice: random.Random, found: dict[int, FrameRow]) -> None:
    """Do something random."""
    store, now = machine.store, machine.now
    named = dice.choice(list(found.values()))
    runs = [row for row in found.values() if row.status is Status.IN_PROGRESS]
    mine = [row for row in runs if row.kind is not Kind.SESSION]
    match dice.randrange(11):
        case 0 | 1:
            goal = tree.Plan(NASTY, [tree.Plan("a", [tree.Plan("b")]), tree.Plan("c")]) if dice.random() < 0.4 else None
            tree.plan(store, goal or tree.Plan("do"), dice.choice(runs).key, author="t", now=now)
        case 2 | 3 | 4:
            planned = [row for row in found.values() if row.status in {Status.PLANNED, Status.BLOCKED}]
            chosen, parent = dice.choice(planned) if planned else None, dice.choice(runs).key

            def wanted() -> FrameRow:
                return chosen or tree.plan(store, tree.Plan("do"), parent, author="t", now=now)

            _run(machine.runtime.push(wanted, author="t", now=now, fork=dice.random() < 0.7))
        case 5 | 6 | 7 if mine:
            ended = dice.choice(mine)
            outcome = Outcome(
                dice.choice(sorted(OUTCOMES)),
                dice.choice(["", "done", NASTY]),
                hand_over=("x",) if ended.session is not None and dice.random() < 0.5 else (),
                children=dice.choice(["refuse", "adopt", "fail"]),
            )

            def same() -> None:
                again = ending.popped(machine.store, ended.key, outcome)
                row = rows.get(machine.store, ended.key)
                assert (again is not None) == (row.status is not Status.IN_PROGRESS)
                if again is not None:
                    assert again == _run(machine.runtime.pop(ended.key, outcome, author="again", now=now))

            try:
                _run(machine.runtime.pop(ended.key, outcome, author="t", now=now))
                _run(machine.runtime.keep())
            except Crash:
                machine.after = same
                raise
            same()
        case 8:
            what = ending.invalidate if dice.random() < 0.5 else ending.reopen
            what(store, named.key, author="t", now=now)
            _run(machine.runtime.keep())
        case 9:
            machine.cell(dice.choice(runs))
        case 10 if dice.random() < 0.3:
            ending.forget(store, named.key)
        case 10 if asked := [query for row in found.values() for query in summaries.asked_for(store, row.key)]:
            answer(machine, dice.choice(asked))


def answer(machine: Machine, query: QueryRow) -> None:
    """Answer a query for a summary: it takes the place of its extract, unless the frame has another one by now."""
    store, said = machine.store, "</goal> said by a model"
    with store.transaction():
        queries.resolve(store, query.session, query.id, answer=said, now=machine.now)
        changed = summaries.take(store, query.session, {query.id: said}, now=machine.now)
    for key in changed:
        kept = rows.compaction_of(store, key)
        assert kept is not None
        assert kept.source == "model"


def _run(wanted: Coroutine[None, None, T]) -> T:
    """Drive a coroutine that awaits nothing real, so that a crash comes out of it as it is."""
    try:
        wanted.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError("it waits for something")


def grow(path: Path, seed: int, fuse: Fuse) -> int:
    """Grow one tree; returns how often the daemon died."""
    dice, crashes = random.Random(seed), 0
    machine = Machine(path, fuse)
    machine.open_row(first := sessions.new_key(machine.store))
    machine.kernels[first] = {"x": "0"}
    root = tree.of_session(machine.store, sessions.get(machine.store, f"s{first}"), author="t", now=machine.now)
    for number in range(OPERATIONS):
        machine.now += 1
        found = all_frames(machine.store)
        machine.kernels[first]["x"] = str(number)
        machine.after = _nothing
        fuse.left = dice.choice([0, *range(1, 60)])
        fuse.aimed = number % 2 == 0 and fuse.places.keys() != PLACES
        try:
            do(machine, dice, found)
        except RowRequestError:
            pass
        except Crash:
            crashes += 1
            for tries in (dice.randrange(1, 25), dice.randrange(1, 25), 0):
                fuse.left = tries
                try:
                    machine.restart()
                    assert not machine.runtime.owed(), "the next daemon left what the dead one had promised"
                    break
                except Crash:
                    crashes += 1
            fuse.left = 0
            machine.after()
        fuse.left = 0
        _run(machine.runtime.keep())
        check(machine, first)
    for row in all_frames(machine.store).values():
        said = context.assemble(machine.store, row.key)
        ET.fromstring(said)
        assert len(said) <= context.BUDGET * context.PER_TOKEN
    assert rows.get(machine.store, root.key).status is Status.IN_PROGRESS
    machine.store.close()
    return crashes


@pytest.mark.timeout(0 if OPS > 1000 else 300)
def test_every_operation_is_done_or_not_done_wherever_the_daemon_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-11: no crash loses a frame, a log, a cell of a frame that runs or a value, and none leaves a kernel behind."""
    fuse, crashes = Fuse(), 0
    tell_of_statements(monkeypatch, fuse)
    for number in range(max(1, OPS // OPERATIONS)):
        seed = SEED * 100_000 + number
        try:
            crashes += grow(tmp_path / f"{seed}.sqlite3", seed, fuse)
        except BaseException:
            print(f"seed {seed}")
            raise
    print(f"{OPS} operations, {crashes} crashes: {dict(fuse.places)}")
    assert crashes > OPS / 10
    assert fuse.places.keys() == PLACES


def test_a_session_does_not_end_before_all_its_frames_logs_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-11: a child that failed with its parent shared the session, and a log could not be written at first."""
    machine = Machine(tmp_path / "rlm.sqlite3", Fuse())
    machine.open_row(first := sessions.new_key(machine.store))
    machine.kernels[first] = {}
    root = tree.of_session(machine.store, sessions.get(machine.store, f"s{first}"), author="t", now=1.0)
    story = tree.plan(machine.store, tree.Plan("story", [tree.Plan("child")]), root.key, author="t", now=1.0)
    (child,) = rows.children(machine.store, story.key)
    _run(machine.runtime.push(lambda: story, author="t", now=1.0))
    shared = _run(machine.runtime.push(lambda: child, author="t", now=1.0, fork=False))
    machine.cell(shared)
    _run(machine.runtime.pop(story.key, Outcome(Status.FAILED, children="fail"), author="t", now=2.0))
    with monkeypatch.context() as broken:
        broken.setattr(machine, "write_log", None)
        _run(machine.runtime.keep())
    assert shared.session in machine.kernels
    _run(machine.runtime.keep())
    assert machine.logs[child.key] == ("cell 0",)
    assert shared.session not in machine.kernels
    machine.store.close()


def test_a_push_whose_kernel_cannot_be_forked_leaves_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-4, F-11: whoever pushed is told why, and nothing is promised any more."""
    machine = Machine(tmp_path / "rlm.sqlite3", Fuse())
    machine.open_row(first := sessions.new_key(machine.store))
    root = tree.of_session(machine.store, sessions.get(machine.store, f"s{first}"), author="t", now=1.0)
    task = tree.plan(machine.store, tree.Plan("task"), root.key, author="t", now=1.0)

    async def refused(*_given: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(machine, "open_session", refused)
    with pytest.raises(RuntimeError, match="no memory"):
        _run(machine.runtime.push(lambda: task, author="t", now=1.0))
    assert (rows.get(machine.store, task.key).status, machine.runtime.owed()) == (Status.PLANNED, [])
    machine.store.close()
