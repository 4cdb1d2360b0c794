"""Edges: what a frame waits for, what follows from ends, and circles that are refused by name."""

import pytest
from frame_trees import Grown

from rlm_memory.errors import EdgeRefused, FrameWaits
from rlm_memory.frames import edges, ending, rows, tree
from rlm_memory.frames.edges import MOST_EDGES
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import EdgeType, Kind, Status
from rlm_memory.frames.tree import Plan
from rlm_memory.work.ready import Stuck, ready, stuck


def wait(grown: Grown, row: FrameRow, on: FrameRow, type_: EdgeType = EdgeType.BLOCKS) -> None:
    edges.add(grown.store, row.key, on.key, type_, author="t", now=grown.now)


def is_ready(grown: Grown, row: FrameRow) -> bool:
    return row.key in ready(grown.store, grown.root.tree, now=grown.now, most=99)


def story(grown: Grown, goal: str, *children: str, parent: FrameRow | None = None) -> list[FrameRow]:
    """Plan a story; returns it and its tasks."""
    wanted = Plan(goal, [Plan(child) for child in children], Kind.STORY)
    made = tree.plan(grown.store, wanted, (parent or grown.root).key, author="t", now=grown.now)
    return [made, *rows.children(grown.store, made.key)]


@pytest.mark.parametrize(
    ("status", "free"), [(Status.COMPLETED, True), (Status.FAILED, False), (Status.BLOCKED, False)]
)
def test_what_blocks_is_waited_for_until_it_has_completed(grown: Grown, status: Status, free: bool) -> None:
    """E-8: the dependents of a task flip when it is done, and not when it has failed."""
    first, second = grown.plan("first"), grown.plan("second")
    wait(grown, second, first)
    assert not is_ready(grown, second)
    grown.pop(grown.start(first), status=status)
    assert is_ready(grown, second) == free
    if not free:
        assert stuck(grown.store, grown.root.tree) == [Stuck(first.id, status.value, 1)]
        change = ending.invalidate if status is Status.BLOCKED else ending.reopen
        change(grown.store, first.key, author="t", now=1.0)
        assert is_ready(grown, second) == (status is Status.BLOCKED)


def test_a_frame_waits_for_all_children_of_another_also_for_later_ones(grown: Grown) -> None:
    """E-8: the edge is free while there are none, and is opened again when one is added."""
    (whole,) = story(grown, "whole")
    after = grown.plan("after")
    wait(grown, after, whole, EdgeType.WAITS_FOR)
    assert is_ready(grown, after)
    first, second = grown.plan("a", whole), grown.plan("b", whole)
    assert not is_ready(grown, after)
    grown.pop(grown.start(first), status=Status.FAILED)
    assert not is_ready(grown, after)
    ending.invalidate(grown.store, second.key, author="t", now=1.0)
    assert is_ready(grown, after)


def test_what_stands_by_runs_on_failure_and_is_not_wanted_otherwise(grown: Grown) -> None:
    """E-8: a spare plan is invalidated with what is below it, so that its story can end; reopening brings it back."""
    (whole, risky, spare) = story(grown, "whole", "risky", "spare")
    part = grown.plan("part of the spare plan", spare)
    wait(grown, spare, risky, EdgeType.ON_FAILURE)
    grown.pop(grown.start(risky), status=Status.FAILED)
    assert is_ready(grown, part)
    ending.reopen(grown.store, risky.key, author="t", now=1.0)
    assert not is_ready(grown, part)
    ended = grown.pop(grown.start(risky))
    assert ended.invalidated == [spare.id, part.id]
    assert grown.again(whole).open_children == 0
    ending.reopen(grown.store, risky.key, author="t", now=1.0)
    assert grown.status(spare, part) == [Status.PLANNED, Status.PLANNED]


def test_what_is_below_a_frame_that_waits_waits_too(grown: Grown) -> None:
    """E-8: nothing of a story is handed out, or can be pushed by hand, before what the story waits for has ended."""
    first = grown.plan("first")
    (later, task) = story(grown, "later", "task")
    wait(grown, later, first)
    assert not is_ready(grown, task)
    with pytest.raises(FrameWaits, match=f"{task.id} stands below {later.id}, which waits for {first.id}: end that"):
        grown.start(task)
    edges.remove(grown.store, later.key, first.key, author="t", now=1.0)
    assert is_ready(grown, task)


def test_a_circle_is_refused_and_named(grown: Grown) -> None:
    """E-8: through the tree too: a parent cannot end before its children, nor these begin before it may."""
    a, b, c = grown.plan("a"), grown.plan("b"), grown.plan("c")
    wait(grown, b, a)
    wait(grown, c, b)
    with pytest.raises(EdgeRefused, match=f"circle: {a.id} > {b.id} > {c.id}|circle: {a.id} > {c.id} > {b.id}"):
        wait(grown, a, c)
    (whole, task) = story(grown, "whole", "task")
    with pytest.raises(EdgeRefused, match="circle"):
        wait(grown, task, whole)
    (other, part) = story(grown, "other", "part")
    wait(grown, part, task)
    with pytest.raises(EdgeRefused, match="circle"):
        wait(grown, whole, other)
    (empty,) = story(grown, "empty")
    wait(grown, empty, a)
    with pytest.raises(EdgeRefused, match="circle"):
        wait(grown, a, empty, EdgeType.WAITS_FOR)  # its children, once there are any, would wait for `a`


def test_notes_hold_nothing_up(grown: Grown) -> None:
    """What was found in a frame, or takes its place, is free; the same edge twice is one."""
    a, b = grown.plan("a"), grown.plan("b")
    wait(grown, b, a, EdgeType.FOUND_IN)
    wait(grown, b, a, EdgeType.SUPERSEDES)
    wait(grown, b, a, EdgeType.SUPERSEDES)
    assert is_ready(grown, b)
    assert [edge.type for edge in edges.edges_of(grown.store, b.key)] == [EdgeType.FOUND_IN, EdgeType.SUPERSEDES]
    with pytest.raises(EdgeRefused, match="stands for a session"):
        wait(grown, a, grown.root)
    with pytest.raises(EdgeRefused, match="wait for itself"):
        wait(grown, a, a)


def test_a_frame_has_so_many_edges_that_its_end_stays_cheap(grown: Grown) -> None:
    """The end of a frame looks at each frame that waits for it."""
    hub = grown.plan("hub")
    with grown.store.transaction():
        for number in range(MOST_EDGES):
            wait(grown, grown.plan(f"w{number}"), hub)
    with pytest.raises(EdgeRefused, match="put another frame in between"):
        wait(grown, grown.plan("one more"), hub)
