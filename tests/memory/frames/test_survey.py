"""Frames at a glance: what somebody who watches knows is what the rows say, whatever has happened in between."""

from collections.abc import Callable

import pytest
from frame_trees import Grown

from rlm_memory import sessions
from rlm_memory.errors import FrameStatusRefused
from rlm_memory.frames import ending, results, survey, tree
from rlm_memory.frames.states import Status
from rlm_memory.frames.survey import Survey, View, Views
from rlm_memory.sessions import How
from rlm_memory.work import items


def fresh(grown: Grown) -> dict[str, survey.FrameGlance]:
    """What somebody who looks for the first time sees."""
    new = Survey(grown.store)
    assert new.look()
    return new.known


def test_who_watches_knows_what_the_rows_say_after_each_step(grown: Grown) -> None:
    """Plans, starts, ends, summaries of a model, sessions that end, forgetting: each is noticed, and nothing else."""
    watcher = Survey(grown.store)
    steps = 0

    def seen() -> None:
        nonlocal steps
        steps += 1
        assert watcher.look(), f"step {steps} was not noticed"
        assert watcher.known == fresh(grown)
        assert not watcher.look()

    seen()
    story = grown.plan("story")
    seen()
    task = grown.push("task", story)
    seen()
    grown.pop(task, "", artifacts=["a.py", "b.py"])
    seen()
    assert (watcher.known[task.id].status, watcher.known[task.id].artifacts) == ("completed", 2)
    assert results.summarize(grown.store, task.key, "what a model says", now=9.0)
    seen()
    assert watcher.known[task.id].summary == "what a model says"
    assert watcher.known[task.id].session == grown.session.id
    sessions.end(grown.store, grown.session.key, how=How.ENDED, now=9.0)
    seen()
    assert watcher.known[task.id].session is None
    ending.forget(grown.store, task.key)
    seen()
    assert task.id not in watcher.known


def test_a_goal_with_nul_is_shown_whole(grown: Grown) -> None:
    """SQLite's functions end a text there, so a list showed its beginning only."""
    task = grown.push("read\0the log")
    [line] = survey.running(grown.store, 10)
    assert line.goal == task.goal == "read\N{REPLACEMENT CHARACTER}the log"
    items.set_goal(grown.store, task.key, "write\0it up", author="x", now=9.0)
    [line] = survey.running(grown.store, 10)
    assert line.goal == "write\N{REPLACEMENT CHARACTER}it up"


def test_long_goals_are_cut_and_sessions_are_no_running_goals(grown: Grown) -> None:
    """A line is a line; what stands for a session is listed among the sessions."""
    task = grown.push("g" * 3000)
    [line] = survey.running(grown.store, 10)
    assert (line.id, len(line.goal), line.session) == (task.id, survey.LONGEST_GLANCE, fresh(grown)[task.id].session)
    grown.pop(task)
    assert survey.running(grown.store, 10) == []


def test_the_lines_of_a_tree_have_each_frame_behind_its_parent_and_siblings_by_age(grown: Grown) -> None:
    """F-2: whatever has become of them, and however many are asked for."""
    story = grown.push("story")
    first, second, third = (grown.push(goal, story) for goal in ("first", "second", "third"))
    part = grown.plan("part", second)
    grown.plan("aside")
    grown.pop(first), grown.pop(third, status=Status.BLOCKED)
    shown = [
        "f1 in_progress trunk",
        "  f2 in_progress story",
        "    f3 completed first",
        "    f4 in_progress second",
        "      f6 planned part",
        "    f5 blocked third",
        "  f7 planned aside",
    ]
    assert survey.lines(grown.store, grown.root.tree) == shown
    assert survey.lines(grown.store, grown.root.tree, 4) == shown[:4]
    assert survey.lines_below(grown.store, grown.again(second)) == ["f4 in_progress second", "  f6 planned part"]
    assert survey.children(grown.store, story.key, 2) == [first.key, second.key]
    assert part.id == "f6"


def test_a_line_says_that_the_session_of_a_frame_has_ended(grown: Grown) -> None:
    """It is in progress for the goals below it: whoever reads that would look for the session in vain."""
    one = grown.open_session("one")
    fork = tree.note_fork(grown.store, one, grown.session, now=1.0)
    grown.plan("goal", fork)
    shown = ["f1 in_progress trunk", "  f2 in_progress one", "    f3 planned goal"]
    kept = Views(grown.store, 200)
    assert kept.of(grown.root, 1000).tree == shown
    assert survey.lines(grown.store, grown.root.tree) == shown
    ending.end_session(grown.store, one.key, author="t", now=2.0)
    shown[1] += " (its session has ended)"
    assert survey.lines(grown.store, grown.root.tree) == shown
    assert kept.of(grown.root, 1000).tree == shown
    ending.end_session(grown.store, grown.session.key, author="t", now=2.0)
    assert survey.lines(grown.store, grown.root.tree) == shown  # the root stands for the repository


def test_a_view_that_is_kept_is_the_view_that_would_be_made(grown: Grown) -> None:
    """F-2, F-8: whatever changes in the tree, nobody is shown what was; and what has not changed is not read again."""
    kept = Views(grown.store, 200)
    story = grown.push("story")
    child, other = grown.push("child", story), grown.push("other", story)
    seen: View = kept.of(story, 4000)

    def changes(change: Callable[[], object]) -> None:
        nonlocal seen
        change()
        now = kept.of(story, 4000)
        assert now == Views(grown.store, 200).of(story, 4000) != seen
        assert kept.of(story, 4000) is now
        seen = now

    changes(lambda: grown.plan("later", story, tree.Plan("part")))
    changes(lambda: grown.pop(child, ""))
    changes(lambda: results.summarize(grown.store, child.key, "what a model says", now=9.0))
    below = grown.push("below", other)
    seen = kept.of(story, 4000)
    changes(lambda: grown.pop(other, children="adopt"))
    changes(lambda: ending.invalidate(grown.store, below.key, author="worker", now=9.0))
    changes(lambda: ending.reopen(grown.store, other.key, author="worker", now=9.0))
    changes(lambda: ending.forget(grown.store, below.key))
    changes(lambda: ending.forget(grown.store, child.key))
    assert kept.of(story, 600) is not seen, "one of another length is another"
    kept.clear()
    assert kept.of(story, 4000) is not seen


def test_a_view_of_what_was_rolled_back_is_not_kept(grown: Grown) -> None:
    """What comes in its place has the same numbers of events."""
    kept = Views(grown.store, 200)

    def half() -> None:
        with grown.store.transaction():
            grown.plan("never")
            assert "never" in kept.of(grown.root, 4000).context
            raise FrameStatusRefused("f2", Status.PLANNED, "plan", "not now")

    with pytest.raises(FrameStatusRefused):
        half()
    grown.plan("instead")
    assert "instead" in kept.of(grown.root, 4000).context


def test_views_have_a_bound(grown: Grown) -> None:
    """A client that asks for contexts of every length fills no memory."""
    kept = Views(grown.store, 200)
    for tokens in range(600, 900):
        kept.of(grown.root, tokens)
    assert len(kept._kept) <= 100
