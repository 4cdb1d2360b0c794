"""Ends of frames: pop with what is below, invalidation and reopening, the end of a session, forgetting."""

from pathlib import Path

import pytest
from frame_trees import Grown, hints

from rlm_memory import contexts, journal, queries, sessions
from rlm_memory.errors import FramesRunning, FrameStatusRefused, UnknownFrame
from rlm_memory.frames import context, ending, prompts, results, rows, runtime, summaries, tree
from rlm_memory.frames.results import MOST_SHOWN, HandedOver, Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.runtime import Runtime
from rlm_memory.frames.states import Status
from rlm_memory.frames.tree import Plan
from rlm_memory.queries import Asker, QueryRow
from rlm_memory.sessions import How

P, R, C, F, B, X = Status


def owed(grown: Grown) -> list[tuple[str, str]]:
    """What ends have promised: frames and what is owed of each."""
    return [(rows.frame_id(one.frame), one.what) for one in Runtime(grown.store, None).owed()]  # type: ignore[arg-type]


def test_a_pop_keeps_what_came_of_the_frame_and_says_where_to_go_on(grown: Grown) -> None:
    """F-1, F-5: status, summary, artifacts and decisions; log, notebook and the kernel's end are promised with it."""
    task = grown.push("task")
    ended = grown.pop(task, "All is well.", artifacts=["a.py"], decisions=["use a"])
    assert (ended.frame, ended.status, ended.summary, ended.source) == (task.id, "completed", "All is well.", "caller")
    assert ended.parent == grown.root.id
    kept = rows.compaction_of(grown.store, task.key)
    assert kept is not None
    assert (kept.text, kept.artifacts, kept.decisions) == ("All is well.", ("a.py",), ("use a",))
    assert owed(grown) == [(task.id, "log"), (task.id, "notebook"), (task.id, "end")]


def test_the_same_pop_gets_the_same_answer_and_another_one_is_refused(grown: Grown) -> None:
    """A client whose answer was lost asks again; nothing happens twice."""
    task = grown.push("task")
    first = grown.pop(task, "done", hand_over=["x"])
    promised = owed(grown)
    assert grown.pop(task, "done", hand_over=["x"]) == first
    assert owed(grown) == promised
    again = hints("it has ended: reopen it first")
    with pytest.raises(FrameStatusRefused, match=r"which is completed$", check=again):
        grown.pop(task, "something else")


def test_nobody_pops_what_stands_for_a_session_or_has_not_started(grown: Grown) -> None:
    """F-14: a sub-agent that is only attached has no goal of its own to end."""
    with pytest.raises(FrameStatusRefused, check=hints("it stands for a session: end_session ends it")):
        grown.pop(grown.root)
    with pytest.raises(FrameStatusRefused, check=hints("it has not started: push it first, or claim it in the queue")):
        grown.pop(grown.plan("later"))
    ends = hints("use one of: blocked, completed, failed")
    with pytest.raises(FrameStatusRefused, match="cannot pop as planned ", check=ends):
        grown.pop(grown.push("task"), status=P)


def test_with_running_children_a_pop_is_refused_with_their_ids(grown: Grown) -> None:
    """Nothing has changed then; the error names what to pass."""
    story = grown.push("story")
    child, later = grown.push("child", story), grown.plan("later", story)
    with pytest.raises(
        FramesRunning, match=f"frames run below {story.id}: {child.id}$", check=hints(FramesRunning.hint)
    ):
        grown.pop(story)
    assert grown.status(story, child, later) == [R, R, P]
    assert owed(grown) == []


def test_a_pop_may_fail_what_runs_below(grown: Grown) -> None:
    """Each frame that it takes along has a compaction, a log and its kernel's end: nothing of it is lost."""
    story = grown.push("story")
    child, later = grown.push("child", story), grown.plan("later", story)
    deep = grown.push("deep", child)
    grown.cell(deep, "1 / 0", "ZeroDivisionError: division by zero", "error")
    ended = grown.pop(story, children="fail")
    assert (ended.failed, ended.adopted, ended.invalidated) == ([child.id, deep.id], [], [later.id])
    assert grown.status(story, child, deep, later) == [C, F, F, X]
    assert {frame for frame, what in owed(grown) if what == "log"} == {story.id, child.id, deep.id}
    kept = rows.compaction_of(grown.store, deep.key)
    assert kept is not None
    assert (kept.source, kept.text) == (
        "extract",
        "failed: deep (1 cell, 1 failed)\nerror: ZeroDivisionError: division by zero",
    )


