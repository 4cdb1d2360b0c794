"""Growing the tree: roots, frames of sessions, plans, starts, and the log of it all."""

from collections.abc import Callable
from pathlib import Path

import pytest
from frame_trees import Grown, hints

from rlm_memory import sessions
from rlm_memory.errors import FrameStatusRefused, RowRequestError, UnknownFrame
from rlm_memory.frames import ending, rows, tree
from rlm_memory.frames.states import OPEN, OUTCOMES, STEPS, Kind, Status, Verb
from rlm_memory.frames.tree import Plan
from rlm_memory.sessions import How


def test_a_goal_is_written_down_with_those_below_it(grown: Grown) -> None:
    """F-1, F-10: a plan is rows with goals and statuses, nested as deep as one likes; nothing of it has a session."""
    epic = grown.plan("ship", None, Plan("build", [Plan("api"), Plan("page")]), Plan("test"))
    made = rows.whole(grown.store, epic.key)
    assert [(row.id, row.goal, row.depth, row.parent) for row in made] == [
        ("f2", "ship", 1, 1),
        ("f3", "build", 2, 2),
        ("f6", "test", 2, 2),
        ("f4", "api", 3, 3),
        ("f5", "page", 3, 3),
    ]
    assert {(row.status, row.session, row.author) for row in made} == {(Status.PLANNED, None, "planner")}
    assert tree.plan(grown.store, Plan("later", kind=Kind.STORY), 3, author="t", now=2.0).kind is Kind.STORY


def test_from_any_frame_one_gets_to_any_other(grown: Grown) -> None:
    """F-2: parent, children and siblings, in both directions."""
    story = grown.plan("story", None, Plan("a"), Plan("b"), Plan("c"))
    a, b, c = rows.children(grown.store, story.key)
    assert [row.id for row in rows.above(grown.store, b.key)] == [b.id, story.id, grown.root.id]
    assert [row.goal for row in rows.children(grown.store, b.parent or 0)] == ["a", "b", "c"]
    assert rows.children(grown.store, a.key) == rows.children(grown.store, c.key) == []


def test_to_start_a_goal_starts_what_is_planned_above_it(grown: Grown) -> None:
    """A running frame has no planned one above: what it is for has begun."""
    story = grown.plan("story", None, Plan("task"))
    (task,) = rows.children(grown.store, story.key)
    started = grown.start(task)
    assert (started.status, started.session, started.started_at) == (Status.IN_PROGRESS, grown.session.key, 1000.0)
    above = grown.again(story)
    assert (above.status, above.session) == (Status.IN_PROGRESS, None)
    freed = [grown.again(row).freed_at for row in (story, task, grown.root)]
    assert freed == [1000.0, None, None], "nobody holds what has started along"
    with pytest.raises(FrameStatusRefused, check=hints("it runs: name it as the session to work in it")):
        grown.start(task)


def test_one_place_has_one_root_and_each_of_its_sessions_a_frame(grown: Grown, tmp_path: Path) -> None:
    """The first session is the root; a second one of the place is below it; one that forked is below its parent."""
    first, second = grown.open_session("one", str(tmp_path)), grown.open_session("two", str(tmp_path))
    root = tree.of_session(grown.store, first, author="t", now=1.0)
    assert (root.parent, root.goal, root.session) == (None, tmp_path.name, first.key)
    assert tree.of_session(grown.store, first, author="t", now=2.0) == root
    other = tree.of_session(grown.store, second, author="t", now=2.0)
    assert (other.parent, other.goal, other.tree) == (root.key, "two", root.tree)
    fork = tree.note_fork(grown.store, grown.open_session("twig", str(tmp_path)), second, now=3.0)
    assert (fork.parent, fork.kind, fork.forked_from) == (other.key, Kind.SESSION, second.key)
    assert tree.parents(grown.store, [first.key, second.key, fork.session or 0]) == {fork.session: "two"}


def test_a_session_that_works_for_a_goal_has_its_frame(grown: Grown) -> None:
    """No second frame is made for the session of a push; of several that share it, the highest counts."""
    worker = grown.open_session("worker")
    task = grown.start(grown.plan("task"), worker)
    grown.start(grown.plan("part", task), worker)
    assert tree.of_session(grown.store, worker, author="t", now=1.0).id == task.id
    assert tree.of_session(grown.store, grown.session, author="t", now=1.0).id == grown.root.id


def test_frames_of_a_session_vanish_with_it_unless_something_is_below(grown: Grown, tmp_path: Path) -> None:
    """No anonymous roots pile up; a root with goals below waits for the next session of its place."""
    first, second = grown.open_session("one", str(tmp_path)), grown.open_session("two", str(tmp_path))
    root = tree.of_session(grown.store, first, author="t", now=1.0)
    other = tree.of_session(grown.store, second, author="t", now=1.0)
    for session in (first, second):
        assert ending.end_session(grown.store, session.key, author="t", now=2.0) == []
        sessions.end(grown.store, session.key, How.ENDED, 2.0)
        assert (rows.root_of(grown.store, root.tree) is None) == (session is second)
    with pytest.raises(UnknownFrame, match=f"no frame '{other.id}'"):
        rows.get(grown.store, other.key)
    third = grown.open_session("three", str(tmp_path))
    again = tree.of_session(grown.store, third, author="t", now=3.0)
    grown.plan("goal", again)
    ending.end_session(grown.store, third.key, author="t", now=4.0)
    sessions.end(grown.store, third.key, How.ENDED, 4.0)
    fourth = grown.open_session("four", str(tmp_path))
    found = tree.of_session(grown.store, fourth, author="t", now=5.0)
    assert (found.key, found.session) == (again.key, fourth.key)


