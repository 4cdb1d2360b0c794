"""Frames at a glance: what somebody who watches knows is what the rows say, whatever has happened in between."""

from frame_trees import Grown

from rlm_memory import sessions
from rlm_memory.frames import ending, results, survey
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