def test_a_pop_may_let_its_parent_adopt_what_runs_below(grown: Grown) -> None:
    """With all below it: depths are those of the new place, planned ones there stay planned."""
    story = grown.push("story")
    child, later = grown.push("child", story), grown.plan("later", story)
    deep = grown.plan("deep", child, Plan("deeper"))
    (deeper,) = rows.children(grown.store, deep.key)
    ended = grown.pop(story, children="adopt")
    assert (ended.failed, ended.adopted, ended.invalidated) == ([], [child.id], [later.id])
    assert grown.status(child, deep, deeper, later) == [R, P, P, X]
    assert [grown.again(row).depth for row in (child, deep, deeper)] == [1, 2, 3]
    assert grown.again(child).parent == grown.root.key
    assert rows.events_of(grown.store, child.key)[-1].verb == "adopt"


def test_sessions_below_a_frame_move_up_whatever_it_does(grown: Grown) -> None:
    """Somebody has forked the frame's session without a goal: that session is nobody's to end."""
    worker = grown.open_session("worker")
    task = grown.start(grown.plan("task"), worker)
    fork = tree.note_fork(grown.store, grown.open_session("fork"), worker, now=1.0)
    assert grown.pop(task).adopted == [fork.id]
    assert grown.again(fork).parent == grown.root.key
    assert grown.status(fork) == [R]


def test_invalidation_takes_what_is_planned_warns_what_runs_and_keeps_what_is_done(grown: Grown) -> None:
    """F-10: and reopening brings back exactly those that it took. Of what ran, the kernel ends and the log is kept."""
    story = grown.push("story")
    done, runs = grown.push("done", story), grown.push("runs", story)
    grown.pop(done)
    planned = grown.plan("planned", story, Plan("below"))
    (below,) = rows.children(grown.store, planned.key)
    before = grown.plan("before", story)
    ending.invalidate(grown.store, before.key, author="t", now=2.0)
    told = ending.invalidate(grown.store, story.key, author="t", now=3.0, why="not needed")
    assert (told.invalidated, told.running) == ([story.id, planned.id, below.id], [runs.id])
    assert grown.status(story, done, runs, planned, below, before) == [X, C, R, X, X, X]
    assert [what for frame, what in owed(grown) if frame == story.id] == ["log", "notebook", "end"]
    assert rows.compaction_of(grown.store, story.key) is not None
    assert rows.events_of(grown.store, below.key)[-1].data["why"] == "not needed"
    assert grown.pop(runs).parent == grown.root.id  # not to what was invalidated
    back = ending.reopen(grown.store, story.key, author="t", now=4.0)
    assert [row.id for row in back] == [story.id, planned.id, below.id]
    assert grown.status(story, done, runs, planned, below, before) == [P, C, C, P, P, X]


def test_reopening_asks_for_what_is_above_first(grown: Grown) -> None:
    """A frame below one that has ended cannot be worked on."""
    story = grown.push("story")
    task = grown.push("task", story)
    grown.pop(task)
    later = grown.plan("later", story)
    grown.pop(story)
    for row in (task, later):
        with pytest.raises(FrameStatusRefused, check=hints(f"{story.id} above it has ended: reopen that first")):
            ending.reopen(grown.store, row.key, author="t", now=2.0)
    assert [row.id for row in ending.reopen(grown.store, story.key, author="t", now=2.0)] == [story.id, later.id]
    again = ending.reopen(grown.store, task.key, author="t", now=3.0)[0]
    assert (again.status, again.session, again.ended, again.ended_at, again.cause) == (P, None, None, None, None)
    with pytest.raises(FrameStatusRefused, match="cannot reopen"):
        ending.reopen(grown.store, task.key, author="t", now=3.0)


def test_below_what_failed_nothing_is_brought_back(grown: Grown) -> None:
    """F-10: a goal that failed with the one above stays failed, and its plans wait until it is reopened itself."""
    story = grown.push("story")
    child, beside = grown.push("child", story), grown.plan("beside", story)
    planned = grown.plan("planned", child)
    grown.pop(story, status=F, children="fail")
    assert grown.status(child, beside, planned) == [F, X, X]
    assert [row.id for row in ending.reopen(grown.store, story.key, author="t", now=2.0)] == [story.id, beside.id]
    assert [row.id for row in ending.reopen(grown.store, child.key, author="t", now=3.0)] == [child.id, planned.id]