def test_an_id_is_never_given_out_twice(grown: Grown) -> None:
    """Not after everything was forgotten either: a log of an old frame is not taken for a new one's."""
    gone = grown.plan("gone")
    ending.forget(grown.store, gone.key)
    assert grown.plan("next").key == gone.key + 1


@pytest.mark.parametrize("said", ["", "f", "f0", "f01", "7", "F7", "f7 ", "f-1", "f" + "9" * 30, "f\u0667"])
def test_what_is_no_id_is_refused(said: str) -> None:
    """Ids are whole: nothing is guessed from a part of one."""
    with pytest.raises(UnknownFrame, check=hints("`rlm-kernel tree` show the ids")):
        rows.frame_key(said)
    assert rows.frame_key("f70") == 70


def test_a_plan_is_written_whole_or_not_at_all(grown: Grown) -> None:
    """An empty goal somewhere in it, or too many of them, leaves nothing."""
    before = rows.whole(grown.store, grown.root.key)
    with pytest.raises(RowRequestError, match="a goal is empty"):
        grown.plan("good", None, Plan("fine"), Plan("  "))
    with pytest.raises(RowRequestError, match="501 goals in one plan"):
        grown.plan("good", None, *[Plan("x")] * (tree.MOST_PLANNED))
    assert rows.whole(grown.store, grown.root.key) == before


def test_below_what_has_ended_nothing_is_planned_or_started(grown: Grown) -> None:
    """The advice names what has to be opened again; below a blocked goal work may go on."""
    story = grown.push("story")
    task = grown.plan("task", story)
    grown.pop(story)
    attempts: tuple[Callable[[], object], ...] = (lambda: grown.plan("more", story), lambda: grown.start(task))
    for attempt in attempts:
        with pytest.raises(FrameStatusRefused, check=hints("reopen")):
            attempt()
    blocked = grown.push("blocked")
    grown.pop(blocked, status=Status.BLOCKED)
    assert grown.push("helps", blocked).status is Status.IN_PROGRESS
    assert grown.status(blocked) == [Status.BLOCKED]


def test_who_did_what_is_in_the_log(grown: Grown) -> None:
    """F-11: each change is an event with its author and time."""
    task = grown.push("task")
    grown.now = 1005.0
    grown.pop(task, status=Status.FAILED)
    events = rows.events_of(grown.store, task.key)
    assert [(event.verb, event.author, event.at, event.data["status"]) for event in events] == [
        ("plan", "planner", 1000.0, "planned"),
        ("start", "worker", 1000.0, "in_progress"),
        ("pop", "worker", 1005.0, "failed"),
    ]


def test_a_push_whose_session_never_came_is_taken_back(grown: Grown) -> None:
    """F-4: the frame is planned again, and one that has ended meanwhile gets no session."""
    task = grown.plan("task")
    assert tree.start(grown.store, task.key, author="t", now=1.0, push=True).session is None
    assert tree.undo_push(grown.store, task.key, author="t", now=2.0, why="full").status is Status.PLANNED
    tree.start(grown.store, task.key, author="t", now=3.0, push=True)
    other = grown.open_session("other")
    tree.keep_push(grown.store, task.key, other.key, grown.session.key)
    assert (grown.again(task).session, grown.again(task).forked_from) == (other.key, grown.session.key)
    late = grown.plan("late")
    tree.start(grown.store, late.key, author="t", now=3.0, push=True)
    grown.pop(late)
    with pytest.raises(FrameStatusRefused, check=hints("it ended while its kernel was being started")):
        tree.keep_push(grown.store, late.key, other.key, None)


@pytest.mark.parametrize("verb", Verb)
def test_each_verb_says_from_where_it_may_start(verb: Verb) -> None:
    """The table is whole: reopening a frame that runs would leave its kernel to nobody."""
    starts = {
        Verb.START: {Status.PLANNED, Status.BLOCKED},
        Verb.UNDO: {Status.IN_PROGRESS},
        Verb.POP: {Status.IN_PROGRESS},
        Verb.END_SESSION: {Status.IN_PROGRESS},
        Verb.RECORD: {Status.PLANNED, Status.IN_PROGRESS},
        Verb.INVALIDATE: {Status.PLANNED, Status.IN_PROGRESS, Status.BLOCKED},
        Verb.REOPEN: {Status.COMPLETED, Status.FAILED, Status.BLOCKED, Status.INVALIDATED},
    }
    assert STEPS[verb].keys() == starts[verb]
    assert {status for led in STEPS.values() for to in led.values() for status in to} == set(Status)
    assert STEPS[Verb.POP][Status.IN_PROGRESS] == OUTCOMES
    assert set(Status) - {Status.COMPLETED, Status.FAILED, Status.INVALIDATED} == OPEN
