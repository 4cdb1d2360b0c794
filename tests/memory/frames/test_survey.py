"""Frames at a glance: what somebody who watches knows is what the rows say, whatever has happened in between."""

from frame_trees import Grown

from rlm_memory import sessions
from rlm_memory.frames import ending, results, survey
from rlm_memory.frames.states import Status
from rlm_memory.frames.survey import Survey
from rlm_memory.sessions import How


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