def test_a_models_summary_takes_the_place_of_an_extract_only(grown: Grown) -> None:
    """F-7: what the caller said stays; a frame that runs again gets none."""
    said, silent, again = grown.push("said"), grown.push("silent"), grown.push("again")
    grown.pop(said, "my words"), grown.pop(silent, ""), grown.pop(again, "")
    ending.reopen(grown.store, again.key, author="t", now=2.0)
    assert [results.summarize(grown.store, row.key, "better", now=3.0) for row in (said, silent, again)] == [
        False,
        True,
        False,
    ]
    kept = [rows.compaction_of(grown.store, row.key) for row in (said, silent)]
    assert [(one.source, one.text) for one in kept if one] == [("caller", "my words"), ("model", "better")]


def test_an_answer_replaces_the_extract_that_it_was_asked_for_and_no_other(grown: Grown) -> None:
    """F-7: a frame that was reopened and has ended again has another one; what the caller has said needs none."""
    said, silent = grown.push("said"), grown.push("silent")
    grown.cell(silent, "look()", "FACT 17")
    grown.pop(said, "my words"), grown.pop(silent, "", artifacts=["a.py"], decisions=["this way"])

    def asks(row: FrameRow, mode: str = "deferred") -> QueryRow | None:
        return summaries.ask(grown.store, row.key, grown.session.key, mode=mode, now=3.0)

    assert asks(said) is None
    first = asks(silent, "provider")
    assert first is not None
    assert (first.mode, first.asked_by) == ("provider", Asker.TOOL)
    assert first.prompt.startswith(prompts.COMPLETION.partition("{record}")[0])
    for told in ("goal of f3: silent", "status: completed", "- f1: ", "look()", "tool: FACT 17", "artifacts: a.py"):
        assert told in first.prompt
    assert [query.id for query in summaries.asked_for(grown.store, silent.key)] == [first.id]
    ending.reopen(grown.store, silent.key, author="t", now=4.0)
    assert asks(silent) is None  # it has not ended
    grown.pop(grown.start(grown.again(silent)), "")
    second = asks(silent)
    assert second is not None

    def take(query: QueryRow, answer: str | None) -> list[int]:
        return summaries.take(grown.store, grown.session.key, {query.id: answer, "q_none": "x"}, now=5.0)

    assert [take(first, "late"), take(second, " "), take(second, None)] == [[], [], []]
    assert take(second, " in a few words ") == [silent.key]
    kept = rows.compaction_of(grown.store, silent.key)
    assert kept is not None
    assert (kept.source, kept.text, kept.artifacts) == ("model", "in a few words", ())
    assert take(second, "again") == []


def test_a_summary_that_comes_after_the_fold_changes_no_context(grown: Grown) -> None:
    """F-7, F-9: the frame shows it; what is told of the tree keeps its bytes."""
    old = grown.push("old")
    grown.pop(old, "")
    for number in range(MOST_SHOWN):
        grown.pop(grown.push(f"later {number}"))
    before = context.assemble(grown.store, grown.root.key)
    assert 'id="f2"' not in before
    query = summaries.ask(grown.store, old.key, grown.session.key, mode="deferred", now=3.0)
    assert query is not None
    assert summaries.take(grown.store, grown.session.key, {query.id: "better"}, now=4.0) == [old.key]
    kept = rows.compaction_of(grown.store, old.key)
    assert kept is not None
    assert kept.text == "better"
    assert context.assemble(grown.store, grown.root.key) == before


def test_what_was_asked_of_a_frame_goes_with_it(grown: Grown) -> None:
    """P4: the prompt has its cells."""
    task = grown.push("task")
    grown.pop(task, "")
    query = summaries.ask(grown.store, task.key, grown.session.key, mode="deferred", now=3.0)
    other = queries.ask(grown.store, grown.session.key, ["another"], None, 3.0)
    assert query is not None
    ending.forget(grown.store, task.key)
    assert queries.of_session(grown.store, grown.session.key) == other


def test_values_wait_for_the_nearest_session_above(grown: Grown) -> None:
    """F-5: also when the parent has none; the text behind a value is held as long as the frame is kept."""
    story = grown.plan("story", None, Plan("task"))
    (task,) = rows.children(grown.store, story.key)
    worker = grown.open_session("worker")
    grown.start(task, worker)
    values = [HandedOver("x", "digest-x", 5), HandedOver("log", "digest-l", 7, "text")]
    outcome = Outcome(C, "done", hand_over=["x", "log"])
    ending.pop(grown.store, task.key, outcome, values, author="t", now=2.0)
    waiting = runtime.undelivered(grown.store, grown.session.key)
    assert [(one.name, one.digest, one.form) for one in waiting] == [
        ("log", "digest-l", "text"),
        ("x", "digest-x", "object"),
    ]
    assert runtime.undelivered(grown.store, worker.key) == []
    runtime.delivered(grown.store, waiting, now=3.0)
    assert runtime.undelivered(grown.store, grown.session.key) == []
    assert contexts.is_held(grown.store, "digest-x")
    assert len(runtime.handed_over(grown.store, task.key)) == 2


