"""What is handed on: hand-offs and their decay, work in progress, batches."""

import pytest
from frame_trees import Grown

from rlm_memory import contexts
from rlm_memory.errors import RowRequestError
from rlm_memory.frames import ending, rows, tree
from rlm_memory.frames.states import Kind, Status
from rlm_memory.frames.tree import Plan
from rlm_memory.work import items, metrics, progress
from rlm_memory.work.handoffs import Boundaries, Result, boundaries, decay, hand_off, of_frame
from rlm_memory.work.metrics import BatchOutcome, next_size


def test_every_end_leaves_a_hand_off(grown: Grown) -> None:
    """E-1: status, summary, files and decisions, also those of its work in progress; details are only pointed at."""
    row = grown.push("task")
    assert of_frame(grown.store, row.key) is None
    done = {"decisions": [{"decision": "JWT", "reason": "scales"}], "files_modified": ["b.py", "a.py"]}
    progress.update(grown.store, row.key, done, now=1.0)
    grown.pop(row, "It is done.", artifacts=["a.py"], decisions=["use a"])
    found = of_frame(grown.store, row.key)
    assert found is not None
    assert (found.status, found.summary, found.details) == (Result.PASS, "It is done.", None)
    assert (found.files, found.decisions) == (["a.py", "b.py"], ["use a", "JWT (scales)"])
    hand_off(grown.store, row.key, status=Result.FAIL, summary="No.", details="digest", size=9, now=2.0)
    said = of_frame(grown.store, row.key)
    assert said is not None
    assert (said.status, said.details, said.size) == (Result.FAIL, "digest", 9)
    assert contexts.is_held(grown.store, "digest")


def test_hand_offs_decay_as_what_they_are_for_is_done(grown: Grown) -> None:
    """E-3: details go with the story, hand-offs are archived with the epic; what failed or is blocked keeps all."""
    wanted = Plan("epic", [Plan("story", [Plan("a"), Plan("b"), Plan("c")], Kind.STORY)], Kind.EPIC)
    epic = tree.plan(grown.store, wanted, grown.root.key, author="t", now=1.0)
    (story,) = rows.children(grown.store, epic.key)
    a, b, c = rows.children(grown.store, story.key)
    results = {a: Result.PASS, b: Result.FAIL, c: Result.BLOCKED}
    for row, result in results.items():
        hand_off(grown.store, row.key, status=result, summary=row.goal, details=f"d-{row.goal}", size=1, now=1.0)
    grown.pop(grown.start(a))
    assert boundaries(grown.store, a.key) == Boundaries()
    assert decay(grown.store, now=2.0) == []
    grown.pop(grown.start(b), status=Status.FAILED)
    grown.pop(grown.start(c), status=Status.BLOCKED)
    grown.pop(grown.again(story))
    assert decay(grown.store, now=3.0) == [a.key]
    assert decay(grown.store, now=3.0) == []
    kept = {row.goal: of_frame(grown.store, row.key) for row in results}
    assert [found and found.details for found in kept.values()] == [None, "d-b", "d-c"]
    assert not contexts.is_held(grown.store, "d-a")
    grown.pop(grown.again(epic))
    decay(grown.store, now=4.0)
    kept = {row.goal: of_frame(grown.store, row.key) for row in results}
    assert [(found and found.compacted_at, found and found.archived_at) for found in kept.values()] == [
        *((3.0, 4.0), (None, None), (None, None)),
    ]


def test_the_last_end_tells_what_is_complete_above(grown: Grown) -> None:
    """E-3: a story never completes itself, and is not complete while a child of it has failed."""
    wanted = Plan("epic", [Plan("story", [Plan("a"), Plan("b")], Kind.STORY)], Kind.EPIC)
    epic = tree.plan(grown.store, wanted, grown.root.key, author="t", now=1.0)
    (story,) = rows.children(grown.store, epic.key)
    a, b = rows.children(grown.store, story.key)
    grown.pop(grown.start(a))
    grown.pop(grown.start(b), status=Status.FAILED)
    assert boundaries(grown.store, b.key) == Boundaries(failed=True)
    ending.reopen(grown.store, b.key, author="t", now=1.0)
    grown.pop(grown.start(b))
    assert boundaries(grown.store, b.key) == Boundaries(story=story.id)
    assert grown.status(story) == [Status.IN_PROGRESS]
    grown.pop(grown.again(story))
    done = boundaries(grown.store, story.key)
    assert (done.story_completed, done.epic_completed, done.epic) == (False, True, epic.id)


