"""Random trees with edges, leases and paths against a naive model of readiness, with a crash before any statement.

The short form runs with every other test: ``RLM_WORK_OPS=20000 RLM_WORK_SEED=7`` makes a long one of it.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from told_statements import tell_of_statements

from rlm_memory import sessions
from rlm_memory.errors import EdgeRefused, RowRequestError
from rlm_memory.frames import edges as frame_edges
from rlm_memory.frames import ending, rows, tree
from rlm_memory.frames.results import Children, Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import OUTCOMES, EdgeType, Kind, Status
from rlm_memory.store import Store
from rlm_memory.work import holders, items, leases, paths, progress
from rlm_memory.work.ready import PRIORITIES, count_ready, next_batch, ready

OPS = int(os.environ.get("RLM_WORK_OPS", "300"))
SEED = int(os.environ.get("RLM_WORK_SEED", "1"))
OPERATIONS = 100
"""Operations of one tree."""
GOING_ON = {Status.PLANNED, Status.IN_PROGRESS}
OPEN = GOING_ON | {Status.BLOCKED}
WAITING = (EdgeType.BLOCKS, EdgeType.WAITS_FOR, EdgeType.ON_FAILURE)
FILES = ("/a", "/a/", "/a/b", "/a/b/", "/a/b/c.py", "/ab", "/")
DAY = 86_400


class Crash(BaseException):
    """The process is gone before a statement has run."""


@dataclass
class Model:
    """What is in the tables, judged by the definitions alone."""

    frames: dict[int, FrameRow]
    edges: dict[tuple[int, int], set[EdgeType]]
    paths: dict[int, list[str]] = field(default_factory=dict)

    def above(self, key: int) -> list[int]:
        way = []
        while (parent := self.frames[key].parent) is not None:
            way.append(parent)
            key = parent
        return way

    def children(self, key: int) -> list[int]:
        return [row.key for row in self.frames.values() if row.parent == key]

    def open_children(self, key: int) -> int:
        mine = [self.frames[child] for child in self.children(key)]
        return sum(row.kind is not Kind.SESSION and row.status in OPEN for row in mine)

    def waiting_edges(self) -> list[tuple[int, int]]:
        found = []
        for (frame, target), types in self.edges.items():
            status = self.frames[target].status
            for type_ in types & set(WAITING):
                done = {
                    EdgeType.BLOCKS: status in {Status.COMPLETED, Status.INVALIDATED},
                    EdgeType.ON_FAILURE: status is Status.FAILED,
                    EdgeType.WAITS_FOR: self.open_children(target) == 0,
                }
                if not done[type_]:
                    found.append((frame, target))
        return found

    def waiting(self) -> Counter[int]:
        return Counter(frame for frame, _ in self.waiting_edges())

    def dependents(self) -> Counter[int]:
        return Counter(target for _, target in self.waiting_edges())

    def closed(self) -> set[int]:
        waiting = self.waiting()
        return {key for key, row in self.frames.items() if waiting[key] or row.status not in GOING_ON}

    def held(self) -> list[int]:
        return [row.key for row in self.frames.values() if row.holder is not None and row.freed_at is None]

    def taken(self, key: int) -> bool:
        others = [path for held in self.held() if held != key for path in self.paths.get(held, [])]
        return any(overlap(mine, theirs) for mine in self.paths.get(key, []) for theirs in others)

    def ready(self, now: float, scope: int | None = None) -> list[int]:
        waiting, closed, dependents = self.waiting(), self.closed(), self.dependents()
        found = []
        for key, row in self.frames.items():
            if row.kind is not Kind.TASK or waiting[key] or self.open_children(key) or closed & set(self.above(key)):
                continue
            may = row.status is Status.PLANNED or (row.status is Status.IN_PROGRESS and row.freed_at is not None)
            inside = scope is None or scope in {key, *self.above(key)}
            if may and inside and not self.taken(key):
                age = min(100.0, max(0.0, (now - row.created_at) / DAY / 30 * 100))
                found.append((-(row.priority + 50 * dependents[key] + age), row.created_at, key))
        return [key for *_, key in sorted(found)]

    def goes_round(self) -> bool:
        """Whether something can never start or end, whatever else does."""
        needs: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for key, row in self.frames.items():
            below = {("end", child) for child in self.children(key)}
            needs["start", key] = set() if row.parent is None else {("start", row.parent)}
            needs["children", key] = {("start", key), *below}
            needs["end", key] = {("start", key), ("children", key)}
        for (frame, target), types in self.edges.items():
            if types & {EdgeType.BLOCKS, EdgeType.ON_FAILURE}:
                needs["start", frame].add(("end", target))
            if EdgeType.WAITS_FOR in types:
                needs["start", frame].add(("children", target))
        while free := [one for one, others in needs.items() if not others]:
            for one in free:
                del needs[one]
            for others in needs.values():
                others.difference_update(free)
        return bool(needs)


def overlap(one: str, other: str) -> bool:
    def inside(path: str, folder: str) -> bool:
        parts = folder.rstrip("/").split("/")
        return folder.endswith("/") and path.rstrip("/").split("/")[: len(parts)] == parts

    return one == other or inside(one, other) or inside(other, one)


def look(store: Store) -> Model:
    edges: dict[tuple[int, int], set[EdgeType]] = {}
    for frame, target, type_ in store.rows("SELECT frame, target, type FROM frame_edges"):
        edges.setdefault((frame, target), set()).add(EdgeType(type_))
    declared: dict[int, list[str]] = {}
    for frame, path in store.rows("SELECT frame, path FROM frame_paths"):
        declared.setdefault(frame, []).append(path)
    return Model(
        {key: rows.get(store, key) for key in store.scalars("SELECT key FROM frames ORDER BY key")}, edges, declared
    )


@dataclass
class Fuse:
    """Crashes at the n-th statement that it is told of; 0 never does."""

    left: int = 0

    def __call__(self, _place: str) -> None:
        if self.left > 0:
            self.left -= 1
            if self.left == 0:
                raise Crash


@dataclass
class World:
    """A tree, and the dice."""

    store: Store
    root: FrameRow
    session: int
    dice: random.Random
    now: float = 1e9
    fences: dict[int, int] = field(default_factory=dict)

    def check(self) -> None:
        store, model = self.store, look(self.store)
        waiting, dependents, closed = model.waiting(), model.dependents(), model.closed()
        for key, row in model.frames.items():
            assert row.waiting == waiting[key], row.id
            assert row.dependents == dependents[key], row.id
            assert row.open_children == model.open_children(key), row.id
            above = model.above(key)
            if not any(model.frames[upper].status in {Status.COMPLETED, Status.FAILED} for upper in (key, *above)):
                assert row.closed_above == len(closed & set(above)), row.id
            assert row.fence >= self.fences.get(key, 0)
            self.fences[key] = row.fence
            if row.holder is not None or row.freed_at is not None:
                assert row.status is Status.IN_PROGRESS
        expected = model.ready(self.now)
        for most in (1, 3, len(expected) + 1):
            assert ready(store, self.root.tree, now=self.now, most=most) == expected[:most]
        scope = self.dice.choice(list(model.frames))
        below = ready(store, self.root.tree, now=self.now, most=99, scope=scope)
        open_above = all(model.frames[upper].status in GOING_ON for upper in model.above(scope))
        if open_above and model.frames[scope].status in GOING_ON:
            assert below == model.ready(self.now, scope)
        unlooked = Model(model.frames, model.edges)
        assert count_ready(store, self.root.tree) == len(unlooked.ready(self.now))
        batch = [rows.frame_key(found) for found in next_batch(store, self.root.tree, now=self.now)]
        chosen: list[int] = []
        for key in expected:
            mine = [path for done in chosen for path in model.paths.get(done, [])]
            if len(chosen) < 3 and not any(overlap(a, b) for a in model.paths.get(key, []) for b in mine):
                chosen.append(key)
        assert batch == chosen
        assert not model.goes_round()


def plan(world: World, model: Model) -> None:
    goals = [row for row in model.frames.values() if row.status in OPEN]
    kind = world.dice.choice([Kind.TASK, Kind.TASK, Kind.TASK, Kind.STORY, Kind.EPIC])
    below = [tree.Plan("child"), tree.Plan("child")] if world.dice.random() < 0.3 else []
    wanted = tree.Plan("do", below, kind, world.dice.choice(PRIORITIES))
    made = tree.plan(world.store, wanted, world.dice.choice(goals).key, author="t", now=world.now)
    if world.dice.random() < 0.4:
        paths.declare(world.store, made.key, world.dice.sample(FILES, 2))


def add_edge(world: World, model: Model) -> None:
    frame, target = (world.dice.choice(list(model.frames)) for _ in range(2))
    type_ = world.dice.choice(list(EdgeType))
    wanted = {pair: set(types) for pair, types in model.edges.items()}
    wanted.setdefault((frame, target), set()).add(type_)
    goes_round = Model(model.frames, wanted).goes_round() if type_ in WAITING else False
    refused = None
    try:
        frame_edges.add(world.store, frame, target, type_, author="t", now=world.now)
    except EdgeRefused as error:
        refused = error
    assert not goes_round or refused is not None
    if refused is not None:
        assert goes_round or "circle" not in str(refused)
        raise refused


def remove_edge(world: World, model: Model) -> None:
    if model.edges:
        frame_edges.remove(world.store, *world.dice.choice(list(model.edges)), author="t", now=world.now)


def holder(world: World) -> holders.Holder:
    number = world.dice.randrange(4)
    label = f"w{number}"
    return holders.enlist(world.store, "connection", label, label=label, kin=f"k{number % 2}", now=world.now)


def claim(world: World, model: Model) -> None:
    who, expected = holder(world), model.ready(world.now)
    scope = world.dice.choice([None, world.root.key])
    before = look(world.store)
    taken = leases.claim(world.store, who, world.root.tree, now=world.now, scope=scope)
    assert (taken is None) == (not expected)
    if taken is not None and not taken.returned:
        assert taken.key == expected[0]
        assert taken.fence == before.frames[taken.key].fence + 1
    if taken is not None and taken.returned:
        assert taken.key in expected
        assert taken.fence == before.frames[taken.key].fence


def claim_one(world: World, model: Model) -> None:
    may_be = model.ready(world.now)
    key = world.dice.choice(may_be if may_be and world.dice.random() < 0.7 else list(model.frames))
    may = key in may_be
    try:
        leases.claim(world.store, holder(world), world.root.tree, now=world.now, key=key)
    except RowRequestError:
        assert not may
        raise
    assert may


def lose(world: World, model: Model) -> None:
    who = holder(world)
    freed = leases.free(world.store, who.id, now=world.now, why="test")
    assert freed == [row.id for key in model.held() if (row := model.frames[key]).holder == who.id]


def release_or_steal(world: World, model: Model) -> None:
    held = model.held()
    if held and world.dice.random() < 0.5:
        leases.release(world.store, world.dice.choice(held), None, now=world.now, author="t")
    elif held:
        leases.steal(world.store, world.dice.choice(held), holder(world), now=world.now, why="test")


def start(world: World, model: Model) -> None:
    key = world.dice.choice(list(model.frames))
    tree.start(world.store, key, author="t", now=world.now, session=world.session)
    waiting = model.waiting()
    assert not any(waiting[upper] for upper in (key, *model.above(key)))


def pop(world: World, model: Model) -> None:
    mine = [
        row.key for row in model.frames.values() if row.status is Status.IN_PROGRESS and row.kind is not Kind.SESSION
    ]
    if mine:
        key = world.dice.choice(mine)
        how: Children = world.dice.choice(["refuse", "adopt", "fail"])
        outcome = Outcome(world.dice.choice(sorted(OUTCOMES)), "done", children=how)
        ended = ending.pop(world.store, key, outcome, author="t", now=world.now)
        after = look(world.store)
        if outcome.status is Status.COMPLETED:
            spare = {
                frame
                for (frame, target), types in model.edges.items()
                if target == key and EdgeType.ON_FAILURE in types
            }
            planned = {frame for frame in spare if model.frames[frame].status is Status.PLANNED}
            assert {after.frames[frame].status for frame in planned} <= {Status.INVALIDATED}
            assert {rows.frame_id(frame) for frame in planned} <= set(ended.invalidated)


def invalidate_or_reopen(world: World, model: Model) -> None:
    key = world.dice.choice(list(model.frames))
    what = ending.invalidate if world.dice.random() < 0.4 else ending.reopen
    what(world.store, key, author="t", now=world.now)


def forget(world: World, model: Model) -> None:
    if world.dice.random() < 0.4:
        ending.forget(world.store, world.dice.choice(list(model.frames)))


def change(world: World, model: Model) -> None:
    key = world.dice.choice(list(model.frames))
    items.set_priority(world.store, key, world.dice.choice(PRIORITIES), author="t", now=world.now)
    paths.declare(world.store, key, world.dice.sample(FILES, world.dice.randrange(3)))
    progress.update(world.store, key, {"decisions": [f"at {world.now}"]}, now=world.now)


ACTS: Mapping[Callable[[World, Model], None], int] = {
    plan: 12,
    add_edge: 8,
    remove_edge: 1,
    claim: 6,
    claim_one: 5,
    lose: 2,
    release_or_steal: 2,
    start: 1,
    pop: 4,
    invalidate_or_reopen: 3,
    forget: 1,
    change: 2,
}


def grow(path: Path, seed: int, fuse: Fuse, done: Counter[str]) -> int:
    """Grow one tree; returns how often an operation was cut short."""
    dice, crashes = random.Random(seed), 0
    store = Store.open(path)
    policy = sessions.PolicyText("default", "{}", "")
    session = sessions.open_session(store, "s", workspace="", policy=policy, idle_seconds=9, now=1.0)
    world = World(store, tree.of_session(store, session, author="t", now=1e9), session.key, dice)
    for _ in range(OPERATIONS):
        world.now += dice.choice([0.0, 1.0, 1.0, DAY, 9 * DAY])
        (act,) = dice.choices(list(ACTS), list(ACTS.values()))
        model = look(store)
        fuse.left = dice.choice([0] * 12 + [*range(1, 20)])
        try:
            act(world, model)
            done[act.__name__] += 1
        except RowRequestError:
            pass
        except Crash:
            crashes += 1
        finally:
            fuse.left = 0
        try:
            world.check()
        except AssertionError:
            print(f"after {act.__name__}")
            raise
    store.close()
    return crashes


@pytest.mark.timeout(0 if OPS > 1000 else 300)
def test_what_the_queue_says_is_what_the_definitions_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-8, E-9: after any operation, cut short anywhere, counts, order, batches and refusals of circles are right."""
    fuse, done, crashes = Fuse(), Counter[str](), 0
    tell_of_statements(monkeypatch, fuse)
    for number in range(max(1, OPS // OPERATIONS)):
        seed = SEED * 100_000 + number
        try:
            crashes += grow(tmp_path / f"{seed}.sqlite3", seed, fuse, done)
        except BaseException:
            print(f"seed {seed}")
            raise
    print(f"{OPS} operations, {crashes} crashes: {dict(done)}")
    assert crashes > OPS / 10
    assert done.keys() == {act.__name__ for act in ACTS}
