"""How the work goes, from what is recorded: each number with the events that it rests on, and none without them."""

import pytest
from frame_trees import Grown

from rlm_ipc.work_requests import MeasuredLine
from rlm_memory.errors import RowRequestError
from rlm_memory.frames import ending, tree
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Kind, Status
from rlm_memory.work import chains, handoffs, holders, leases
from rlm_memory.work.handoffs import Result
from rlm_memory.work.holders import Holder
from rlm_memory.work.measures import measures
from rlm_memory.work.metrics import BatchOutcome, note_batch


def agent(grown: Grown, name: str) -> Holder:
    return holders.enlist(grown.store, "connection", name, label=name, worktree="", now=grown.now)


def take(grown: Grown, holder: Holder, row: FrameRow) -> None:
    assert leases.claim(grown.store, holder, row.tree, now=grown.now, key=row.key) is not None


def done(grown: Grown, holder: Holder, row: FrameRow, status: Status = Status.COMPLETED) -> None:
    ending.pop(grown.store, row.key, Outcome(status, "done"), author=holder.id, now=grown.now)


def told(grown: Grown) -> dict[str, MeasuredLine]:
    return {measure.name: measure for measure in measures(grown.store, grown.root.tree)}


def test_there_is_no_number_where_nothing_has_happened(grown: Grown) -> None:
    """E-15: "no data", not 0 and not 100 %; a plan is no work."""
    grown.plan("task")
    assert [(one.value, one.events, one.met) for one in told(grown).values()] == [(None, 0, None)] * 6


def test_the_table_counts_what_agents_have_done(grown: Grown) -> None:
    """E-15: tasks of each agent, what was torn from one, and who went on with it."""
    one, two = agent(grown, "one"), agent(grown, "two")
    tasks = [grown.plan(f"task {n}") for n in range(4)]
    for row in tasks[:3]:
        take(grown, one, row)
    done(grown, one, tasks[0])
    done(grown, one, tasks[1], Status.FAILED)
    leases.free(grown.store, one.id, now=grown.now, why="gone")
    take(grown, two, tasks[2])
    found = told(grown)
    assert (found["tasks per agent"].value, found["tasks per agent"].events, found["tasks per agent"].met) == (
        0.5,
        2,
        False,
    ), "a failure is no task that is done"
    assert (found["claims lost"].value, found["claims lost"].events) == (0.25, 4)
    assert (found["restarts by a loop"].value, found["restarts by a loop"].events) == (0.0, 1)
    done(grown, two, tasks[2])
    take(grown, two, tasks[3])
    done(grown, two, tasks[3])
    ending.pop(grown.store, grown.push("by hand").key, Outcome(Status.COMPLETED, ""), author="page", now=grown.now)
    assert told(grown)["tasks per agent"].value == 1.5


def test_the_table_counts_batches_chains_and_details(grown: Grown) -> None:
    """E-11, E-15: of the loop, and what decay has let go."""
    named = grown.root.tree
    for outcome in [BatchOutcome.COMPLETED] * 19 + [BatchOutcome.FAILED]:
        note_batch(grown.store, "chain-1", named, outcome, size=2, tasks=2, now=1.0)
    task, holder = grown.plan("task"), agent(grown, "one")
    chain = chains.begin(grown.store, named, None, "p", {})
    for number in range(3):
        kind = "continued" if number else "first"
        chains.note_run(grown.store, chain.number, number, task.key, {"kind": kind}, None)
    with pytest.raises(RowRequestError, match="there is no chain 2"):
        chains.note_run(grown.store, chain.number + 1, 0, task.key, {}, None)
    take(grown, holder, task)
    leases.free(grown.store, holder.id, now=grown.now, why="gone")
    take(grown, agent(grown, "two"), task)
    found = told(grown)
    assert (found["batches completed"].value, found["batches completed"].events) == (0.95, 20)
    assert found["batches completed"].met
    assert (found["agents per chain"].value, found["agents per chain"].events) == (3.0, 1)
    assert (found["restarts by a loop"].value, found["restarts by a loop"].events) == (1.0, 2)
    assert found["restarts by a loop"].met
    story = ending_story(grown)
    rows = {one.value: one.events for name, one in told(grown).items() if name == "hand-off details deleted"}
    assert rows == {0.5: 2}, story


def ending_story(grown: Grown) -> str:
    """Let a story with details end, and leave a task with details that is in none."""
    story = tree.plan(grown.store, tree.Plan("story", kind=Kind.STORY), grown.root.key, author="x", now=1.0)
    below, alone = grown.push("below", story), grown.push("alone")
    for row in (below, alone):
        grown.pop(row)
        handoffs.hand_off(grown.store, row.key, status=Result.PASS, summary="x", details="0" * 64, size=9, now=1.0)
    grown.pop(grown.again(story))
    handoffs.decay(grown.store, now=2.0)
    return story.id