def test_the_end_of_a_session_blocks_its_goals_and_pops_nothing(grown: Grown) -> None:
    """What the journal holds is copied into an extract before it goes with the session; what is below ends first."""
    task = grown.push("task")
    shared, planned = grown.push("shared", task), grown.plan("planned", task)
    grown.cell(task, "1 + 1", "the answer is 2")
    blocked = ending.end_session(grown.store, grown.session.key, author="t", now=2.0)
    assert [row.id for row in blocked] == [shared.id, task.id]
    assert {what for _, what in owed(grown)} == {"log", "notebook"}
    sessions.end(grown.store, grown.session.key, How.ENDED, 2.0)
    assert grown.status(task, shared, planned, grown.root) == [B, B, P, R]
    kept = rows.compaction_of(grown.store, task.key)
    assert kept is not None
    assert kept.text == "blocked: task (1 cell, 0 failed)\nwrote: the answer is 2"
    assert grown.again(task).session is None
    other = grown.open_session("other")
    assert grown.start(task, other).status is R  # somebody goes on with it


def test_forgetting_leaves_no_trace(grown: Grown, database: Path) -> None:
    """P4: goal, summary, decisions, values and events of a frame and those below are nowhere in the files."""
    marker = "MARK-3f1c"
    story = grown.push(f"story {marker}")
    task = grown.push(f"task {marker}", story)
    first = hints("pop it first")
    with pytest.raises(FrameStatusRefused, match=f"cannot forget frame {story.id}, ", check=first):
        ending.forget(grown.store, story.key)
    values = [HandedOver("x", marker, 5)]
    outcome = Outcome(C, marker, [marker], [marker], hand_over=["x"])
    ending.pop(grown.store, task.key, outcome, values, author=marker, now=2.0)
    ending.pop(grown.store, story.key, Outcome(F, marker), author=marker, now=3.0)
    assert [row.id for row in ending.forget(grown.store, story.key)] == [story.id, task.id]
    with pytest.raises(UnknownFrame):
        rows.get(grown.store, task.key)
    assert not contexts.is_held(grown.store, marker)
    grown.store.purge()
    assert [path.name for path in database.parent.iterdir() if marker.encode() in path.read_bytes()] == []


def test_rows_of_a_running_frame_outlast_the_noise_of_others(grown: Grown) -> None:
    """Its log is still to be written; when it has ended they are bounded like all others."""
    task = grown.push("task")
    grown.cell(task, "mine", "x" * 100)
    for number in range(20):
        grown.cell(None, f"noise {number}", "y" * 100)
    journal.trim(grown.store, grown.session.key, rows=5)
    journal.trim_all(grown.store, size=400)
    assert [cell.code for cell in journal.of_frame(grown.store, task.key)] == ["mine"]
    assert len(journal.of_session(grown.store, grown.session.key)) <= 5
    grown.pop(task)
    grown.cell(None, "last")
    journal.trim(grown.store, grown.session.key, rows=1)
    assert journal.of_frame(grown.store, task.key) == []


def test_a_frame_that_runs_has_a_bound_of_its_own(grown: Grown) -> None:
    """What is beyond it goes to the frame's file first, and then from the journal: the oldest cells."""
    task, other = grown.push("task"), grown.push("other")
    for number in range(6):
        grown.cell(task, f"cell {number}", "x" * 100)
        grown.cell(other, "beside")
    over = journal.beyond(grown.store, task.key, rows=4)
    assert [cell.code for cell in over] == ["cell 0", "cell 1"]
    assert [cell.code for cell in journal.beyond(grown.store, task.key, size=350)] == [f"cell {n}" for n in range(3)]
    assert journal.beyond(grown.store, task.key) == []
    journal.let_go(grown.store, over)
    assert [cell.code for cell in journal.of_frame(grown.store, task.key)] == [f"cell {n}" for n in range(2, 6)]
    assert journal.tally(grown.store, other.key) == (6, 0)