def test_no_writer_of_work_in_progress_loses_what_another_wrote(grown: Grown) -> None:
    """E-4: decisions of two writers are both there, results merge by field, null drops a field."""
    row = grown.plan("task")
    first = {"decisions": [{"decision": "a"}], "test_results": {"ran": True, "failed": 1}, "phase": "coding"}
    progress.update(grown.store, row.key, first, now=1.0)
    second = {"decisions": [{"decision": "b"}, {"decision": "a"}], "test_results": {"failed": 0}, "phase": None}
    found = progress.update(grown.store, row.key, second, now=2.0)
    assert found.data == {
        "decisions": [{"decision": "a"}, {"decision": "b"}],
        "test_results": {"ran": True, "failed": 0},
    }
    assert (progress.get(grown.store, row.key), found.updated_at) == (found, 2.0)
    for number in range(30):
        progress.update(grown.store, row.key, {"errors": [{"message": f"e{number}"}]}, now=3.0)
    assert len(progress.get(grown.store, row.key).data["errors"]) == 20
    with pytest.raises(RowRequestError, match="at most 65,536 bytes"):
        progress.update(grown.store, row.key, {"context": "x" * 70_000}, now=4.0)


@pytest.mark.parametrize(
    ("size", "outcome", "then"),
    [
        (None, None, 2),
        (2, BatchOutcome.COMPLETED, 3),
        (3, BatchOutcome.COMPLETED, 4),
        (4, BatchOutcome.COMPLETED, 4),
        (4, BatchOutcome.INTERRUPTED, 3),
        (3, BatchOutcome.FAILED, 2),
        (2, BatchOutcome.FAILED, 2),
        (3, BatchOutcome.BLOCKED, 3),
    ],
)
def test_batches_grow_with_success(size: int | None, outcome: BatchOutcome | None, then: int) -> None:
    """E-11: 2 at first, one more when all is done, one less when not, between 2 and 4."""
    assert next_size(size, outcome) == then


def test_batches_are_written_down_by_session(grown: Grown) -> None:
    """E-11: what a session has done so far; another session begins anew."""
    tree_name = grown.root.tree
    metrics.note_batch(grown.store, "s1", tree_name, BatchOutcome.COMPLETED, size=2, tasks=2, now=1.0)
    found = metrics.note_batch(
        grown.store, "s1", tree_name, BatchOutcome.INTERRUPTED, size=3, tasks=1, now=2.0, interrupted=2
    )
    assert (found.batches_completed, found.batches, found.tasks, found.interrupted) == (1, 2, 3, 2)
    assert (found.last_batch_size, found.last_batch_outcome, found.created_at, found.next_size) == (
        *(3, "interrupted", 1.0, 2),
    )
    other = metrics.note_batch(grown.store, "s2", tree_name, BatchOutcome.BLOCKED, size=2, tasks=1, now=3.0)
    assert (other.batches, other.tasks) == (1, 1)


def test_a_task_is_described_and_has_other_names(grown: Grown) -> None:
    """E-7: what is given is set, what is not stays; a priority and a type are of a few."""
    row = grown.plan("task")
    items.describe(grown.store, row.key, type_="bug", description="it breaks")
    assert items.describe(grown.store, row.key, acceptance="it holds") == items.Item("bug", "it breaks", "it holds")
    with pytest.raises(RowRequestError, match="no type of task 'epic'"):
        items.describe(grown.store, row.key, type_="epic")
    with pytest.raises(RowRequestError, match="1000, 750, 500, 250"):
        items.set_priority(grown.store, row.key, 1, author="t", now=1.0)
    alias = items.Alias("beads", "bd-a1b2.1", {"labels": ["x"]})
    items.name(grown.store, row.key, alias)
    assert items.aliases(grown.store, row.tree, "beads") == [(row.key, alias)]
    assert items.aliases(grown.store, row.tree, "taskmaster") == []
    assert items.aliases_of(grown.store, row.key) == [alias]
