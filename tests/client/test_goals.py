"""Goals from Python, on a real daemon: a block that pops, what it leaves, and how it fails."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_client import AsyncClient, Client
from rlm_ipc.errors import ToolFailed


@pytest.fixture
def client(request: pytest.FixtureRequest, daemon: Path) -> Iterator[Client]:
    """Give a client with a session of its own."""
    with Client(f"goals-{request.node.name[:60]}") as made:
        yield made
        made.end_session()


def test_a_block_is_a_goal_that_is_completed_at_its_end(client: Client) -> None:
    """F-3, F-5: it has every variable, its cells do not touch those of the session, and its extract is what is left."""
    client.eval_code("n = 20")
    with client.push("count on") as goal:
        assert goal.pushed.forked_from == client.session
        assert f'<frame id="{goal.id}" kind="task" status="in_progress">' in goal.pushed.context
        assert goal.eval_code("n += 1; n").result == "21"
        assert goal.pending_queries() == []
    assert goal.popped is not None
    assert (goal.popped.status, goal.popped.source) == ("completed", "extract")
    assert goal.popped.summary.startswith("completed: count on (1 cell, 0 failed)")
    assert client.eval_code("n").result == "20"
    assert client.frame().current == goal.pushed.parent


def test_a_block_that_pops_by_itself_is_not_popped_again(client: Client) -> None:
    """What it says stays; the values are above."""
    with client.push("find it") as goal:
        goal.eval_code("found = {'at': 7}")
        popped = goal.pop(summary="At seven.", artifacts=["notes.md"], hand_over=["found"])
    assert goal.popped == popped
    assert (popped.summary, popped.handed_over) == ("At seven.", ("found",))
    assert client.eval_code(f"found, frames[{goal.id!r}]['artifacts']").result == "({'at': 7}, ['notes.md'])"
    assert client.frame(goal.id).artifacts == ("notes.md",)


def test_a_goal_has_turns_of_its_cells_and_of_notes(client: Client) -> None:
    """P-10: as messages, with counts of them."""
    with client.push("find it") as goal:
        goal.eval_code("print('at seven')")
        goal.frame(note="look at the second half")
        shown = goal.frame(do="turns")
    assert [turn["content"] for turn in shown.turns[1:]] == ["at seven", "look at the second half"]
    assert shown.stats is not None
    assert shown.stats["total_messages"] == 3


def test_a_block_that_raises_is_a_goal_that_failed(client: Client) -> None:
    """With the text of the exception; what runs below fails with it."""
    goals = []

    def fails() -> None:
        with client.push("outer") as goal:
            goals.extend([goal, goal.push("inner")])
            raise KeyError("the disk")

    with pytest.raises(KeyError, match="the disk"):
        fails()
    outer, inner = goals
    assert outer.popped is not None
    assert (outer.popped.status, outer.popped.summary) == ("failed", "KeyError: 'the disk'")
    assert outer.popped.failed == (inner.id,)
    assert client.frame(inner.id).status == "failed"


def test_a_pop_that_is_refused_does_not_hide_what_the_block_raised(client: Client) -> None:
    """Somebody else has ended the frame meanwhile: the exception goes on, with a note."""

    def fails(error: Exception | None) -> None:
        with client.push("goal") as goal:
            client.frame(goal.id, do="invalidate")
            if error is not None:
                raise error

    with pytest.raises(RuntimeError, match="mine") as raised:
        fails(RuntimeError("mine"))
    assert [note for note in raised.value.__notes__ if "could not be popped" in note]
    with pytest.raises(ToolFailed) as refused:
        fails(None)
    assert refused.value.answer["status"] == "invalidated"


def test_plans_are_typed_and_changed_by_id(client: Client) -> None:
    """F-10: a line for each planned frame, the highest first."""
    planned = client.plan("story", ["read", {"goal": "write", "children": ["draft"]}])
    ids = [line.split()[0] for line in planned.planned]
    assert [line.split()[1:] for line in planned.planned] == [
        ["planned", name] for name in "story read write draft".split()
    ]
    assert client.frame(ids[2], do="invalidate").invalidated == tuple(ids[2:])
    assert set(client.frame(ids[2], do="reopen").reopened) == set(ids[2:])
    assert client.frame(ids[0]).children == (ids[1], ids[2])
    assert client.frame(ids[0], do="forget").forgotten == tuple(ids)


def test_a_goal_can_share_the_session_of_another_thread(client: Client) -> None:
    """Goals side by side: each is a client of its own, so threads do not wait for each other."""
    with client.push("one", fork=False) as one, client.push("two", parent=one.pushed.parent) as two:
        assert one.pushed.session == client.session != two.pushed.session
        assert two.pushed.current_unchanged is not None
        threads = [threading.Thread(target=goal.eval_code, args=(f"mine = {goal.id!r}",)) for goal in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [goal.eval_code("mine").result for goal in (one, two)] == [repr(one.id), repr(two.id)]
    assert client.eval_code("mine").result == repr(one.id)


def test_two_clients_of_one_process_have_each_their_current_frame(client: Client) -> None:
    """The current frame follows the session that the client was made for, not the process alone."""
    with client.push("here"), Client("goals-beside") as beside:
        assert beside.frame().kind == "session"
        beside.end_session()


@pytest.mark.anyio
async def test_an_asynchronous_block_pops_too(daemon: Path) -> None:
    """As `Client`: completed, failed, or only pushed when it is awaited."""
    async with AsyncClient("goals-async") as client:
        async with client.push("count") as goal:
            assert (await goal.eval_code("1 + 1")).result == "2"
        assert goal.popped is not None
        assert goal.popped.status == "completed"
        with pytest.raises(ValueError, match="wrong"):
            async with client.push("fail") as failed:
                raise ValueError("wrong")
        assert failed.popped is not None
        assert failed.popped.summary == "ValueError: wrong"
        left = await client.push("open")
        assert (await client.frame(left.id)).status == "in_progress"
        assert (await left.pop(summary="closed")).summary == "closed"
        assert left.popped is not None
        await left.aclose()
        await client.end_session()
